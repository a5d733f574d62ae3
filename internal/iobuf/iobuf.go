// Package iobuf lends aligned I/O buffers: memory that starts at a page boundary, lies outside the Go heap where
// the system allows (so it can be given to the kernel for as long as it likes and costs the collector nothing),
// and is used again instead of being allocated per request. It is backed by huge pages where the system has them:
// the scatter lists of direct I/O become short, which doubles the throughput of 64 KiB requests on a paravirtual disk.
//
// Buffers come in powers of two from 4 KiB to 16 MiB. Those up to 1 MiB are carved from slabs that are kept for good,
// so their number is bounded by the most that were ever lent at once; of the larger ones at most 32 MiB are kept idle.
// All functions are safe for any number of goroutines.
package iobuf

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// Align is the alignment of every buffer, in bytes. No host demands more of direct I/O.
	Align = 4096
	// MaxPooled is the longest buffer that is pooled; longer ones are made and dropped by each use.
	MaxPooled = 16 << 20

	minShift   = 12
	chunkShift = 18 // smaller buffers are carved from chunks of this size
	slabShift  = 21 // chunks, and buffers up to half of it, are carved from slabs of this size: one huge page
	maxShift   = 24
	keepIdle   = 32 << 20
)

type class struct {
	mu struct {
		sync.Mutex
		free [][]byte
	}
}

var (
	classes [maxShift - minShift + 1]class

	idle struct {
		sync.Mutex
		bytes int // idle memory in buffers of at least slab size
	}

	slab struct {
		sync.Mutex
		rest []byte // of the current slab
	}

	firstSmall atomic.Bool // set when the first chunk for small buffers has been made
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
	size := 1 << shift
	if shift >= chunkShift {
		c.mu.Unlock()
		if shift >= slabShift {
			return hugeAlloc(size)[:n]
		}
		return carve(size)[:n]
	}
	defer c.mu.Unlock()
	chunk := c.chunk(size)
	for off := len(chunk) - size; off > 0; off -= size { // so that they are lent in the order of their addresses
		c.mu.free = append(c.mu.free, chunk[off:off+size:off+size])
	}
	return chunk[:n:size]
}

// chunk gives the memory to carve buffers of size from.
func (c *class) chunk(size int) []byte {
	if size <= 16<<10 && !firstSmall.Swap(true) {
		// A program that needs little should not pay for a huge page to be cleared.
		return sysAlloc(64 << 10)
	}
	return carve(1 << chunkShift)
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
	give(shift, b)
}

func give(shift int, b []byte) {
	c := &classes[shift-minShift]
	c.mu.Lock()
	c.mu.free = append(c.mu.free, b)
	c.mu.Unlock()
}

// carve cuts a piece of a power of two bytes, chunk size to half a slab, off the current slab.
func carve(size int) []byte {
	slab.Lock()
	defer slab.Unlock()
	if len(slab.rest) < size {
		// Nothing is wasted: what is too short is lent by the chunk.
		for len(slab.rest) > 0 {
			give(chunkShift, slab.rest[:1<<chunkShift:1<<chunkShift])
			slab.rest = slab.rest[1<<chunkShift:]
		}
		slab.rest = hugeAlloc(1 << slabShift)
	}
	b := slab.rest[:size:size]
	slab.rest = slab.rest[size:]
	return b
}

// Aligned tells whether b starts at a multiple of align (a power of two). An empty slice is aligned.
func Aligned(b []byte, align int) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(align-1) == 0
}
