//go:build !unix

package ioshell

import (
	"os"
	"syscall"
)

// raise ends the process: other systems have no signals that a process could send to itself.
func raise(sig syscall.Signal) {
	if sig != 0 {
		os.Exit(128 + int(sig))
	}
}
