//go:build unix

package iobuf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func sysAlloc(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		// As for any other allocation that the system refuses: there is no way on.
		panic(fmt.Sprintf("out of memory: map %d bytes for an I/O buffer: %v", n, err))
	}
	return b
}

func sysFree(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic(fmt.Sprintf("I/O buffer returned that was not lent: %v", err))
	}
}
