package qcow2

import (
	"context"

	"byre/qcow2/layout"
)

// edit is a change of L2 entries that moves no data: what a discard or a zero write does. It is applied entry by entry
// under the lock, to whole subclusters, and counts as later than every write that is still in flight there: those keep
// their hands off the subclusters it decided (see flight.over), so it never waits.
type edit struct {
	// change gives what becomes of an entry of which subclusters [from, to) are concerned (all, in standard images).
	// unlink says that the entry's old place lost its reference. ok is false if this entry cannot be changed so: the
	// caller hears of it by refused.
	change func(x l2Entry, from, to int) (now l2Entry, unlink, ok bool)
	class  discardClass
	// absent says what to do about a range, within one L2 table, that has no L2 table: whether it needs one.
	absent func(from, to int64) bool
	// refused hears the guest ranges of entries that were left alone. It is called under the lock.
	refused func(from, to int64)
	// alone: entries that a flight touches are refused instead of taken from it.
	alone bool
	// freed hears the guest clusters whose place was unlinked. Called under the lock; may be nil.
	freed func(guest int64)
}

// apply does e to [from, to), multiples of the subcluster size. The gate is held.
func (w *writer) apply(ctx context.Context, from, to int64, e *edit) error {
	g := w.im.geo
	for from < to {
		t := w.im.view.l1.Load()
		i := g.L1Index(layout.GuestOffset(from))
		end := min(to, (i+1)*g.L2Coverage())
		if i >= t.n {
			return nil
		}
		word, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		if layout.L1Entry(word).Offset() == 0 && !e.absent(from, end) {
			from = end
			continue
		}
		if err := w.dirtyForLink(ctx); err != nil {
			return err
		}
		for from < end {
			s, l1, word, err := w.writableSlice(ctx, from)
			if err != nil {
				return w.corruption(ctx, err)
			}
			next, err := w.applyIn(s, l1, word, from, end, e)
			s.release()
			if err != nil {
				return w.corruption(ctx, err)
			}
			from = next
			if err := w.relieve(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// applyIn does e to the part of [from, to) that slice s maps and returns its end; from again if the slice is no longer
// the right one.
func (w *writer) applyIn(s *slot, l1 int64, word uint64, from, to int64, e *edit) (next int64, err error) {
	g := w.im.geo
	cs := g.ClusterSize()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Lock()
	defer s.Unlock()
	if s.dead || !w.sameTable(l1, word) {
		return from, nil
	}
	index := w.indexIn(s, from)
	to = min(to, g.FloorCluster(from)+int64(len(s.data)/g.L2EntrySize()-index)*cs)
	changed := false
	for guest := g.FloorCluster(from); guest < to; guest += cs {
		x := w.entryAt(s.data, index)
		if err := w.valid(x, guest); err != nil {
			return from, err
		}
		a, b := max(from, guest), min(to, guest+cs)
		sa, sb := w.touched(guest, a, b)
		now, unlink, ok := e.change(x, sa, sb)
		ok = ok && !(e.alone && w.flyingLocked(a, b))
		// A stream in flight cannot be linked in part: the caller writes its zeros behind it.
		ok = ok && (b-a == cs || sb-sa == layout.Subclusters || !w.compressingLocked(guest))
		switch {
		case !ok:
			e.refused(a, b)
		default:
			w.overrideLocked(a, b)
			if now != x {
				w.putEntry(s.data, index, now)
				changed = true
			}
			if unlink {
				w.unlinkEntryLocked(x.e, e.class)
				if e.freed != nil {
					e.freed(guest)
				}
			}
		}
		index++
	}
	if changed {
		w.im.l2.markDirty(s)
	}
	return to, nil
}

// flyingLocked reports whether a flight touches [from, to).
func (w *writer) flyingLocked(from, to int64) bool {
	cs := w.im.geo.ClusterSize()
	for _, f := range w.mu.flights {
		if from < f.end(cs) && f.guest < to {
			return true
		}
	}
	return false
}

// hasBacking reports whether guest offset off may show something of a backing file.
func (w *writer) hasBacking(off int64) bool {
	b := w.im.backing.Load()
	return b == nil && w.im.needBacking() != nil || b != nil && off < b.Size()
}
