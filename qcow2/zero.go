package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// ZeroAt implements block.Driver. Whole subclusters are zeroed by their entries; what is left at the ends too, if the
// rest of its subcluster reads as zeros anyway; else zeros are written (qcow2-format §10.1, §10.3). Flags: FUA; MayUnmap
// gives up places if discards are passed on; NoFallback fails (KindUnsupported) instead of writing zeros.
func (im *Image) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	w := im.w
	if w == nil {
		return im.readOnly("write zeroes", off)
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.zero(ctx, off, n, flags); err != nil {
		return err
	}
	if flags&block.FUA != 0 {
		return w.commit(ctx, true)
	}
	return nil
}

// zero makes [off, off+n) read as zeros. The gate is held.
func (w *writer) zero(ctx context.Context, off, n int64, flags block.Flags) error {
	sub := w.im.geo.SubclusterSize()
	from, to := off, off+n
	if to == w.im.Size() {
		to = (to + sub - 1) &^ (sub - 1)
	}
	a, b := (from+sub-1)&^(sub-1), to&^(sub-1)
	if w.im.geo.Version == 2 && w.hasBacking(off&^(sub-1)) {
		if flags&block.NoFallback != 0 {
			return block.Errorf(block.KindUnsupported, "write zeroes", w.im.path, off, "version 2 has no zero clusters")
		}
		return w.writeZeros(ctx, off, n)
	}
	// What lies inside a subcluster at the ends.
	var ends [2][2]int64
	parts := ends[:0]
	if a > b { // all in one subcluster
		parts, a, b = append(parts, [2]int64{from, to}), 0, 0
	} else {
		if from < a {
			parts = append(parts, [2]int64{from, a})
		}
		if b < to {
			parts = append(parts, [2]int64{b, to})
		}
	}
	left := parts[:0]
	for _, p := range parts {
		if ok, err := w.zeroAround(ctx, p[0], p[1]); err != nil {
			return err
		} else if !ok {
			left = append(left, p)
		}
	}
	if len(left) > 0 && flags&block.NoFallback != 0 {
		return block.Errorf(block.KindUnsupported, "write zeroes", w.im.path, off, "not aligned to subclusters of %d bytes", sub)
	}
	if a < b {
		if err := w.zeroSubclusters(ctx, a, b, flags); err != nil {
			return err
		}
	}
	for _, p := range left {
		if err := w.writeZeros(ctx, p[0], p[1]-p[0]); err != nil {
			return err
		}
	}
	return nil
}

// zeroAround zeroes the whole subcluster around [from, to), which lies in one, if that is the same: its rest reads as
// zeros, no data is stored there, and nobody is about to store some.
func (w *writer) zeroAround(ctx context.Context, from, to int64) (ok bool, err error) {
	if ok, err = w.widens(ctx, from, to); !ok || err != nil {
		return false, err
	}
	sub := w.im.geo.SubclusterSize()
	e := w.zeroEdit(false)
	change := e.change
	e.change = func(x l2Entry, a, b int) (l2Entry, bool, bool) {
		t, _ := w.subType(x, a)
		if k := readsAs(t); k != readsZero && k != readsBacking {
			return x, false, false // written since
		}
		return change(x, a, b)
	}
	e.alone = true
	e.refused = func(int64, int64) { ok = false }
	err = w.apply(ctx, from&^(sub-1), (to+sub-1)&^(sub-1), e)
	return ok, err
}

// widens reports whether zeroing the whole subcluster around [from, to), which lies in one, is the same: its rest reads
// as zeros and no data is stored there.
func (w *writer) widens(ctx context.Context, from, to int64) (bool, error) {
	sub := w.im.geo.SubclusterSize()
	start := from &^ (sub - 1)
	end := min(start+sub, max(w.im.Size(), to))
	var m mapping
	if err := w.im.view.lookup(ctx, start, sub, lookupRuns, &m); err != nil {
		return false, err
	}
	if k := readsAs(m.typ); k != readsZero && k != readsBacking {
		return false, nil
	}
	head, err := w.readsZero(ctx, start, from)
	if !head || err != nil {
		return false, err
	}
	return w.readsZero(ctx, to, end)
}

// writeZeros writes zeros as data.
func (w *writer) writeZeros(ctx context.Context, off, n int64) error {
	n = min(n, w.im.Size()-off)
	const most = 16
	iov := make([][]byte, 0, most)
	for n > 0 {
		iov = iov[:0]
		part := int64(0)
		for part < n && len(iov) < most {
			k := min(n-part, zeroBlock)
			iov = append(iov, zeroBytes[:k])
			part += k
		}
		if err := w.writev(ctx, iov, off, part); err != nil {
			return err
		}
		off, n = off+part, n-part
	}
	return nil
}

// zeroSubclusters zeroes [from, to), whole subclusters, by their entries.
func (w *writer) zeroSubclusters(ctx context.Context, from, to int64, flags block.Flags) error {
	h := w.im.Header()
	raw := w.im.geo.DataFile && h.HasAutoclear(layout.AutoclearRawData)
	if raw {
		// Who reads the data file alone must see zeros too, before the entries say so. While a write is under way there
		// the entries are left alone: they would hide what the write leaves in the data file.
		letIn, err := w.holdOff(ctx, from, to)
		if err != nil {
			return err
		}
		if letIn != nil {
			defer letIn()
		}
		d := w.im.DataFile()
		if end := min(to, d.Size()); from < end {
			if err := d.Zero(ctx, from, end-from, flags&(block.MayUnmap|block.NoFallback)); err != nil {
				return err
			}
			w.order.data.note()
		}
		if letIn == nil {
			return nil
		}
	}
	unmap := flags&block.MayUnmap != 0 && w.opts.Discard && !raw
	keep := w.opts.DiscardNoUnref && w.im.geo.Version >= 3
	e := w.zeroEdit(unmap && !keep)
	var refused [][2]int64
	e.refused = func(a, b int64) {
		if n := len(refused); n > 0 && refused[n-1][1] == a {
			refused[n-1][1] = b
			return
		}
		refused = append(refused, [2]int64{a, b})
	}
	if err := w.apply(ctx, from, to, e); err != nil {
		return err
	}
	for _, p := range refused {
		if err := w.writeZeros(ctx, p[0], p[1]-p[0]); err != nil {
			return err
		}
	}
	switch {
	case unmap && w.im.geo.DataFile:
		return w.punchOwned(ctx, w.im.DataFile(), from, min(to, w.im.DataFile().Size()))
	case unmap && keep:
		return w.punchOwned(ctx, w.im.file, from, to)
	}
	return nil
}

// zeroEdit is the edit of the write-zeroes columns of qcow2-format §10.1.
func (w *writer) zeroEdit(unmap bool) *edit {
	g := w.im.geo
	class := discardNever
	if unmap {
		class = discardRequest
	}
	e := &edit{class: class, change: w.zeroStandard(unmap), absent: w.zeroAbsent}
	if g.ExtendedL2 {
		e.change = w.zeroExtended(unmap)
	}
	return e
}

// zeroAbsent says whether zeroing [from, to) needs an L2 table where there is none: not if a whole table would say
// nothing but what is so without it.
func (w *writer) zeroAbsent(from, to int64) bool {
	if w.im.geo.Version == 2 {
		return false // no backing file here, see zero
	}
	whole := from%w.im.geo.L2Coverage() == 0 && to-from == w.im.geo.L2Coverage()
	return !whole || w.hasBacking(from)
}

func (w *writer) zeroStandard(unmap bool) func(l2Entry, int, int) (l2Entry, bool, bool) {
	v2 := w.im.geo.Version == 2
	zero := l2Entry{e: layout.ZeroPlain}
	if v2 {
		zero = l2Entry{}
	}
	return func(x l2Entry, _, _ int) (l2Entry, bool, bool) {
		switch {
		case x.e.Compressed():
			return zero, true, true
		case w.hasHost(x):
			if unmap || v2 {
				return zero, true, true
			}
			return l2Entry{e: x.e.WithZero(true)}, false, true
		}
		return zero, false, true
	}
}

func (w *writer) zeroExtended(unmap bool) func(l2Entry, int, int) (l2Entry, bool, bool) {
	return func(x l2Entry, from, to int) (l2Entry, bool, bool) {
		whole := from == 0 && to == layout.Subclusters
		switch {
		case whole && (x.e.Compressed() || unmap && w.hasHost(x)):
			return l2Entry{b: layout.BitmapAllZero}, true, true
		case x.e.Compressed():
			return x, false, false
		}
		x.b = x.b.WithZero(from, to)
		return x, false, true
	}
}
