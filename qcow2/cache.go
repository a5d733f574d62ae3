package qcow2

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// cache is a write-back cache of equal slices of the image file, keyed by
// their host offset: L2 slices, or (pieces of) refcount blocks.
//
// # Reading
//
//	s, err := c.get(ctx, off)   // pinned; loaded if it was not there
//	s.RLock()
//	if s.dead { … }             // dropped meanwhile: start again from the table that named it
//	… decode s.data, pin what it names …
//	s.RUnlock()
//	s.release()
//
// A hit takes one shard mutex for a map lookup, nothing else. get never
// writes: when memory is short it takes the place of a clean slice, and if
// there is none it exceeds the budget.
//
// # Writing
//
//	s.Lock(); edit s.data; c.markDirty(s); s.Unlock()
//
// The exclusive lock is for memory edits only: its holder does no I/O and
// takes no other slot's lock (a write-back holds shared locks on many slots
// at once and would deadlock otherwise). Edits must be ordered among each
// other by the caller (the allocation lock).
//
// Dirty slices are written by flush and writeBack, never by anybody else, so
// that one place decides about order: before any bytes go to the file, the
// hook beforeWrite is called (see there). Whoever dirties slices bounds them:
// when dirtyBytes passes a share of the budget, call writeBack.
//
// A new metadata cluster enters by create, for each of its slices; a freed one
// leaves by drop, before anybody can reuse it.
type cache struct {
	name     string // what errors call an entry, e.g. "L2 table"
	op       string // "read L2 table"
	file     *block.Device
	slotSize int64
	load     block.Event // fired before a slice is read
	budget   *Budget

	// beforeWrite is called with slices locked against edits, before their
	// bytes go to the file, once for each run of adjacent slices: [off, off+n)
	// is what will be written. It enforces what must be durable first and
	// checks that the range is not other metadata's; an error keeps the slices
	// dirty and ends the write-back. It may do I/O and use other caches, but
	// must not call into this one. Set before the first edit; nil while the
	// image is read-only.
	beforeWrite func(ctx context.Context, off layout.HostOffset, n int64) error

	shards   [cacheShards]cacheShard
	hand     atomic.Uint32
	bytes    atomic.Int64
	dirtyLen atomic.Int64 // dirty slices
	// loadedBytes is how much was read since the image was opened.
	loadedBytes atomic.Int64
	flushing    sync.Mutex // held by flush and writeBack: the second waits for what the first has in hand
	free        sync.Pool  // *slot with a buffer, for reuse
}

const cacheShards = 16

// cacheShard holds the slices whose offset hashes to it.
type cacheShard struct {
	mu struct {
		sync.Mutex
		slots map[layout.HostOffset]*slot
		ring  []*slot // all slots, for the clock
		hand  int
		dirty []*slot // slots that became dirty since they were last collected
	}
	_ [64]byte // shards on different cache lines
}

// slot is one cached slice. The RWMutex guards data, err and dead.
type slot struct {
	sync.RWMutex
	data []byte // slotSize bytes as in the file
	err  error  // loading failed: data is not valid, and the slot is dead
	dead bool   // no longer in the cache: data says nothing about the file

	off    layout.HostOffset
	refs   atomic.Int32 // pins; raised under the shard's mutex only
	loaded atomic.Bool  // data and err are set
	used   atomic.Bool  // for the clock
	dirty  atomic.Bool  // set under Lock, cleared under RLock by a write-back
	ringAt int          // index in the shard's ring
}

// release ends a pin.
func (s *slot) release() { s.refs.Add(-1) }

func newCache(name string, file *block.Device, slotSize int64, load block.Event, budget *Budget) *cache {
	c := &cache{name: name, op: "read " + name, file: file, slotSize: slotSize, load: load, budget: budget}
	for i := range c.shards {
		c.shards[i].mu.slots = map[layout.HostOffset]*slot{}
	}
	budget.add(c)
	return c
}

func (c *cache) shard(off layout.HostOffset) *cacheShard {
	n := uint64(off) / uint64(c.slotSize)
	return &c.shards[(n^n>>4^n>>12)%cacheShards]
}

// get returns the slice at off, pinned: the caller must release it. off is a
// multiple of the slice size. The slice must lie within the file.
func (c *cache) get(ctx context.Context, off layout.HostOffset) (*slot, error) {
	for {
		s := c.lookup(off)
		if s == nil {
			var err error
			if s, err = c.fill(ctx, off); s != nil || err != nil {
				return s, err
			}
			continue // somebody else was faster
		}
		if s.loaded.Load() {
			return s, nil
		}
		s.RLock() // waits for the loader
		err := s.err
		s.RUnlock()
		if err == nil {
			return s, nil
		}
		s.release()
		// The loader's request may have been cancelled; ours was not.
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// lookup returns the slot at off, pinned, or nil.
func (c *cache) lookup(off layout.HostOffset) *slot {
	sh := c.shard(off)
	sh.mu.Lock()
	s := sh.mu.slots[off]
	if s != nil {
		s.refs.Add(1)
	}
	sh.mu.Unlock()
	if s != nil && !s.used.Load() {
		s.used.Store(true)
	}
	return s
}

// fill loads the slice at off into a new slot. It returns nil, nil if the slot
// turned up in the meantime.
func (c *cache) fill(ctx context.Context, off layout.HostOffset) (*slot, error) {
	s := c.newSlot(off)
	s.Lock()
	if !c.insert(s) {
		s.Unlock()
		c.recycle(s)
		return nil, nil
	}
	err := c.read(ctx, s)
	if err != nil {
		s.err, s.dead = err, true
		c.unlink(s)
	}
	s.loaded.Store(err == nil)
	s.Unlock()
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (c *cache) read(ctx context.Context, s *slot) error {
	if end, ok := layout.RangeEnd(s.off, c.slotSize); !ok || int64(end) > c.file.Size() {
		return block.Errorf(block.KindCorrupt, c.op, c.file.Path(), int64(s.off), "lies beyond the end of the file")
	}
	if err := c.file.Event(ctx, c.load); err != nil {
		return err
	}
	c.loadedBytes.Add(c.slotSize)
	return c.file.Read(ctx, s.data, int64(s.off))
}

// newSlot returns a slot with one pin that is in no shard yet; its data is
// arbitrary. The memory is counted.
func (c *cache) newSlot(off layout.HostOffset) *slot {
	c.budget.reserve(c.slotSize)
	c.bytes.Add(c.slotSize)
	s, _ := c.free.Get().(*slot)
	if s == nil {
		s = &slot{data: make([]byte, c.slotSize)}
	}
	s.off = off
	s.refs.Store(1)
	s.used.Store(true)
	return s
}

// recycle keeps the memory of a slot that nobody knows for the next one.
func (c *cache) recycle(s *slot) {
	c.discount()
	s.err, s.dead = nil, false
	s.loaded.Store(false)
	s.dirty.Store(false)
	c.free.Put(s)
}

func (c *cache) discount() {
	c.bytes.Add(-c.slotSize)
	c.budget.release(c.slotSize)
}

// insert puts s into its shard; it reports false if there is one for the offset.
func (c *cache) insert(s *slot) bool {
	sh := c.shard(s.off)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, ok := sh.mu.slots[s.off]; ok {
		return false
	}
	sh.mu.slots[s.off] = s
	s.ringAt = len(sh.mu.ring)
	sh.mu.ring = append(sh.mu.ring, s)
	return true
}

// unlinkLocked takes s out of its shard if it is still in.
func (sh *cacheShard) unlinkLocked(s *slot) bool {
	if sh.mu.slots[s.off] != s {
		return false
	}
	delete(sh.mu.slots, s.off)
	last := sh.mu.ring[len(sh.mu.ring)-1]
	sh.mu.ring[s.ringAt], last.ringAt = last, s.ringAt
	sh.mu.ring[len(sh.mu.ring)-1] = nil
	sh.mu.ring = sh.mu.ring[:len(sh.mu.ring)-1]
	return true
}

// unlink takes a slot that stays with its holders out of the cache.
func (c *cache) unlink(s *slot) {
	sh := c.shard(s.off)
	sh.mu.Lock()
	in := sh.unlinkLocked(s)
	sh.mu.Unlock()
	if in {
		c.discount()
	}
}

// clockSteps bounds how many slots one call of evict looks at.
const clockSteps = 32

// evict implements evictor by a clock over each shard in turn.
func (c *cache) evict() int64 {
	for range cacheShards {
		sh := &c.shards[c.hand.Add(1)%cacheShards]
		sh.mu.Lock()
		s := sh.victimLocked()
		if s != nil {
			sh.unlinkLocked(s)
		}
		sh.mu.Unlock()
		if s != nil {
			c.bytes.Add(-c.slotSize) // the budget counts for itself
			s.err, s.dead = nil, false
			s.loaded.Store(false)
			c.free.Put(s)
			return c.slotSize
		}
	}
	return 0
}

func (c *cache) held() int64 { return c.bytes.Load() }

// victimLocked finds a clean slot without pins that was not used since the
// clock last passed. Pins are raised under the shard's mutex only, so nobody
// can come to hold what it returns.
func (sh *cacheShard) victimLocked() *slot {
	ring := sh.mu.ring
	for range min(clockSteps, 2*len(ring)) {
		if sh.mu.hand++; sh.mu.hand >= len(ring) {
			sh.mu.hand = 0
		}
		s := ring[sh.mu.hand]
		if s.refs.Load() != 0 || s.dirty.Load() {
			continue
		}
		if s.used.Load() {
			s.used.Store(false)
			continue
		}
		return s
	}
	return nil
}

// trim gives up every clean slice that was not used since the last trim.
func (c *cache) trim() {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		for at := len(sh.mu.ring) - 1; at >= 0; at-- {
			s := sh.mu.ring[at]
			switch {
			case s.refs.Load() != 0 || s.dirty.Load():
			case s.used.Load():
				s.used.Store(false)
			default:
				sh.unlinkLocked(s)
				c.discount()
			}
		}
		sh.mu.Unlock()
	}
}

// close forgets everything, dirty slices too, and leaves the budget.
func (c *cache) close() {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		n := int64(len(sh.mu.ring))
		clear(sh.mu.slots)
		sh.mu.ring, sh.mu.dirty = nil, nil
		sh.mu.Unlock()
		c.bytes.Add(-n * c.slotSize)
		c.budget.release(n * c.slotSize)
	}
	c.dirtyLen.Store(0)
	c.budget.remove(c)
}
