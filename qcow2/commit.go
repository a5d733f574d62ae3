package qcow2

import (
	"context"
	"sync"

	"byre/block"
	"byre/qcow2/layout"
)

// sliceCopy is what of a slice a commit writes.
type sliceCopy struct {
	s   *slot
	buf *copyBuffer
}

type copyBuffer struct{ b []byte }

var copyPool = sync.Pool{New: func() any { return new(copyBuffer) }}

// commitBatch is what one commit makes durable.
type commitBatch struct {
	unlinked []freed
	staged   []int64 // L1 entries
	dirty    []*slot // all with a pin
	early    []sliceCopy
	late     []sliceCopy
}

// commit writes metadata out in the order of qcow2-format §8 (see ordering). A final one makes everything that
// completed before the call durable and releases what was freed; the other kind only makes memory clean.
//
//	first half:  refcount pieces, slices of L2 tables that no L1 entry in the file names yet; flush if need be
//	second half: the other slices, L1 entries; flush
func (w *writer) commit(ctx context.Context, final bool) error {
	w.committing.Lock()
	defer w.committing.Unlock()
	b := w.collect()
	if err := w.firstHalf(ctx, b); err != nil {
		return w.undo(b, err)
	}
	if err := w.secondHalf(ctx, b, final); err != nil {
		return w.undo(b, err)
	}
	w.finish(b)
	if !final {
		w.relink(b.unlinked)
		return nil
	}
	w.quar.retire(b.unlinked)
	// What cannot be released now is released later, or leaked.
	_ = w.reap(ctx)
	return nil
}

// collect takes, in this order, the list of unlinked clusters, that of staged L1 entries, and copies of the dirty
// slices. So the copies lack all references that the first list says are gone, and hold every entry of the tables that
// the second names. What they point to was counted, and noted if it must be durable, before it was linked.
func (w *writer) collect() *commitBatch {
	b := new(commitBatch)
	w.mu.Lock()
	b.unlinked, w.mu.unlinked, w.mu.count = w.mu.unlinked, nil, 0
	w.mu.Unlock()
	t := w.im.view.l1.Load()
	b.staged = t.stagedEntries()
	young := make(map[layout.HostOffset]bool, len(b.staged))
	for _, i := range b.staged {
		v, _ := t.peek(i)
		young[layout.L1Entry(v).Offset()] = true
	}
	cs := w.im.geo.ClusterSize()
	b.dirty = w.im.l2.takeDirty()
	for _, s := range b.dirty {
		c := sliceCopy{s, w.im.l2.copyOut(s)}
		if c.buf == nil {
			continue
		}
		if young[s.off&^layout.HostOffset(cs-1)] {
			b.early = append(b.early, c)
		} else {
			b.late = append(b.late, c)
		}
	}
	return b
}

func (w *writer) firstHalf(ctx context.Context, b *commitBatch) error {
	if !w.lazy.Load() {
		if _, err := w.space.writeRefs(ctx, false); err != nil {
			return err
		}
	} else if err := w.space.relieve(ctx, w.im.budget.Limit()/8); err != nil {
		return err
	}
	if len(b.early) > 0 {
		if err := w.writeCopies(ctx, b.early); err != nil {
			return err
		}
		w.order.image.note()
	}
	if len(b.late) > 0 || len(b.staged) > 0 {
		return w.order.before(ctx)
	}
	return nil
}

func (w *writer) secondHalf(ctx context.Context, b *commitBatch, final bool) error {
	if err := w.writeCopies(ctx, b.late); err != nil {
		return err
	}
	if len(b.staged) > 0 {
		err := w.im.view.l1.Load().writeStaged(ctx, b.staged, func(off layout.HostOffset, n int64) error {
			return w.checkOverlap(ctx, off, n, metaActiveL1)
		})
		if err != nil {
			return err
		}
	}
	if len(b.late) > 0 || len(b.staged) > 0 {
		w.order.image.note()
	}
	if !final {
		return nil
	}
	return w.order.all(ctx)
}

// writeCopies writes copies of slices, neighbours in one request.
func (w *writer) writeCopies(ctx context.Context, list []sliceCopy) error {
	size := w.im.l2.slotSize
	var iov [][]byte
	for len(list) > 0 {
		n := 1
		iov = append(iov[:0], list[0].buf.b)
		for n < len(list) && list[n].s.off == list[n-1].s.off+layout.HostOffset(size) && int64(n+1)*size <= maxWriteRun {
			iov = append(iov, list[n].buf.b)
			n++
		}
		off := list[0].s.off
		if err := w.im.file.Event(ctx, block.EventL2Update); err != nil {
			return err
		}
		if err := w.checkOverlap(ctx, off, int64(n)*size, metaActiveL2); err != nil {
			return err
		}
		if err := w.im.file.Writev(ctx, iov, int64(off), 0); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// finish lets go of the copies and the pins.
func (w *writer) finish(b *commitBatch) {
	for _, l := range [][]sliceCopy{b.early, b.late} {
		for _, c := range l {
			copyPool.Put(c.buf)
		}
	}
	w.im.l2.putBack(b.dirty)
}

// undo makes dirty again what a failed commit had in hand, all of it: after an error nobody knows what the file has.
func (w *writer) undo(b *commitBatch, err error) error {
	for _, l := range [][]sliceCopy{b.early, b.late} {
		for _, c := range l {
			c.s.Lock()
			w.im.l2.markDirty(c.s)
			c.s.Unlock()
		}
	}
	t := w.im.view.l1.Load()
	for _, i := range b.staged {
		t.restage(i)
	}
	w.finish(b)
	w.relink(b.unlinked)
	w.space.rewrite()
	return err
}

// relink puts clusters back to those whose removal is not durable.
func (w *writer) relink(list []freed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.unlinked = append(list, w.mu.unlinked...)
	for _, f := range list {
		w.mu.count += f.n
	}
}

// reap releases what has left the quarantine.
func (w *writer) reap(ctx context.Context) error {
	return w.space.release(ctx, w.quar.take(), w.punches)
}

// Flush implements block.Driver.
func (im *Image) Flush(ctx context.Context) error {
	w := im.w
	if w == nil {
		return nil
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if w.broke.Load() != nil {
		return w.prepare(ctx)
	}
	return w.commit(ctx, true)
}
