package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// ApplySnapshot makes the state of a snapshot, found by id or else by name, the active one; the disk takes the size it
// had then. What was written since is lost. It is a point between requests, and atomic: after a power cut the image is
// in one state or the other. Source of the rules: qcow2-format §4.4.
func (im *Image) ApplySnapshot(ctx context.Context, idOrName string) error {
	w := im.w
	switch {
	case w == nil:
		return im.readOnly("apply snapshot", block.NoOffset)
	case im.geo.DataFile:
		return block.Errorf(block.KindUnsupported, "apply snapshot", im.path, block.NoOffset, "internal snapshots cannot hold an external data file")
	}
	return w.exclusive(ctx, func() error {
		s, err := im.FindSnapshot(idOrName)
		if err != nil {
			return err
		}
		return w.applySnapshot(ctx, s)
	})
}

func (w *writer) applySnapshot(ctx context.Context, s layout.Snapshot) error {
	im := w.im
	saved, size, err := w.snapshotTable(s)
	if err != nil {
		return err
	}
	defer saved.close()
	n := max(saved.n, im.geo.L1Needed(size), 1)
	if n > layout.MaxL1Entries {
		return im.corrupt("apply snapshot", s.L1TableOffset, "a disk of %d bytes needs an L1 table above the limit", size)
	}
	if err := w.raiseAll(ctx, saved); err != nil {
		return err
	}
	// Tables of the snapshot become tables of the active state: no entry may claim to be the only owner.
	err = eachTable(ctx, saved, 0, func(_ int64, e layout.L1Entry) error {
		if err := w.clearCopied(ctx, e); err != nil {
			return err
		}
		return w.relieve(ctx)
	})
	if err != nil {
		return err
	}
	words, err := w.l1Words(ctx, saved, n)
	if err != nil {
		return err
	}
	off, _, err := w.writeL1(ctx, words)
	if err != nil {
		return err
	}
	// Entries of the snapshot's tables are durable before a second table names them.
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	old := im.view.l1.Load()
	gone, err := w.savedTables(ctx, old)
	if err != nil {
		return err
	}
	err = w.switchL1(ctx, off, n, layout.PokeSizeAndL1, func(h *layout.Header) {
		h.L1TableOffset, h.L1Size, h.Size = off, uint32(n), uint64(size)
	})
	if err != nil {
		return err
	}
	im.view.size.Store(size)
	for _, e := range gone {
		w.retireTable(ctx, e, discardSnapshot)
	}
	return w.recount(ctx)
}

// savedTables lists the L2 tables of an L1 table.
func (w *writer) savedTables(ctx context.Context, t *table) (list []layout.L1Entry, err error) {
	err = eachTable(ctx, t, 0, func(_ int64, e layout.L1Entry) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// snapshotTable opens the L1 table of a snapshot and tells the size of its disk.
func (w *writer) snapshotTable(s layout.Snapshot) (t *table, size int64, err error) {
	im := w.im
	if err := s.ValidateL1(im.geo, layout.HostOffset(block.NoOffset)); err != nil {
		return nil, 0, wrapLayout("open snapshot", im.path, err)
	}
	size = im.Size()
	if s.HasDiskSize() {
		if s.DiskSize > 1<<63-1 {
			return nil, 0, im.corrupt("open snapshot", s.L1TableOffset, "a disk size of %d bytes is above the limit", s.DiskSize)
		}
		size = int64(s.DiskSize &^ (layout.SectorSize - 1))
	}
	t, err = newTable("L1 table of a snapshot", im.file, s.L1TableOffset, int64(s.L1Size), block.EventNone, im.budget)
	return t, size, err
}

// DeleteSnapshot removes the first snapshot that has this id, if it is not empty, and this name, if it is not empty.
// It is durable when it returns; a power cut after its commit point leaves leaks at most. KindBusy while a snapshot of
// the image is open for reading. Source of the rules: qcow2-format §4.5.
func (im *Image) DeleteSnapshot(ctx context.Context, id, name string) error {
	w := im.w
	if w == nil {
		return im.readOnly("delete snapshot", block.NoOffset)
	}
	return w.exclusive(ctx, func() error {
		list := im.Snapshots()
		for i, s := range list {
			if (id == "" || id == s.ID) && (name == "" || name == s.Name) && id+name != "" {
				return w.deleteSnapshot(ctx, list, i)
			}
		}
		return block.Errorf(block.KindInvalid, "delete snapshot", im.path, block.NoOffset, "no snapshot %q", id+name)
	})
}

func (w *writer) deleteSnapshot(ctx context.Context, list []layout.Snapshot, i int) error {
	im := w.im
	im.mu.RLock()
	views := im.mu.views
	im.mu.RUnlock()
	if views > 0 {
		return block.Errorf(block.KindBusy, "delete snapshot", im.path, block.NoOffset, "a snapshot of this image is open for reading")
	}
	saved, _, err := w.snapshotTable(list[i])
	if err != nil {
		return err
	}
	defer saved.close()
	rest := append(append([]layout.Snapshot(nil), list[:i]...), list[i+1:]...)
	if err := w.switchSnapshots(ctx, rest); err != nil {
		return err
	}
	w.retireTables(ctx, saved, discardSnapshot)
	if saved.n > 0 {
		w.retireNow(ctx, []freed{{w.tableClusters(saved.off, saved.n), discardSnapshot}})
	}
	return w.recount(ctx)
}

// recount sets COPIED where, after references went away, the active state is the only owner, and clears it elsewhere.
// The counts are durable first (qcow2-format §4.6, §8.1 I6).
func (w *writer) recount(ctx context.Context) error {
	if err := w.quar.wait(ctx); err != nil {
		return err
	}
	if err := w.reap(ctx); err != nil {
		return err
	}
	if err := w.countsDurable(ctx); err != nil {
		return err
	}
	t := w.im.view.l1.Load()
	own := ownerCheck{s: w.space}
	err := eachTable(ctx, t, 0, func(i int64, e layout.L1Entry) error {
		sole, err := own.sole(ctx, w.im.geo.Cluster(e.Offset()))
		if err != nil {
			return err
		}
		if err := w.recountTable(ctx, e, &own); err != nil {
			return err
		}
		if sole != e.Copied() {
			if err := t.stage(ctx, i, uint64(layout.MakeL1Entry(e.Offset(), sole))); err != nil {
				return err
			}
		}
		return w.relieve(ctx)
	})
	if err != nil {
		return err
	}
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	return w.over.build(ctx)
}

// recountTable asks for the counts without holding a lock of the slice: nothing else changes entries now.
func (w *writer) recountTable(ctx context.Context, e layout.L1Entry, own *ownerCheck) error {
	g := w.im.geo
	var list []l2Entry
	return w.eachSlice(ctx, e, 0, func(s *slot, _ int) error {
		list = list[:0]
		s.RLock()
		for i := range len(s.data) / g.L2EntrySize() {
			list = append(list, w.entryAt(s.data, i))
		}
		s.RUnlock()
		changed := false
		for i := range list {
			x := &list[i]
			sole := false
			if off := x.e.Offset(); off != 0 && !x.e.Compressed() {
				var err error
				if sole, err = own.sole(ctx, g.Cluster(off)); err != nil {
					return err
				}
			}
			if sole != (uint64(x.e)&copiedFlag != 0) {
				x.e ^= layout.L2Entry(copiedFlag)
				changed = true
			}
		}
		if changed {
			w.replaceEntries(s, 0, list)
		}
		return nil
	})
}

// replaceEntries puts new entries into a slice, from index on.
func (w *writer) replaceEntries(s *slot, index int, list []l2Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Lock()
	defer s.Unlock()
	for i, x := range list {
		w.putEntry(s.data, index+i, x)
	}
	w.im.l2.markDirty(s)
}

// ownerCheck tells which clusters have the count 1, and remembers a run of them: neighbours are asked for in turn.
type ownerCheck struct {
	s   *space
	run clusters
}

func (o *ownerCheck) sole(ctx context.Context, c int64) (bool, error) {
	if c >= o.run.at && c < o.run.end() {
		return true, nil
	}
	o.s.mu.Lock()
	n, err := o.s.mu.refs.ones(ctx, c, 4096)
	o.s.mu.Unlock()
	if err != nil || n == 0 {
		return false, err
	}
	o.run = clusters{c, n}
	return true, nil
}
