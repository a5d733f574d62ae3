package job

import "encoding/binary"

// isZero tells whether p holds nothing but zeros.
func isZero(p []byte) bool {
	for len(p) >= 64 {
		q := p[:64:64]
		if binary.LittleEndian.Uint64(q)|binary.LittleEndian.Uint64(q[8:])|
			binary.LittleEndian.Uint64(q[16:])|binary.LittleEndian.Uint64(q[24:])|
			binary.LittleEndian.Uint64(q[32:])|binary.LittleEndian.Uint64(q[40:])|
			binary.LittleEndian.Uint64(q[48:])|binary.LittleEndian.Uint64(q[56:]) != 0 {
			return false
		}
		p = p[64:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// zeroRuns cuts data, which lies at off, into runs that are to be written and runs of zeros that need not be: the
// latter have at least least bytes, unless they reach an end of data. Only whole grains (aligned to off 0) count as
// zero; a grain that data holds but a part of counts by that part. It calls run for each in order, until one fails.
func zeroRuns(data []byte, off, grain, least int64, run func(from, to int64, zero bool) error) error {
	end := int64(len(data))
	next := func(at int64) int64 { return min((off+at)/grain*grain+grain-off, end) }
	begun := int64(0) // start of what has not been handed out
	for at := int64(0); at < end; {
		to := next(at)
		if !isZero(data[at:to]) {
			at = to
			continue
		}
		for to < end && isZero(data[to:next(to)]) {
			to = next(to)
		}
		if to-at >= least || at == 0 || to == end {
			if begun < at {
				if err := run(begun, at, false); err != nil {
					return err
				}
			}
			if err := run(at, to, true); err != nil {
				return err
			}
			begun = to
		}
		at = to
	}
	if begun < end {
		return run(begun, end, false)
	}
	return nil
}
