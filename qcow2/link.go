package qcow2

import (
	"byre/qcow2/layout"
)

// link puts the new place of a flight whose data is written into the L2 entries, and ends the flight
// (qcow2-format §9.6). It is short: memory only, the slice was pinned by gather.
//
// Subclusters that a discard or a zero write decided while the flight was under way keep that decision.
func (w *writer) link(f *flight) error {
	s := f.slot
	if f.cow {
		_, b := w.dataDevice()
		b.note()
	}
	w.mu.Lock()
	s.Lock()
	var err error
	var unused []clusters
	if s.dead {
		err = w.im.corrupt("link cluster", s.off, "the L2 table of guest offset %#x disappeared under a write", f.guest)
	} else {
		for i := range f.n {
			if !w.linkClusterLocked(f, i) {
				unused = append(unused, clusters{w.im.geo.Cluster(f.host) + i, 1})
			}
		}
		w.im.l2.markDirty(s)
	}
	s.Unlock()
	w.removeLocked(f)
	w.mu.Unlock()
	s.release()
	f.slot = nil
	if !f.reuse && !w.im.geo.DataFile {
		for _, c := range unused {
			w.space.giveBack(c)
		}
	}
	return err
}

// linkClusterLocked links cluster i of the flight. It reports false if the whole cluster was decided otherwise.
func (w *writer) linkClusterLocked(f *flight, i int64) bool {
	g := w.im.geo
	cs, sub := g.ClusterSize(), g.SubclusterSize()
	guest := f.guest + i*cs
	var over uint32
	if f.over != nil {
		over = f.over[i]
	}
	data := f.slot.data
	old := w.entryAt(data, f.index+int(i))
	host := f.host + layout.HostOffset(i*cs)
	if !g.ExtendedL2 {
		if over != 0 {
			return false
		}
		w.putEntry(data, f.index+int(i), l2Entry{e: layout.MakeL2Entry(host, true)})
		if !f.reuse {
			w.unlinkEntryLocked(old.e, discardNever)
		}
		return true
	}
	from := int((max(f.h0, guest) - guest) / sub)
	to := int((min(f.h1, guest+cs) - guest + sub - 1) / sub)
	hull := subclusterMask(from, to)
	if hull&^over == 0 {
		return false
	}
	x := l2Entry{layout.MakeL2Entry(host, true), old.b}
	if old.e.Compressed() {
		x.b = 0
	}
	m := layout.L2Bitmap(hull &^ over)
	x.b = (x.b | m) &^ (m << 32)
	w.putEntry(data, f.index+int(i), x)
	if !f.reuse {
		w.unlinkEntryLocked(old.e, discardNever)
	}
	return true
}

// subclusterMask has bits [from, to) set.
func subclusterMask(from, to int) uint32 {
	return uint32((uint64(1)<<to - 1) &^ (uint64(1)<<from - 1))
}

// abort ends a flight that failed before it was linked: new clusters go back, nothing points to them.
func (w *writer) abort(f *flight) {
	w.mu.Lock()
	w.removeLocked(f)
	w.mu.Unlock()
	f.slot.release()
	f.slot = nil
	if !f.reuse && f.host != 0 && !w.im.geo.DataFile {
		w.space.giveBack(clusters{w.im.geo.Cluster(f.host), f.n})
	}
}
