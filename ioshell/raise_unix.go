//go:build unix

package ioshell

import (
	"os/signal"
	"syscall"
	"time"
)

// raise sends a signal to this process with its default action, and lets it take effect.
func raise(sig syscall.Signal) {
	if sig == 0 {
		return
	}
	signal.Reset(sig)
	if syscall.Kill(syscall.Getpid(), sig) == nil {
		time.Sleep(100 * time.Millisecond)
	}
}
