// Package iobuf lends aligned I/O buffers: memory that starts at a page boundary, lies outside the Go heap where
// the system allows (so it can be given to the kernel for as long as it likes and costs the collector nothing),
// and is used again instead of being allocated per request.
//
// Buffers come in powers of two from 4 KiB to 16 MiB. Small ones are carved from slabs that are kept for good, so
// their number is bounded by the most that were ever lent at once; of the large ones at most 32 MiB are kept idle.
// All functions are safe for any number of goroutines.
package iobuf

import (
	"math/bits"
	"sync"
	"unsafe"
)

const (
	// Align is the alignment of every buffer, in bytes. No host demands more of direct I/O.
	Align = 4096
	// MaxPooled is the longest buffer that is pooled; longer ones are made and dropped by each use.
	MaxPooled = 16 << 20

	minShift  = 12
	maxShift  = 24
	slabShift = 18 // buffers below this size are carved from slabs of it
	keepIdle  = 32 << 20
)

type class struct {
	mu struct {
		sync.Mutex
		free [][]byte
	}
}

var (
	classes [maxShift - minShift + 1]class
	idle    struct {
		sync.Mutex
		bytes int // idle memory in buffers of at least slab size
	}
)

// Get lends a buffer of length n, whose contents are undefined, and whose start is aligned to Align. It must be
// given to Put exactly once, with nothing referring to it any more. n must be > 0.
func Get(n int) []byte {
	shift := max(bits.Len(uint(n-1)), minShift)
	if shift > maxShift {
		return sysAlloc((n + Align - 1) &^ (Align - 1))[:n]
	}
	c := &classes[shift-minShift]
	c.mu.Lock()
	if k := len(c.mu.free); k > 0 {
		b := c.mu.free[k-1]
		c.mu.free = c.mu.free[:k-1]
		c.mu.Unlock()
		if shift >= slabShift {
			idle.Lock()
			idle.bytes -= cap(b)
			idle.Unlock()
		}
		return b[:n]
	}
	if shift >= slabShift {
		c.mu.Unlock()
		return sysAlloc(1 << shift)[:n]
	}
	defer c.mu.Unlock()
	slab := sysAlloc(1 << slabShift)
	size := 1 << shift
	for off := size; off < len(slab); off += size {
		c.mu.free = append(c.mu.free, slab[off:off+size:off+size])
	}
	return slab[:n:size]
}

// Put takes back what Get lent. The slice must start where Get's did; its length does not matter.
func Put(b []byte) {
	size := cap(b)
	if size == 0 {
		return
	}
	b = b[:size]
	if size > MaxPooled {
		sysFree(b)
		return
	}
	shift := bits.Len(uint(size - 1))
	if shift >= slabShift {
		idle.Lock()
		if idle.bytes+size > keepIdle {
			idle.Unlock()
			sysFree(b)
			return
		}
		idle.bytes += size
		idle.Unlock()
	}
	c := &classes[shift-minShift]
	c.mu.Lock()
	c.mu.free = append(c.mu.free, b)
	c.mu.Unlock()
}

// Aligned tells whether b starts at a multiple of align (a power of two). An empty slice is aligned.
func Aligned(b []byte, align int) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(align-1) == 0
}
