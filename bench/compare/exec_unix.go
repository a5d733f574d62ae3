//go:build unix

package compare

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// ownGroup makes the script and all it starts end together when the run is cancelled.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

func usageOf(p *os.ProcessState) (u Usage) {
	if p == nil {
		return u
	}
	u.User, u.System = p.UserTime().Seconds(), p.SystemTime().Seconds()
	if r, ok := p.SysUsage().(*syscall.Rusage); ok {
		u.VoluntarySwitches, u.ForcedSwitches = int64(r.Nvcsw), int64(r.Nivcsw)
		u.MaxRSS = int64(r.Maxrss)
		if runtime.GOOS != "darwin" {
			u.MaxRSS <<= 10
		}
	}
	return u
}
