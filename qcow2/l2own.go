package qcow2

import (
	"context"
	"math/bits"

	"byre/block"
	"byre/qcow2/layout"
)

func lowest(m uint32) int  { return bits.TrailingZeros32(m) }
func highest(m uint32) int { return 31 - bits.LeadingZeros32(m) }

// ownTable makes the L2 table of L1 entry l1 this image's alone: a new one, or a copy of the shared one. The L1 entry
// is staged: it goes to the file after the table is durable, with the entries that it has by then (qcow2-format §9.8).
// Returns the L1 entry as it is now.
func (w *writer) ownTable(ctx context.Context, l1 int64, guest int64) (word uint64, err error) {
	w.tables.Lock()
	defer w.tables.Unlock()
	t := w.im.view.l1.Load()
	if word, err = t.get(ctx, l1); err != nil {
		return 0, err
	}
	old := layout.L1Entry(word)
	if old.Copied() && old.Offset() != 0 {
		return word, nil // somebody else was faster
	}
	if old.Offset() != 0 {
		if err := w.im.checkL2(old.Offset()); err != nil {
			return 0, err
		}
	}
	a, err := w.allocMeta(ctx, 1)
	if err != nil {
		return 0, err
	}
	off := w.im.geo.ClusterOffset(a.at)
	if err := w.fillTable(ctx, off, old.Offset(), a.fresh, guest); err != nil {
		w.space.giveBack(a.clusters)
		return 0, err
	}
	now := layout.MakeL1Entry(off, true)
	w.over.addL2(off)
	w.mu.Lock()
	err = t.stage(ctx, l1, uint64(now))
	if err == nil && old.Offset() != 0 {
		w.unlinkLocked(clusters{w.im.geo.Cluster(old.Offset()), 1}, discardOther)
	}
	w.mu.Unlock()
	if err != nil {
		w.over.removeL2(off)
		w.space.giveBack(a.clusters)
		return 0, err
	}
	return uint64(now), nil
}

// fillTable writes the contents of a new table: those of old, or zeros, which need no write in fresh clusters.
func (w *writer) fillTable(ctx context.Context, off, old layout.HostOffset, fresh bool, guest int64) error {
	im := w.im
	cs := im.geo.ClusterSize()
	im.l2.drop(off, cs)
	switch {
	case old != 0:
		return w.copyTable(ctx, off, old)
	case !fresh:
		if err := im.file.Event(ctx, block.EventL2AllocWrite); err != nil {
			return err
		}
		if err := w.checkOverlap(ctx, off, cs, metaNone); err != nil {
			return err
		}
		if err := im.file.Zero(ctx, int64(off), cs, 0); err != nil {
			return err
		}
		w.order.image.note()
	}
	// The slice that is wanted now need not be read back.
	in := int64(im.geo.L2Index(layout.GuestOffset(guest))) * int64(im.geo.L2EntrySize()) &^ (im.l2.slotSize - 1)
	s := im.l2.create(off + layout.HostOffset(in))
	s.Unlock()
	s.release()
	return nil
}

// copyTable copies the table at old. Slices of it that wait to be written are newer than the file.
func (w *writer) copyTable(ctx context.Context, off, old layout.HostOffset) error {
	im := w.im
	buf := make([]byte, im.geo.ClusterSize())
	if err := im.file.Event(ctx, block.EventL2AllocCOWRead); err != nil {
		return err
	}
	if err := im.file.Read(ctx, buf, int64(old)); err != nil {
		return err
	}
	for at := int64(0); at < int64(len(buf)); at += im.l2.slotSize {
		if s := im.l2.lookup(old + layout.HostOffset(at)); s != nil {
			s.RLock()
			if s.err == nil && !s.dead {
				copy(buf[at:], s.data)
			}
			s.RUnlock()
			s.release()
		}
	}
	if err := im.file.Event(ctx, block.EventL2AllocWrite); err != nil {
		return err
	}
	if err := w.checkOverlap(ctx, off, int64(len(buf)), metaNone); err != nil {
		return err
	}
	if err := im.file.Write(ctx, buf, int64(off), 0); err != nil {
		return err
	}
	w.order.image.note()
	return nil
}

// allocMeta allocates clusters for metadata, making space if there is none.
func (w *writer) allocMeta(ctx context.Context, n int64) (allocated, error) {
	if err := w.im.file.Event(ctx, block.EventClusterAlloc); err != nil {
		return allocated{}, err
	}
	a, err := w.space.allocMeta(ctx, n)
	if block.KindOf(err) == block.KindNoSpace && w.makeSpace(ctx) {
		a, err = w.space.allocMeta(ctx, n)
	}
	return a, w.corruption(ctx, err)
}

// makeSpace gets back clusters that were freed but are not known to be reusable yet. It reports whether a second try
// makes sense.
func (w *writer) makeSpace(ctx context.Context) bool {
	if err := w.commit(ctx, true); err != nil {
		return false
	}
	if err := w.quar.wait(ctx); err != nil {
		return false
	}
	return w.reap(ctx) == nil
}
