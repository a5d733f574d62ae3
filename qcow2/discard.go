package qcow2

import (
	"context"
	"time"

	"byre/block"
	"byre/qcow2/layout"
)

// DiscardAt implements block.Driver. Whole clusters read as zeros afterwards and lose their place; parts of clusters
// keep their contents, except a last part that ends with the disk (qcow2-format §10.1, §10.2). With version 2 and a
// backing file nothing happens.
func (im *Image) DiscardAt(ctx context.Context, off, n int64) error {
	w := im.w
	if w == nil {
		return im.readOnly("discard", off)
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	cs := im.geo.ClusterSize()
	from, to := (off+cs-1)&^(cs-1), off+n
	if to == im.Size() {
		to = (to + cs - 1) &^ (cs - 1)
	}
	to &^= cs - 1
	if from >= to {
		return nil
	}
	if im.geo.DataFile {
		return w.discardInDataFile(ctx, from, to)
	}
	if w.opts.DiscardNoUnref && im.geo.Version >= 3 {
		return w.discardKeeping(ctx, from, to)
	}
	return w.apply(ctx, from, to, w.discardEdit(discardRequest))
}

// discardEdit is the edit of the discard column of qcow2-format §10.1.
func (w *writer) discardEdit(class discardClass) *edit {
	g := w.im.geo
	backing := w.im.backing.Load() != nil || w.im.needBacking() != nil
	zero := l2Entry{e: layout.ZeroPlain}
	switch {
	case g.ExtendedL2:
		zero = l2Entry{b: layout.BitmapAllZero}
	case g.Version == 2:
		zero = l2Entry{}
	}
	return &edit{
		class: class,
		change: func(x l2Entry, _, _ int) (l2Entry, bool, bool) {
			allocated := x.e.Compressed() || w.hasHost(x)
			switch {
			case g.Version == 2 && backing: // nothing is decided here, so writes in flight go on
				return x, false, false
			case !allocated && !backing:
				return x, false, true
			}
			return zero, allocated, true
		},
		absent:  func(int64, int64) bool { return backing && g.Version >= 3 },
		refused: func(int64, int64) {},
	}
}

// keepEdit makes clusters read as zeros and keep their place; compressed ones lose it.
func (w *writer) keepEdit() *edit {
	z := w.zeroEdit(false)
	backing := w.im.backing.Load() != nil || w.im.needBacking() != nil
	change := z.change
	z.change = func(x l2Entry, from, to int) (l2Entry, bool, bool) {
		if !backing && !x.e.Compressed() && !w.hasHost(x) {
			return x, false, true
		}
		return change(x, from, to)
	}
	z.absent = func(int64, int64) bool { return backing }
	z.refused = func(int64, int64) {} // whole clusters: never
	return z
}

// discardKeeping discards without giving up places (discard-no-unref): entries say zero, and the host gets the space
// behind them back if discards are passed on.
func (w *writer) discardKeeping(ctx context.Context, from, to int64) error {
	if err := w.apply(ctx, from, to, w.keepEdit()); err != nil || !w.opts.Discard {
		return err
	}
	return w.punchOwned(ctx, w.im.file, from, to)
}

// discardInDataFile discards guest clusters of an external data file. A data file that is a valid raw image by itself
// must read as zeros there too, so it is zeroed first.
func (w *writer) discardInDataFile(ctx context.Context, from, to int64) error {
	h := w.im.Header()
	if h.HasAutoclear(layout.AutoclearRawData) {
		return w.zeroSubclusters(ctx, from, to, block.MayUnmap)
	}
	if err := w.apply(ctx, from, to, w.discardEdit(discardRequest)); err != nil || !w.opts.Discard {
		return err
	}
	return w.punchOwned(ctx, w.im.DataFile(), from, min(to, w.im.DataFile().Size()))
}

// punchOwned gives space back to the host for guest clusters whose entries say zero but whose place a later write will
// use again: the entries are made durable first, and writers are held off meanwhile (qcow2-format §8.1 I5).
func (w *writer) punchOwned(ctx context.Context, dev *block.Device, from, to int64) error {
	if from >= to {
		return nil
	}
	letIn, err := w.holdOff(ctx, from, to)
	if letIn == nil {
		return err // somebody is busy there for long: the space stays
	}
	defer letIn()
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	for from < to {
		from, err = w.punchSlice(ctx, dev, from, to)
		if err != nil {
			return err
		}
	}
	return nil
}

// punchSlice does so with the part of [from, to) that one L2 slice maps, and returns its end. Clusters that a snapshot
// shares keep their contents.
func (w *writer) punchSlice(ctx context.Context, dev *block.Device, from, to int64) (int64, error) {
	g := w.im.geo
	cs := g.ClusterSize()
	t := w.im.view.l1.Load()
	i := g.L1Index(layout.GuestOffset(from))
	if i >= t.n {
		return to, nil
	}
	word, err := t.get(ctx, i)
	if err != nil {
		return from, err
	}
	if layout.L1Entry(word).Offset() == 0 {
		return (i + 1) * g.L2Coverage(), nil
	}
	s, err := w.im.view.slice(ctx, layout.L1Entry(word), g.L2Index(layout.GuestOffset(from)))
	if err != nil {
		return from, err
	}
	defer s.release()
	var runs []clusters
	s.RLock()
	index := w.indexIn(s, from)
	for ; index < len(s.data)/g.L2EntrySize() && from < to; index++ {
		x := w.entryAt(s.data, index)
		ty, n := w.subType(x, 0)
		zero := n == g.SubclustersPerCluster() && (ty == layout.TypeZeroAlloc && w.owned(x) || ty == layout.TypeZeroPlain && g.DataFile)
		if zero {
			at := g.Cluster(x.e.Offset())
			if g.DataFile {
				at = from >> g.ClusterBits
			}
			if k := len(runs); k > 0 && runs[k-1].end() == at {
				runs[k-1].n++
			} else {
				runs = append(runs, clusters{at, 1})
			}
		}
		from += cs
	}
	s.RUnlock()
	for _, r := range runs {
		off := int64(g.ClusterOffset(r.at))
		if n := min(r.n<<g.ClusterBits, dev.Size()-off); n > 0 {
			_ = dev.Discard(ctx, off, n) // advisory
		}
	}
	return from, nil
}

// patience bounds how long what is only advisory waits for other requests to end.
const patience = 200 * time.Millisecond

// holdOff keeps writers away from [from, to) until letIn is called. None of them is in flight there when it returns.
// letIn is nil if they did not end within some time.
func (w *writer) holdOff(ctx context.Context, from, to int64) (letIn func(), err error) {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	g := w.im.geo
	start := g.FloorCluster(from)
	f := &flight{guest: start, n: g.Clusters(to - start), w0: from, w1: to, h0: from, h1: to, reuse: true}
	for {
		w.mu.Lock()
		end, wait := w.conflictLocked(from, to, nil)
		if wait == nil && end < to {
			_, wait = w.conflictLocked(end, to, nil)
		}
		if wait == nil {
			w.mu.flights = append(w.mu.flights, f)
		}
		w.mu.Unlock()
		if wait == nil {
			break
		}
		if await(soon, wait) != nil {
			return nil, ctx.Err()
		}
	}
	letIn = func() {
		w.mu.Lock()
		w.removeLocked(f)
		w.mu.Unlock()
	}
	// Writes in place that began before are not listed: they are accesses.
	if w.quar.drain(soon) != nil {
		letIn()
		return nil, ctx.Err()
	}
	return letIn, nil
}
