//go:build !unix

package compare

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func usageOf(p *os.ProcessState) (u Usage) {
	if p != nil {
		u.User, u.System = p.UserTime().Seconds(), p.SystemTime().Seconds()
	}
	return u
}
