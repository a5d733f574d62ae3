//go:build unix

package job

import (
	"os"
	"syscall"
)

// sameDevice tells whether two device nodes stand for the same block device.
func sameDevice(a, b os.FileInfo) bool {
	if a.Mode().Type() != os.ModeDevice || b.Mode().Type() != os.ModeDevice {
		return false
	}
	sa, oka := a.Sys().(*syscall.Stat_t)
	sb, okb := b.Sys().(*syscall.Stat_t)
	return oka && okb && sa.Rdev == sb.Rdev
}
