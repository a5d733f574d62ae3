package file

import (
	"context"
	"sync/atomic"

	"byre/block"
)

// changes counts what has happened to the file, so that a flush with nothing new costs nothing.
type changes struct {
	completed atomic.Uint64 // writes, zeroes, resizes that have ended
	synced    uint64        // value of completed that the last good flush covered; owned by the running round
	lost      error         // first failure of a buffered flush; owned by the running round
	fua       atomic.Int32  // durable writes under way
}

// issue notes that [off, off+n) is about to be changed, before the kernel hears of it.
func (f *File) issue(off, n int64) {
	raise(&f.fresh, off+n)
}

// written notes that a change of [off, off+n) has ended. A failed one may have changed anything in there.
func (f *File) written(off, n int64, err error) {
	f.changes.completed.Add(1)
	if err == nil && !f.dev {
		raise(&f.size, off+n)
	}
}

func raise(a *atomic.Int64, to int64) {
	for {
		old := a.Load()
		if to <= old || a.CompareAndSwap(old, to) {
			return
		}
	}
}

// Flush implements block.Driver.
func (f *File) Flush(ctx context.Context) error {
	if f.opt.Cache.NoFlush() || f.readOnly.Load() {
		return nil
	}
	if err := f.started(ctx, "flush", block.NoOffset); err != nil {
		return err
	}
	return f.fail("flush", block.NoOffset, f.flusher.flush())
}

// syncOnce is one round of the flusher.
func (f *File) syncOnce() error {
	c := &f.changes
	if c.lost != nil {
		return c.lost
	}
	covers := c.completed.Load()
	if covers == c.synced {
		return nil
	}
	f.counts.flushes.Add(1)
	if err := f.eng.sync(); err != nil {
		if !f.opt.Cache.Direct() {
			// The kernel reports a failed write-back once and then forgets the data.
			c.lost = err
		}
		return err
	}
	c.synced = covers
	return nil
}

type fuaWay uint8

const (
	fuaNo fuaWay = iota
	fuaAlone
	fuaShared
)

// beginFUA chooses how a write becomes durable: by itself if it is alone, by a shared flush if others want the same.
func (f *File) beginFUA(flags block.Flags) fuaWay {
	if flags&block.FUA == 0 && !f.opt.Cache.Writethrough() || f.opt.Cache.NoFlush() {
		return fuaNo
	}
	if f.changes.fua.Add(1) > 1 || !f.can.dsync.Load() || f.flusher.crowded() {
		return fuaShared
	}
	return fuaAlone
}

// endFUA makes the write durable if it is not yet, and returns err or the failure of doing so.
func (f *File) endFUA(way fuaWay, durable bool, err error) error {
	if way == fuaNo {
		return err
	}
	if err == nil && !durable {
		err = f.fail("flush", block.NoOffset, f.flusher.flush())
	}
	f.changes.fua.Add(-1)
	return err
}
