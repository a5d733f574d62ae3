package qcow2

import (
	"context"

	"byre/qcow2/layout"
)

// exclusive runs f at a point between requests: no change is under way, and everything that completed before is durable.
// Reads go on. It waits for writes that are under way, however long they take.
func (w *writer) exclusive(ctx context.Context, f func() error) error {
	w.gate.Lock()
	defer w.gate.Unlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	return w.corruption(ctx, f())
}

// eachTable visits the L2 tables that an L1 table names, in order.
func eachTable(ctx context.Context, t *table, from int64, f func(i int64, e layout.L1Entry) error) error {
	for i := from; i < t.n; i++ {
		word, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		if e := layout.L1Entry(word); e.Offset() != 0 {
			if err := f(i, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachSlice visits the slices of an L2 table from entry index on; each is pinned during its visit, and not locked.
// first is the index of the slice's first entry.
func (w *writer) eachSlice(ctx context.Context, e layout.L1Entry, index int, f func(s *slot, first int) error) error {
	g := w.im.geo
	step := int(w.im.l2.slotSize) / g.L2EntrySize()
	for first := index &^ (step - 1); first < g.L2Entries(); first += step {
		s, err := w.im.view.slice(ctx, e, first)
		if err != nil {
			return err
		}
		err = f(s, first)
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// references tells the runs of host clusters that an L2 table and its entries refer to: once for each reference, so
// that a cluster that two streams share is told twice. The table itself comes first.
func (w *writer) references(ctx context.Context, e layout.L1Entry, tell func(c clusters) error) error {
	g := w.im.geo
	if err := w.im.checkL2(e.Offset()); err != nil {
		return err
	}
	if err := tell(clusters{g.Cluster(e.Offset()), 1}); err != nil {
		return err
	}
	var run clusters
	add := func(c clusters) error {
		if run.n > 0 && run.end() == c.at {
			run.n += c.n
			return nil
		}
		last := run
		run = c
		if last.n == 0 {
			return nil
		}
		return tell(last)
	}
	err := w.eachSlice(ctx, e, 0, func(s *slot, _ int) error {
		s.RLock()
		defer s.RUnlock()
		for i := range len(s.data) / g.L2EntrySize() {
			c, err := w.referenceOf(w.entryAt(s.data, i).e)
			if err == nil && c.n > 0 {
				err = add(c)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || run.n == 0 {
		return err
	}
	return tell(run)
}

// referenceOf gives the host clusters that an entry refers to; none if it refers to none.
func (w *writer) referenceOf(e layout.L2Entry) (clusters, error) {
	g := w.im.geo
	if e.Compressed() {
		c, ok := g.DecodeCompressed(e)
		if !ok {
			return clusters{}, w.im.corrupt("walk L2 table", c.Offset, "a compressed cluster lies beyond the largest offset")
		}
		first := g.Cluster(c.Offset)
		return clusters{first, g.Cluster(c.End()-1) - first + 1}, nil
	}
	off := e.Offset()
	switch {
	case off == 0 || g.DataFile:
		return clusters{}, nil
	case !g.Aligned(off):
		return clusters{}, w.im.corrupt("walk L2 table", off, "the offset of a cluster is not aligned")
	}
	return clusters{g.Cluster(off), 1}, nil
}

// retireTables gives up, once for each reference, everything below the entries of an L1 table that nothing names any
// more, durably. What cannot be read is leaked. Memory is bounded by one L2 table's worth.
func (w *writer) retireTables(ctx context.Context, t *table, class discardClass) {
	for i := range t.n {
		word, err := t.get(ctx, i)
		if err != nil {
			return
		}
		if e := layout.L1Entry(word); e.Offset() != 0 {
			w.retireTable(ctx, e, class)
		}
	}
}

func (w *writer) retireTable(ctx context.Context, e layout.L1Entry, class discardClass) {
	var batch []freed
	if w.references(ctx, e, func(c clusters) error {
		batch = append(batch, freed{c, class})
		return nil
	}) != nil {
		return
	}
	w.retireNow(ctx, batch)
}

// retireNow lets clusters go whose removal is durable. An error would leave a leak.
func (w *writer) retireNow(ctx context.Context, batch []freed) {
	w.quar.retire(batch)
	_ = w.reap(ctx)
	_ = w.space.relieve(ctx, w.im.budget.Limit()/8)
}

// tableClusters is the place of an L1 table.
func (w *writer) tableClusters(off layout.HostOffset, entries int64) clusters {
	return clusters{w.im.geo.Cluster(off), w.im.geo.Clusters(entries * 8)}
}
