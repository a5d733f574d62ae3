package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// l2Entry is an entry of either kind; the bitmap is 0 in standard images.
type l2Entry struct {
	e layout.L2Entry
	b layout.L2Bitmap
}

func (w *writer) entryAt(data []byte, i int) l2Entry {
	if w.im.geo.ExtendedL2 {
		e, b := layout.ExtendedEntry(data, i)
		return l2Entry{e, b}
	}
	return l2Entry{e: layout.L2Entry(layout.Word(data, i))}
}

func (w *writer) putEntry(data []byte, i int, x l2Entry) {
	if w.im.geo.ExtendedL2 {
		layout.PutExtendedEntry(data, i, x.e, x.b)
		return
	}
	layout.PutWord(data, i, uint64(x.e))
}

// hasHost reports whether the entry names a host cluster (not a stream).
func (w *writer) hasHost(x l2Entry) bool {
	return !x.e.Compressed() && (x.e.Offset() != 0 || w.im.geo.DataFile && x.e.Copied())
}

// owned reports whether the entry's host cluster is this image's alone, to be written in place.
func (w *writer) owned(x l2Entry) bool { return w.hasHost(x) && x.e.Copied() }

// subType is the type of one subcluster and how many from it on share it.
func (w *writer) subType(x l2Entry, sc int) (layout.ClusterType, int) {
	if w.im.geo.ExtendedL2 {
		return w.im.geo.SubclusterRun(x.e, x.b, sc)
	}
	return w.im.geo.ClusterType(x.e), 1
}

// allNormal reports whether subclusters [from, to) all hold data.
func (w *writer) allNormal(x l2Entry, from, to int) bool {
	t, n := w.subType(x, from)
	return t == layout.TypeNormal && n >= to-from
}

// valid refuses entries that contradict the format.
func (w *writer) valid(x l2Entry, guest int64) error {
	if t, _ := w.subType(x, 0); t == layout.TypeInvalid {
		return w.im.view.invalid(&mapping{guest: guest}, x.e, x.b)
	}
	return nil
}

// gather looks up what is at r.off and decides about the next part of the write: how long it is, and whether it is
// written in place or needs a flight, which is then registered. wait, if not nil, names what must end first.
//
// Nothing is allocated yet and, but for loading and owning the L2 table, no I/O is done.
func (w *writer) gather(ctx context.Context, r *writeReq) (wait <-chan struct{}, err error) {
	for {
		s, l1, word, err := w.writableSlice(ctx, r.off)
		if err != nil {
			return nil, err
		}
		again, wait, err := w.gatherIn(r, s, l1, word)
		if !r.flying { // a flight keeps its slice
			s.release()
		}
		if !again {
			return wait, err
		}
	}
}

// gatherIn does so with the slice at hand; again tells that the slice is no longer the right one.
func (w *writer) gatherIn(r *writeReq, s *slot, l1 int64, word uint64) (again bool, wait <-chan struct{}, err error) {
	g := w.im.geo
	w.mu.Lock()
	defer w.mu.Unlock()
	s.RLock()
	defer s.RUnlock()
	if s.dead || !w.sameTable(l1, word) {
		return true, nil, nil
	}
	index := w.indexIn(s, r.off)
	perSlice := len(s.data) / g.L2EntrySize()
	end := min(r.off+r.n, g.FloorCluster(r.off)+int64(perSlice-index)*g.ClusterSize())
	end, wait = w.conflictLocked(r.off, end, &r.ticket)
	if wait != nil {
		w.queueLocked(&r.ticket, r.off, r.off+r.n)
		return false, wait, nil
	}
	first := w.entryAt(s.data, index)
	if err := w.valid(first, r.off); err != nil {
		return false, nil, err
	}
	if !w.owned(first) {
		return false, nil, w.gatherNewLocked(r, s, index, l1, end)
	}
	return false, nil, w.gatherOwnedLocked(r, s, index, l1, end)
}

// indexIn is the index in slice s of the entry of a guest offset.
func (w *writer) indexIn(s *slot, guest int64) int {
	g := w.im.geo
	return g.L2Index(layout.GuestOffset(guest)) & (len(s.data)/g.L2EntrySize() - 1)
}

// touched gives the subclusters [from, to) of the cluster at guest that [off, end) touches.
func (w *writer) touched(guest, off, end int64) (from, to int) {
	g := w.im.geo
	sub := g.SubclusterSize()
	from = int((max(off, guest) - guest) / sub)
	to = int((min(end, guest+g.ClusterSize()) - guest + sub - 1) / sub)
	return from, to
}

// gatherOwnedLocked finds the run of owned clusters with adjacent places that are all to be written in place, or all
// need their entries changed.
func (w *writer) gatherOwnedLocked(r *writeReq, s *slot, index int, l1, end int64) error {
	g := w.im.geo
	cs := g.ClusterSize()
	start := g.FloorCluster(r.off)
	first := w.entryAt(s.data, index)
	host := first.e.Offset()
	if err := w.im.checkHost(&mapping{typ: layout.TypeNormal, guest: start, host: host, n: cs}); err != nil {
		return err
	}
	from, to := w.touched(start, r.off, end)
	inPlace := w.allNormal(first, from, to)
	n := int64(1)
	last := first
	for at := start + cs; at < end; at += cs {
		x := w.entryAt(s.data, index+int(n))
		if !w.owned(x) || x.e.Offset() != host+layout.HostOffset(n*cs) {
			break
		}
		from, to := w.touched(at, r.off, end)
		if w.allNormal(x, from, to) != inPlace {
			break
		}
		if err := w.valid(x, at); err != nil {
			return err
		}
		last = x
		n++
	}
	if n > 1 {
		if err := w.im.checkHost(&mapping{typ: layout.TypeNormal, guest: start, host: host, n: n * cs}); err != nil {
			return err
		}
	}
	end = min(end, start+n*cs)
	r.part = end - r.off
	if inPlace {
		r.host = host + layout.HostOffset(r.off-start)
		r.pin, r.flying = w.quar.enter(), false
		return nil
	}
	r.f = flight{guest: start, n: n, w0: r.off, w1: end, host: host, reuse: true, slot: s, index: index, l1: l1}
	r.f.h0, r.f.h1 = r.off, end
	sub := g.SubclusterSize()
	fromType, _ := w.subType(first, int((r.off-start)/sub))
	toType, _ := w.subType(last, int((end-1-start)%cs/sub))
	if fromType != layout.TypeNormal {
		r.f.h0 = r.off &^ (sub - 1)
	}
	if toType != layout.TypeNormal {
		r.f.h1 = (end + sub - 1) &^ (sub - 1)
	}
	r.f.zeros = w.plainZero(fromType, r.f.h0, r.f.w0) && w.plainZero(toType, r.f.w1, r.f.h1)
	r.pin = w.quar.enter() // the clusters may be freed by a discard while we write to them
	r.pinned = true
	w.registerLocked(r)
	return nil
}

// gatherNewLocked finds the run of clusters that need new places.
func (w *writer) gatherNewLocked(r *writeReq, s *slot, index int, l1, end int64) error {
	g := w.im.geo
	cs := g.ClusterSize()
	start := g.FloorCluster(r.off)
	first := w.entryAt(s.data, index)
	last, n := first, int64(1)
	for at := start + cs; at < end; at += cs {
		x := w.entryAt(s.data, index+int(n))
		if w.owned(x) {
			break
		}
		if err := w.valid(x, at); err != nil {
			return err
		}
		last = x
		n++
	}
	end = min(end, start+n*cs)
	r.part = end - r.off
	r.f = flight{guest: start, n: n, w0: r.off, w1: end, slot: s, index: index, l1: l1}
	var z0, z1 bool
	r.f.h0, z0 = w.hullStart(first, r.off)
	r.f.h1, z1 = w.hullEnd(last, end)
	r.f.zeros = z0 && z1
	r.pinned = false
	w.registerLocked(r)
	return nil
}

func (w *writer) registerLocked(r *writeReq) {
	r.flying = true
	w.mu.flights = append(w.mu.flights, &r.f)
}

// hullStart is where the copy-on-write hull starts in a cluster that gets a new place and is written from w0 on
// (qcow2-format §9.3), and whether what lies before w0 is known to be zero without asking anybody.
func (w *writer) hullStart(x l2Entry, w0 int64) (h0 int64, zero bool) {
	g := w.im.geo
	sub := g.SubclusterSize()
	start := g.FloorCluster(w0)
	h0 = w0 &^ (sub - 1)
	t, _ := w.subType(x, int((w0-start)/sub))
	switch {
	case x.e.Compressed():
		h0 = start
	case g.ExtendedL2 && x.b.Alloc() != 0:
		h0 = min(h0, start+int64(lowest(x.b.Alloc()))*sub)
	}
	return h0, h0 == w0 || h0 == w0&^(sub-1) && w.plainZero(t, h0, w0)
}

// hullEnd is its counterpart at the end.
func (w *writer) hullEnd(x l2Entry, w1 int64) (h1 int64, zero bool) {
	g := w.im.geo
	sub := g.SubclusterSize()
	start := g.FloorCluster(w1 - 1)
	up := (w1 + sub - 1) &^ (sub - 1)
	h1 = up
	t, _ := w.subType(x, int((w1-1-start)/sub))
	switch {
	case x.e.Compressed():
		h1 = start + g.ClusterSize()
	case g.ExtendedL2 && x.b.Alloc() != 0:
		h1 = max(h1, start+int64(highest(x.b.Alloc())+1)*sub)
	}
	return h1, h1 == w1 || h1 == up && w.plainZero(t, w1, h1)
}

// plainZero reports whether [from, to), inside one subcluster of type t, is known to read as zeros without I/O.
func (w *writer) plainZero(t layout.ClusterType, from, to int64) bool {
	switch t {
	case layout.TypeZeroPlain, layout.TypeZeroAlloc:
		return true
	case layout.TypeUnallocated, layout.TypeUnallocatedAlloc:
		b := w.im.backing.Load()
		if b == nil {
			return w.im.needBacking() == nil
		}
		return from >= b.Size()
	}
	return from == to
}

// sameTable reports whether L1 entry l1 is still word.
func (w *writer) sameTable(l1 int64, word uint64) bool {
	now, ok := w.im.view.l1.Load().peek(l1)
	return ok && now == word
}

// writableSlice gives the pinned slice with the entry of a guest offset, in an L2 table that may be edited, and the L1
// entry that named it.
func (w *writer) writableSlice(ctx context.Context, guest int64) (s *slot, l1 int64, word uint64, err error) {
	g := w.im.geo
	t := w.im.view.l1.Load()
	l1 = g.L1Index(layout.GuestOffset(guest))
	if l1 >= t.n {
		return nil, 0, 0, block.Errorf(block.KindOutOfBounds, "write", w.im.path, guest, "the L1 table has no entry for this offset")
	}
	if word, err = t.get(ctx, l1); err != nil {
		return nil, 0, 0, err
	}
	if e := layout.L1Entry(word); !e.Copied() || e.Offset() == 0 {
		if word, err = w.ownTable(ctx, l1, guest); err != nil {
			return nil, 0, 0, err
		}
	}
	s, err = w.im.view.slice(ctx, layout.L1Entry(word), g.L2Index(layout.GuestOffset(guest)))
	return s, l1, word, err
}
