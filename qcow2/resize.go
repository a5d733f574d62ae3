package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

const opResize = "resize"

// Resize implements block.Driver: it changes the virtual size, a multiple of 512 bytes, while other requests wait.
// Growth reads as zeros, whatever a backing file or old VM state has there; what a shrunken disk loses is gone. The
// result is durable (qcow2-format §10.5, §10.6).
func (im *Image) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	w := im.w
	if w == nil {
		return im.readOnly(opResize, block.NoOffset)
	}
	w.gate.Lock()
	defer w.gate.Unlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	return w.resize(ctx, size, o)
}

func (w *writer) resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	im := w.im
	refuse := func(k block.Kind, msg string) error {
		return &block.Error{Kind: k, Op: opResize, Path: im.path, Offset: block.NoOffset, Msg: msg}
	}
	h := im.Header()
	old := im.Size()
	switch {
	case size%layout.SectorSize != 0:
		return refuse(block.KindInvalid, "the new size is not a multiple of 512 bytes")
	case size > im.geo.MaxDiskSize():
		return refuse(block.KindOutOfBounds, "the new size needs a larger L1 table than the format allows")
	case size != old && h.NbSnapshots > 0 && im.geo.Version < 3:
		return refuse(block.KindUnsupported, "version 2 images that have snapshots cannot be resized")
	case size < old && o.Prealloc != block.PreallocOff:
		return refuse(block.KindInvalid, "preallocation is not possible when shrinking")
	}
	// Requests that ended before may still be writing metadata; start from what is durable.
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	switch {
	case size < old:
		return w.corruption(ctx, w.shrink(ctx, size, old))
	case size > old:
		return w.corruption(ctx, w.grow(ctx, size, old, o))
	}
	return nil
}

// setSize makes size the virtual size, durably.
func (w *writer) setSize(ctx context.Context, size int64) error {
	if err := w.pokeHeader(ctx, layout.PokeSize, func(h *layout.Header) { h.Size = uint64(size) }); err != nil {
		return err
	}
	if err := w.order.image.flush(ctx); err != nil {
		return err
	}
	w.im.view.size.Store(size)
	return nil
}

// grow makes the disk larger. The size comes last, so that a crash leaves the old disk.
func (w *writer) grow(ctx context.Context, size, old int64, o block.ResizeOptions) error {
	g := w.im.geo
	cs := g.ClusterSize()
	backed := int64(0) // end of what the backing file would show
	if b := w.im.backing.Load(); b != nil {
		backed = min(b.Size(), size)
	} else if err := w.im.needBacking(); err != nil {
		return err
	}
	if g.Version < 3 && backed > old {
		return block.Errorf(block.KindUnsupported, opResize, w.im.path, block.NoOffset,
			"the backing file reaches beyond the old end, and version 2 cannot hide it")
	}
	if err := w.clearBehind(ctx, old); err != nil {
		return err
	}
	if err := w.growL1(ctx, g.L1Needed(size)); err != nil {
		return err
	}
	// What lies behind the old end in its cluster may be anything; then what the backing file has there must be hidden.
	if edge := min((old+cs-1)&^(cs-1), size); old < edge {
		if err := w.zeroBeyond(ctx, old, edge); err != nil {
			return err
		}
	}
	if from := (old + cs - 1) &^ (cs - 1); from < backed {
		if err := w.apply(ctx, from, (backed+cs-1)&^(cs-1), w.hideEdit()); err != nil {
			return err
		}
	}
	if d := w.im.DataFile(); g.DataFile && d != nil && d.Geometry().Growable {
		mode := o
		if mode.Prealloc == block.PreallocMetadata {
			mode.Prealloc = block.PreallocOff
		}
		if err := d.Resize(ctx, size, mode); err != nil {
			return err
		}
	}
	h := w.im.Header()
	mode := o.Prealloc
	if h.HasAutoclear(layout.AutoclearRawData) && mode == block.PreallocOff {
		mode = block.PreallocMetadata
	}
	if mode != block.PreallocOff {
		if err := w.preallocate(ctx, old, size, mode, o.Progress); err != nil {
			return err
		}
	}
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	return w.setSize(ctx, size)
}

// hideEdit makes clusters zero that are not allocated here.
func (w *writer) hideEdit() *edit {
	e := w.zeroEdit(false)
	e.absent = func(int64, int64) bool { return true }
	e.refused = func(int64, int64) {}
	return e
}

// zeroBeyond makes [from, to), part of the cluster of the old end of the disk, read as zeros.
func (w *writer) zeroBeyond(ctx context.Context, from, to int64) error {
	zero, err := w.readsZero(ctx, from, to)
	if zero || err != nil {
		return err
	}
	for from < to {
		n := min(to-from, zeroBlock)
		if err := w.writev(ctx, [][]byte{zeroBytes[:n]}, from, n); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// clearBehind frees what the active state holds behind a disk of size bytes: old VM state, or what somebody left there
// who wrote the size first. A larger disk would show it as its contents (qcow2-format §4.2).
func (w *writer) clearBehind(ctx context.Context, size int64) error {
	g := w.im.geo
	cs := g.ClusterSize()
	if err := w.forget(ctx, (size+cs-1)&^(cs-1), w.im.view.l1.Load().n*g.L2Coverage()); err != nil {
		return err
	}
	return w.dropTables(ctx, g.L1Needed(size))
}

// forget makes entries 0, so that nothing or the backing file shows, and frees what they pointed to.
func (w *writer) forget(ctx context.Context, from, to int64) error {
	return w.apply(ctx, from, to, &edit{
		class: discardAlways,
		change: func(x l2Entry, _, _ int) (l2Entry, bool, bool) {
			return l2Entry{}, x.e.Compressed() || w.hasHost(x), true
		},
		absent:  func(int64, int64) bool { return false },
		refused: func(int64, int64) {},
	})
}

// dropTables removes L1 entries from first on, whose tables map nothing any more, and frees the tables.
func (w *writer) dropTables(ctx context.Context, first int64) error {
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	t := w.im.view.l1.Load()
	changed := false
	for i := first; i < t.n; i++ {
		v, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		off := layout.L1Entry(v).Offset()
		if off == 0 {
			continue
		}
		changed = true
		w.mu.Lock()
		err = t.stage(ctx, i, 0)
		if err == nil {
			w.unlinkLocked(clusters{w.im.geo.Cluster(off), 1}, discardOther)
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return w.commit(ctx, true)
}

// growL1 makes room for at least n L1 entries: a new table is written and the header switched over to it.
func (w *writer) growL1(ctx context.Context, n int64) error {
	t := w.im.view.l1.Load()
	if n <= t.n {
		return nil
	}
	if n > layout.MaxL1Entries {
		return block.Errorf(block.KindOutOfBounds, "grow L1 table", w.im.path, block.NoOffset, "%d entries are above the limit of %d", n, layout.MaxL1Entries)
	}
	if err := w.im.file.Event(ctx, block.EventL1GrowAllocTable); err != nil {
		return err
	}
	words := make([]uint64, n)
	for i := range t.n {
		v, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		words[i] = v
	}
	off, a, err := w.writeL1(ctx, words)
	if err != nil {
		return err
	}
	if err := w.im.file.Event(ctx, block.EventL1GrowActivateTable); err != nil {
		w.space.giveBack(a)
		return err
	}
	return w.switchL1(ctx, off, n, layout.PokeL1, func(h *layout.Header) {
		h.L1Size, h.L1TableOffset = uint32(n), off
	})
}

// writeL1 writes a new L1 table and makes it durable, with everything it is counted by.
func (w *writer) writeL1(ctx context.Context, words []uint64) (layout.HostOffset, clusters, error) {
	g := w.im.geo
	n := g.Clusters(int64(len(words)) * 8)
	a, err := w.allocMeta(ctx, max(n, 1))
	if err != nil {
		return 0, clusters{}, err
	}
	off := g.ClusterOffset(a.at)
	buf := make([]byte, a.n<<g.ClusterBits)
	for i, v := range words {
		layout.PutWord(buf, i, v)
	}
	if err = w.im.file.Event(ctx, block.EventL1GrowWriteTable); err == nil {
		if err = w.checkOverlap(ctx, off, int64(len(buf)), metaNone); err == nil {
			err = w.im.file.Write(ctx, buf, int64(off), 0)
		}
	}
	if err == nil {
		w.order.image.note()
		if !w.lazy.Load() {
			_, err = w.space.writeRefs(ctx, true)
		}
	}
	if err == nil {
		err = w.order.image.flush(ctx)
	}
	if err != nil {
		w.space.giveBack(a.clusters)
		return 0, clusters{}, err
	}
	return off, a.clusters, nil
}

// switchL1 makes the table of n entries at off, which is durable, the active L1, by one poke of the header, and frees
// the old one. Nothing may be staged.
func (w *writer) switchL1(ctx context.Context, off layout.HostOffset, n int64, p layout.Poke, change func(h *layout.Header)) error {
	im := w.im
	old := im.view.l1.Load()
	t, err := newTable(old.name, im.file, off, n, old.load, im.budget)
	if err != nil {
		return err
	}
	if err := w.pokeHeader(ctx, p, change); err != nil {
		t.close()
		return err
	}
	im.view.l1.Store(t)
	im.updateFences()
	w.over.moved()
	if old.n > 0 {
		w.mu.Lock()
		w.unlinkLocked(clusters{im.geo.Cluster(old.off), im.geo.Clusters(old.n * 8)}, discardOther)
		w.mu.Unlock()
	}
	old.close()
	if err := w.order.image.flush(ctx); err != nil {
		// Which table the file has is not known.
		w.fail(err)
		return err
	}
	return nil
}

// shrink makes the disk smaller. The size comes last but for giving space back: a crash on the way leaves the old size
// with an end that reads as zeros or as the backing file.
func (w *writer) shrink(ctx context.Context, size, old int64) error {
	g := w.im.geo
	cs := g.ClusterSize()
	edge := (size + cs - 1) &^ (cs - 1)
	if size < min(edge, old) {
		if err := w.zeroBeyond(ctx, size, min(edge, old)); err != nil {
			return err
		}
	}
	t := w.im.view.l1.Load()
	if err := w.im.file.Event(ctx, block.EventL1ShrinkFreeL2Clusters); err != nil {
		return err
	}
	if err := w.forget(ctx, edge, t.n*g.L2Coverage()); err != nil {
		return err
	}
	if err := w.im.file.Event(ctx, block.EventL1ShrinkWriteTable); err != nil {
		return err
	}
	if err := w.dropTables(ctx, g.L1Needed(size)); err != nil {
		return err
	}
	if err := w.setSize(ctx, size); err != nil {
		return err
	}
	if d := w.im.DataFile(); g.DataFile && d != nil && d.Geometry().Growable {
		if err := d.Resize(ctx, size, block.ResizeOptions{}); err != nil {
			return err
		}
	}
	return w.truncateFile(ctx)
}

// truncateFile cuts the image file behind the last cluster in use. The gate is held exclusively.
func (w *writer) truncateFile(ctx context.Context) error {
	if !w.space.growable {
		return nil
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
	if err := w.space.dropEmptyBlocks(ctx); err != nil {
		return err
	}
	if _, err := w.space.writeRefs(ctx, true); err != nil {
		return err
	}
	if err := w.order.all(ctx); err != nil {
		return err
	}
	used, err := w.space.usedEnd(ctx, 1)
	if err != nil {
		return err
	}
	end := int64(w.im.geo.ClusterOffset(used))
	if w.im.file.Size() > end {
		if err := w.im.file.Resize(ctx, end, block.ResizeOptions{}); err != nil {
			return err
		}
		w.space.cut(used)
	}
	return nil
}
