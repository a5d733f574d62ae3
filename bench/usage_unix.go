//go:build unix

package bench

import "golang.org/x/sys/unix"

// usageNow reads what the process has used so far.
func usageNow() (u Usage) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.User = float64(r.Utime.Nano()) / 1e9
		u.System = float64(r.Stime.Nano()) / 1e9
		u.VoluntarySwitches, u.ForcedSwitches = int64(r.Nvcsw), int64(r.Nivcsw)
	}
	return u
}
