package cli

import (
	"strconv"

	"byre/image"
)

// humanSize is a size with three significant digits and a binary unit, "1.5 GiB", in the real tools' rounding: the
// unit changes at 1000, not at 1024.
func humanSize(n uint64) string {
	const units = " KMGTPE"
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v /= 1024
		u++
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if u == 0 {
		return s + " B"
	}
	return s + " " + units[u:u+1] + "iB"
}

// snapshotHeader and snapshotRow are the lines of snapshot lists, without line ends.
func snapshotHeader() string {
	return pad("ID", -7) + " " + pad("TAG", -16) + " " + pad("VM_SIZE", 8) + " " + pad("DATE", 19) + " " +
		pad("VM_CLOCK", 15) + " " + pad("ICOUNT", 10)
}

func snapshotRow(s *image.Snapshot) string {
	icount := "--"
	if s.ICount != -1 {
		icount = strconv.FormatInt(s.ICount, 10)
	}
	ms := s.VMClock / 1e6
	clock := zeros(ms/3600000, 4) + ":" + zeros(ms/60000%60, 2) + ":" + zeros(ms/1000%60, 2) + "." + zeros(ms%1000, 3)
	return pad(s.ID, -7) + " " + pad(s.Name, -16) + " " + pad(humanSize(s.VMStateSize), 8) + " " +
		pad(s.Date.Local().Format("2006-01-02 15:04:05"), 19) + " " + pad(clock, 15) + " " + pad(icount, 10)
}

// pad fills a column: of width w, to the right, or to the left if w is negative.
func pad(s string, w int) string {
	for len(s) < max(w, -w) {
		if w > 0 {
			s = " " + s
		} else {
			s += " "
		}
	}
	return s
}

func zeros(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	for len(s) < width {
		s = "0" + s
	}
	return s
}
