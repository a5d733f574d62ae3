package main

import (
	"os"
	"syscall"
)

// peakMemory is the largest resident set of an ended process, in bytes.
func peakMemory(s *os.ProcessState) int64 {
	if ru, ok := s.SysUsage().(*syscall.Rusage); ok {
		return ru.Maxrss * 1024
	}
	return 0
}

// settle waits until everything that was written is on its medium.
func settle() { syscall.Sync() }
