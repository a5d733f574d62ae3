package qcow2

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// OverlapCheck says against how much metadata every write to the image file is checked (qcow2-format §11.5). It is the
// safety net for wrong refcounts, so it does not ask them.
type OverlapCheck uint8

const (
	OverlapCached   OverlapCheck = iota // and L2 tables, refcount blocks, L1 tables of snapshots
	OverlapNone                         // nothing
	OverlapConstant                     // header, active L1, refcount, snapshot and bitmap tables
	OverlapAll                          // and L2 tables of snapshots
)

var overlapNames = [...]string{"cached", "none", "constant", "all"}

func (o OverlapCheck) String() string { return overlapNames[o] }

// ParseOverlapCheck finds a level by its name.
func ParseOverlapCheck(s string) (OverlapCheck, bool) {
	for i, n := range overlapNames {
		if n == s {
			return OverlapCheck(i), true
		}
	}
	return 0, false
}

// overlaps knows where metadata lies. Checks take no lock: they look at an immutable set.
type overlaps struct {
	w   *writer
	set atomic.Pointer[overlapSet]
	mu  sync.Mutex // held by who replaces set
}

// overlapSet lists the clusters of L2 tables and refcount blocks, and the ranges of everything else.
type overlapSet struct {
	regions []overlapRegion
	main    []metaCluster // sorted
	extra   []metaCluster // newer ones, few
	gone    []int64       // clusters of main that are no longer metadata, few
}

type overlapRegion struct {
	layout.Region
	class metaClass
}

type metaCluster struct {
	cluster int64
	class   metaClass
}

func compareCluster(a metaCluster, c int64) int {
	switch {
	case a.cluster < c:
		return -1
	case a.cluster > c:
		return 1
	}
	return 0
}

const overlapExtra = 128

// find returns the class and name of metadata in clusters [c, c+n), other than allowed.
func (s *overlapSet) find(off layout.HostOffset, size, c, n int64, allowed metaClass) (string, bool) {
	for i := range s.regions {
		if r := &s.regions[i]; r.class&allowed == 0 && r.Overlaps(off, size) {
			return r.Name, true
		}
	}
	i, _ := slices.BinarySearchFunc(s.main, c, compareCluster)
	for ; i < len(s.main) && s.main[i].cluster < c+n; i++ {
		if m := s.main[i]; m.class&allowed == 0 && !slices.Contains(s.gone, m.cluster) {
			return m.class.name(), true
		}
	}
	for _, m := range s.extra {
		if m.cluster >= c && m.cluster < c+n && m.class&allowed == 0 {
			return m.class.name(), true
		}
	}
	return "", false
}

func (c metaClass) name() string {
	switch c {
	case metaActiveL2:
		return "active L2 table"
	case metaInactiveL2:
		return "inactive L2 table"
	}
	return "refcount block"
}

// checkOverlap implements spaceHost. Everything that goes to the image file passes here.
func (w *writer) checkOverlap(ctx context.Context, off layout.HostOffset, n int64, allowed metaClass) error {
	s := w.over.set.Load()
	if s == nil {
		return nil
	}
	g := w.im.geo
	first := g.Cluster(off)
	if allowed&metaHeader == 0 { // all but the header is judged by whole clusters
		off, n = g.ClusterOffset(first), (g.Cluster(off+layout.HostOffset(n)-1)-first+1)<<g.ClusterBits
	}
	name, hit := s.find(off, n, first, g.Cluster(off+layout.HostOffset(n)-1)-first+1, allowed)
	if !hit {
		return nil
	}
	err := w.im.corrupt("write", off, "prevented a write that overlaps the %s", name)
	w.markCorrupt(ctx, err)
	return err
}

// checkData checks a write of guest data.
func (w *writer) checkData(ctx context.Context, host layout.HostOffset, n int64) error {
	if w.im.geo.DataFile {
		return nil
	}
	return w.checkOverlap(ctx, host, n, metaNone)
}

// build looks through the tables. It is called before the first write and after snapshot operations.
func (o *overlaps) build(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	level := o.w.opts.Overlap
	if level == OverlapNone {
		o.set.Store(nil)
		return nil
	}
	s := new(overlapSet)
	o.addRegions(s)
	if level != OverlapConstant {
		if err := o.addTables(ctx, s); err != nil {
			return err
		}
	}
	if level == OverlapAll {
		if err := o.addInactive(ctx, s); err != nil {
			return err
		}
	}
	slices.SortFunc(s.main, func(a, b metaCluster) int { return compareCluster(a, b.cluster) })
	o.set.Store(s)
	return nil
}

func (o *overlaps) addRegions(s *overlapSet) {
	im := o.w.im
	im.mu.RLock()
	defer im.mu.RUnlock()
	h := im.mu.header
	cs := h.ClusterSize()
	up := func(n int64) int64 { return (n + cs - 1) &^ (cs - 1) }
	add := func(class metaClass, name string, off layout.HostOffset, n int64) {
		if n > 0 {
			s.regions = append(s.regions, overlapRegion{layout.Region{Name: name, Offset: off, Length: n}, class})
		}
	}
	add(metaHeader, "qcow2_header", 0, cs)
	add(metaActiveL1, "active L1 table", h.L1TableOffset, up(int64(h.L1Size)*8))
	add(metaRefTable, "refcount table", h.RefcountTableOffset, int64(h.RefcountTableClusters)<<h.ClusterBits)
	add(metaSnapshotTable, "snapshot table", h.SnapshotsOffset, up(im.mu.snapshotBytes))
	if h.Bitmaps != nil && h.HasAutoclear(layout.AutoclearBitmaps) {
		add(metaBitmapDir, "bitmap directory", h.Bitmaps.DirectoryOffset, up(h.Bitmaps.DirectorySize))
	}
	if o.w.opts.Overlap != OverlapConstant {
		for _, sn := range im.mu.snapshots {
			add(metaInactiveL1, "inactive L1 table", sn.L1TableOffset, up(int64(sn.L1Size)*8))
		}
	}
}

// addTables adds the L2 tables of the active L1 and the refcount blocks.
func (o *overlaps) addTables(ctx context.Context, s *overlapSet) error {
	g := o.w.im.geo
	l1 := o.w.im.view.l1.Load()
	for i := range l1.n {
		v, err := l1.get(ctx, i)
		if err != nil {
			return err
		}
		if off := layout.L1Entry(v).Offset(); off != 0 {
			s.main = append(s.main, metaCluster{g.Cluster(off), metaActiveL2})
		}
	}
	sp := o.w.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	t := sp.mu.refs.table
	for i := range t.n {
		v, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		if off := layout.RefTableEntry(v).Offset(); off > 0 {
			s.main = append(s.main, metaCluster{g.Cluster(off), metaRefBlock})
		}
	}
	return nil
}

// addInactive adds the L2 tables of snapshots.
func (o *overlaps) addInactive(ctx context.Context, s *overlapSet) error {
	im := o.w.im
	for _, sn := range im.Snapshots() {
		t, err := newTable("L1 table of a snapshot", im.file, sn.L1TableOffset, int64(sn.L1Size), block.EventNone, im.budget)
		if err != nil {
			continue // check's business
		}
		for i := range t.n {
			v, err := t.get(ctx, i)
			if err != nil {
				t.close()
				return err
			}
			if off := layout.L1Entry(v).Offset(); off != 0 {
				s.main = append(s.main, metaCluster{im.geo.Cluster(off), metaInactiveL2})
			}
		}
		t.close()
	}
	return nil
}

// change replaces the set by a changed copy.
func (o *overlaps) change(f func(s *overlapSet)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.set.Load()
	if old == nil {
		return
	}
	s := &overlapSet{regions: old.regions, main: old.main, extra: slices.Clone(old.extra), gone: slices.Clone(old.gone)}
	f(s)
	if len(s.extra)+len(s.gone) > overlapExtra {
		main := make([]metaCluster, 0, len(s.main)+len(s.extra))
		for _, m := range s.main {
			if !slices.Contains(s.gone, m.cluster) {
				main = append(main, m)
			}
		}
		s.main = append(main, s.extra...)
		slices.SortFunc(s.main, func(a, b metaCluster) int { return compareCluster(a, b.cluster) })
		s.extra, s.gone = nil, nil
	}
	o.set.Store(s)
}

func (o *overlaps) add(off layout.HostOffset, class metaClass) {
	if o.w.opts.Overlap == OverlapNone || o.w.opts.Overlap == OverlapConstant {
		return
	}
	c := o.w.im.geo.Cluster(off)
	o.change(func(s *overlapSet) { s.extra = append(s.extra, metaCluster{c, class}) })
}

func (o *overlaps) addL2(off layout.HostOffset) { o.add(off, metaActiveL2) }

// remove forgets a table that is no longer metadata.
func (o *overlaps) remove(c clusters) {
	o.change(func(s *overlapSet) {
		in := func(m metaCluster) bool { return m.cluster >= c.at && m.cluster < c.end() }
		s.extra = slices.DeleteFunc(s.extra, in)
		i, _ := slices.BinarySearchFunc(s.main, c.at, compareCluster)
		for ; i < len(s.main) && in(s.main[i]); i++ {
			s.gone = append(s.gone, s.main[i].cluster)
		}
	})
}

func (o *overlaps) removeL2(off layout.HostOffset) { o.remove(clusters{o.w.im.geo.Cluster(off), 1}) }

// moved renews the regions after a table moved.
func (o *overlaps) moved() {
	o.change(func(s *overlapSet) {
		s.regions = nil
		o.addRegions(s)
	})
}

// newRefBlock implements spaceHost.
func (w *writer) newRefBlock(off layout.HostOffset) { w.over.add(off, metaRefBlock) }

// movedRefTable implements spaceHost.
func (w *writer) movedRefTable(old clusters) {
	w.im.updateFences()
	w.over.moved()
	w.mu.Lock()
	w.unlinkLocked(old, discardOther)
	w.mu.Unlock()
}

// dropCached implements spaceHost.
func (w *writer) dropCached(c clusters, tables bool) {
	g := w.im.geo
	off, n := g.ClusterOffset(c.at), c.n<<g.ClusterBits
	w.im.inflated.drop(off, n)
	if !tables {
		return
	}
	w.im.l2.drop(off, n)
	w.space.mu.refs.cache.drop(off, n)
	if s := w.over.set.Load(); s != nil && s.hasClusters(c) {
		w.over.remove(c)
	}
}

// hasClusters reports whether any of the clusters is listed.
func (s *overlapSet) hasClusters(c clusters) bool {
	i, _ := slices.BinarySearchFunc(s.main, c.at, compareCluster)
	if i < len(s.main) && s.main[i].cluster < c.end() {
		return true
	}
	return slices.ContainsFunc(s.extra, func(m metaCluster) bool { return m.cluster >= c.at && m.cluster < c.end() })
}
