package ofdlock

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findHolder looks through the descriptors of all processes that we may inspect for a lock on byte off of the
// file that fd is open on. It returns 0 if it finds none.
func findHolder(fd int, off int64) int {
	var want unix.Stat_t
	if unix.Fstat(fd, &want) != nil {
		return 0
	}
	self := os.Getpid()
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + p.Name()
		fds, _ := os.ReadDir(dir + "/fd")
		for _, f := range fds {
			if pid == self && f.Name() == strconv.Itoa(fd) {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(dir+"/fd/"+f.Name(), &st) != nil || st.Ino != want.Ino || st.Dev != want.Dev {
				continue
			}
			info, _ := os.ReadFile(dir + "/fdinfo/" + f.Name())
			if holdsByte(string(info), off) {
				return pid
			}
		}
	}
	return 0
}

// holdsByte looks for an OFD lock that covers byte off in the text of a fdinfo file, whose lines read
// "lock:	1: OFDLCK  ADVISORY  READ -1 fd:00:1234 100 101" (last byte included, or EOF).
func holdsByte(info string, off int64) bool {
	for line := range strings.Lines(info) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "lock:" || f[2] != "OFDLCK" {
			continue
		}
		start, err := strconv.ParseInt(f[len(f)-2], 10, 64)
		if err != nil || off < start {
			continue
		}
		end, err := strconv.ParseInt(f[len(f)-1], 10, 64)
		if f[len(f)-1] == "EOF" || err == nil && off <= end {
			return true
		}
	}
	return false
}

func processName(pid int) string {
	if pid <= 0 {
		return ""
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}
