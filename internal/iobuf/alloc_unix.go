//go:build unix

package iobuf

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

func sysAlloc(n int) []byte { return mapped(n, n) }

// hugeAlloc gives n bytes, a multiple of the slab size, that start at a multiple of it, in huge pages if can be.
func hugeAlloc(n int) []byte {
	const unit = 1 << slabShift
	p := mapped(n, n+unit)
	adviseHuge(p)
	return p
}

// mapped maps room bytes and keeps n of them; if there is more, then those from a multiple of the slab size on.
func mapped(n, room int) []byte {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(room), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		// As for any other allocation that the system refuses: there is no way on.
		panic(fmt.Sprintf("out of memory: map %d bytes for an I/O buffer: %v", room, err))
	}
	if room > n {
		skip := -uintptr(p) & (1<<slabShift - 1)
		unmap(p, skip)
		p = unsafe.Add(p, skip)
		unmap(unsafe.Add(p, n), uintptr(room-n)-skip)
	}
	return unsafe.Slice((*byte)(p), n)
}

func unmap(p unsafe.Pointer, n uintptr) {
	if n == 0 {
		return
	}
	if err := unix.MunmapPtr(p, n); err != nil {
		panic(fmt.Sprintf("unmap %d bytes of an I/O buffer: %v", n, err))
	}
}

func sysFree(b []byte) { unmap(unsafe.Pointer(unsafe.SliceData(b)), uintptr(cap(b))) }
