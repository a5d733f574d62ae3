package qcow2

import (
	"context"

	"byre/block"
)

// finishWriting makes everything durable, gives back claims and the surplus of the file, and clears the dirty bit. Only
// Close calls it; the gate is held exclusively.
func (w *writer) finishWriting(ctx context.Context) error {
	if !w.ready.Load() {
		return nil // nothing was changed
	}
	if w.broke.Load() != nil {
		return w.prepare(ctx)
	}
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	if err := w.quar.wait(ctx); err != nil {
		return err
	}
	if err := w.reap(ctx); err != nil {
		return err
	}
	if err := w.space.unclaim(ctx); err != nil {
		return err
	}
	if _, err := w.space.writeRefs(ctx, true); err != nil {
		return err
	}
	if err := w.order.all(ctx); err != nil {
		return err
	}
	if err := w.clean(ctx); err != nil {
		return err
	}
	return w.cutSurplus(ctx)
}

// cutSurplus gives back the part of the file behind the last cluster that is in use, as far as it is known to hold
// nothing: it was added ahead of need, in this session or in one that ended in a crash (qcow2-format §9.4a).
func (w *writer) cutSurplus(ctx context.Context) error {
	im := w.im
	if !w.space.growable {
		return nil
	}
	g := im.geo
	used, err := w.space.usedEnd(ctx, 1)
	if err != nil {
		return err
	}
	size, end := im.file.Size(), int64(g.ClusterOffset(used))
	if size <= end {
		return nil
	}
	opened := w.space.openedSize
	if end < opened && !w.holds(ctx, end, opened) {
		end = opened
	}
	if size <= end {
		return nil
	}
	if f, ok := im.file.Driver().(block.FreshSpace); ok && end >= opened {
		if err := f.CutTo(ctx, end); err == nil || block.KindOf(err) != block.KindInvalid {
			return err
		}
		// Clusters there were in use and freed again.
	}
	return im.file.Resize(ctx, end, block.ResizeOptions{})
}

// holds reports whether [from, to) of the file is known to hold nothing but zeros.
func (w *writer) holds(ctx context.Context, from, to int64) bool {
	for from < to {
		e, err := w.im.file.Extent(ctx, from, to-from, block.WantZero)
		if err != nil || !e.IsZero() {
			return false
		}
		from += e.Length
	}
	return true
}

// Close implements block.Driver. It makes everything durable and closes the file, the data file and the backing file
// too; they are closed even if an error is returned.
func (im *Image) Close() error {
	if im.closed.Swap(true) {
		return block.Errorf(block.KindInvalid, "close", im.path, block.NoOffset, "closed twice")
	}
	var err error
	if w := im.w; w != nil {
		w.gate.Lock()
		err = w.finishWriting(context.Background())
		w.space.close()
		w.gate.Unlock()
	}
	im.drop()
	if e := im.closeDevices(); err == nil {
		err = e
	}
	return err
}
