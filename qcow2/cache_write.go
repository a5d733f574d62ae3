package qcow2

import (
	"context"
	"slices"

	"byre/qcow2/layout"
)

// maxWriteRun bounds one write of adjacent dirty slices.
const maxWriteRun = 1 << 20

// create returns a slot for a slice of a new metadata cluster: pinned, all
// zeros, locked exclusively, and not dirty. The caller fills it, calls
// markDirty, unlocks and releases. A slice that the cache still has for the
// offset (loaded by a reader that came too late) is dropped first.
func (c *cache) create(off layout.HostOffset) *slot {
	s := c.newSlot(off)
	clear(s.data)
	s.Lock()
	for !c.insert(s) {
		c.dropSlot(off)
	}
	s.loaded.Store(true)
	return s
}

// markDirty notes that s differs from the file. The caller holds s.Lock and a pin.
func (c *cache) markDirty(s *slot) {
	if s.dead || s.dirty.Swap(true) {
		return
	}
	c.dirtyLen.Add(1)
	sh := c.shard(s.off)
	sh.mu.Lock()
	sh.mu.dirty = append(sh.mu.dirty, s)
	sh.mu.Unlock()
}

// dirtyBytes is how much waits to be written.
func (c *cache) dirtyBytes() int64 { return c.dirtyLen.Load() * c.slotSize }

// drop forgets all slices in [off, off+n), clean or dirty; off and n are
// multiples of the slice size. When it returns, no write of them is in
// progress or will be, and holders see slot.dead. Call it for freed metadata
// clusters before they can be reused.
func (c *cache) drop(off layout.HostOffset, n int64) {
	for end := off + layout.HostOffset(n); off < end; off += layout.HostOffset(c.slotSize) {
		c.dropSlot(off)
	}
}

func (c *cache) dropSlot(off layout.HostOffset) {
	s := c.lookup(off)
	if s == nil {
		return
	}
	c.unlink(s)
	s.Lock() // waits for a write-back or a loader
	s.dead = true
	if s.dirty.Swap(false) {
		c.dirtyLen.Add(-1)
	}
	s.Unlock()
	s.release()
}

// flush writes every slice that was dirty when it was called. It does not
// make them durable. On an error, slices that were not written stay dirty.
func (c *cache) flush(ctx context.Context) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	dirty := c.takeDirty()
	err := c.writeAll(ctx, dirty)
	c.putBack(dirty)
	return err
}

// writeBack writes dirty slices until at most keep bytes of them are left, the
// ones lowest in the file first.
func (c *cache) writeBack(ctx context.Context, keep int64) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	if c.dirtyBytes() <= keep {
		return nil
	}
	dirty := c.takeDirty()
	n := max(0, len(dirty)-int(keep/c.slotSize))
	err := c.writeAll(ctx, dirty[:n])
	c.putBack(dirty)
	return err
}

// takeDirty collects the dirty slots, each with a pin, sorted by offset. A
// slot that is cleaned and dirtied again meanwhile may be listed twice: that
// does no harm.
func (c *cache) takeDirty() []*slot {
	var all []*slot
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		for _, s := range sh.mu.dirty {
			if s.dirty.Load() && sh.mu.slots[s.off] == s {
				s.refs.Add(1)
				all = append(all, s)
			}
		}
		sh.mu.dirty = sh.mu.dirty[:0]
		sh.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *slot) int {
		switch {
		case a.off < b.off:
			return -1
		case a.off > b.off:
			return 1
		}
		return 0
	})
	return slices.Compact(all)
}

// putBack ends the pins of takeDirty and lists again what is still dirty.
func (c *cache) putBack(all []*slot) {
	for _, s := range all {
		if s.dirty.Load() {
			sh := c.shard(s.off)
			sh.mu.Lock()
			sh.mu.dirty = append(sh.mu.dirty, s)
			sh.mu.Unlock()
		}
		s.release()
	}
}

// writeAll writes sorted slots, runs of adjacent ones in one request.
func (c *cache) writeAll(ctx context.Context, all []*slot) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].off == all[n-1].off+layout.HostOffset(c.slotSize) && int64(n+1)*c.slotSize <= maxWriteRun {
			n++
		}
		if err := c.writeRun(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// writeRun writes adjacent slots. Their shared locks are held during the
// write, so edits wait and the bytes on disk are those of one moment; lookups
// go on.
func (c *cache) writeRun(ctx context.Context, run []*slot) error {
	iov := make([][]byte, 0, len(run))
	for _, s := range run {
		s.RLock()
		defer s.RUnlock()
	}
	// Slots that were cleaned or dropped since they were listed split the run.
	for from := 0; from < len(run); {
		iov = iov[:0]
		to := from
		for ; to < len(run) && run[to].dirty.Load() && !run[to].dead; to++ {
			iov = append(iov, run[to].data)
		}
		if to == from {
			from++
			continue
		}
		off, n := run[from].off, int64(len(iov))*c.slotSize
		if c.beforeWrite != nil {
			if err := c.beforeWrite(ctx, off, n); err != nil {
				return err
			}
		}
		if err := c.file.Writev(ctx, iov, int64(off), 0); err != nil {
			return err
		}
		for _, s := range run[from:to] {
			if s.dirty.Swap(false) {
				c.dirtyLen.Add(-1)
			}
		}
		from = to
	}
	return nil
}

// copyOut copies a dirty slot, pinned by the caller, and counts it as clean: the copy is about to be written, and the
// pin keeps the slot in memory until it is. nil if it is clean or dropped.
func (c *cache) copyOut(s *slot) *copyBuffer {
	s.RLock()
	defer s.RUnlock()
	if s.dead || !s.dirty.Swap(false) {
		return nil
	}
	c.dirtyLen.Add(-1)
	b := copyPool.Get().(*copyBuffer)
	b.b = append(b.b[:0], s.data...)
	return b
}
