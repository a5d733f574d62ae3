package qcow2

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// writer is the writing half of an open image. What it does and why it is right is told in docs/engine.md.
//
// Locks, outermost first:
//
//   - gate: shared by every request that changes something or flushes; exclusive for operations that need a point
//     between requests (snapshots, resize, close);
//   - committing: one commit at a time;
//   - tables: making an L2 table writable;
//   - space.mu: refcounts and the allocator, over the rare I/O they do;
//   - mu: flights and every edit of L2 entries; memory only, no I/O;
//   - locks of single slices, tables, the quarantine: leaves.
type writer struct {
	im    *Image
	opts  WriteOptions
	space *space
	order *ordering
	quar  quarantine
	over  overlaps

	gate       sync.RWMutex
	committing sync.Mutex
	tables     sync.Mutex

	ready atomic.Bool           // duties of the first change are done
	broke atomic.Pointer[error] // every further change is refused with this
	lazy  atomic.Bool           // the dirty bit is durable: counts need not be
	start sync.Mutex            // held for what comes once a session: prepare, dirtyForLink

	mu struct {
		sync.Mutex
		flights  []*flight
		queue    []*ticket // requests that had to wait, in the order of their arrival
		unlinked []freed   // lost a reference in memory; the removal is not durable
		count    int64     // clusters in unlinked
	}

	reqs        sync.Pool // *writeReq
	compressors sync.Pool // *Compressor
}

// WriteOptions are the run-time choices of the writing half.
type WriteOptions struct {
	Dependency Dependency
	ZeroPolicy ZeroPolicy

	// Discard says that guest discards, and zeroes that may unmap, give space back to the host.
	Discard bool
	// KeepSnapshotSpace and PunchOther change what happens to the place of clusters that snapshot operations and moved
	// tables free: by default the first is given back to the host, the second is not.
	KeepSnapshotSpace bool
	PunchOther        bool
	// DiscardNoUnref: discards and zeroes keep clusters and their counts.
	DiscardNoUnref bool
	// LazyRefcounts overrides the image's compatible feature bit.
	LazyRefcounts *bool
	// Overlap says how hard writes are checked against metadata.
	Overlap OverlapCheck
}

// ZeroPolicy says how zeros get into clusters that do not read as zeros yet.
type ZeroPolicy uint8

const (
	// ZeroAuto writes small zeros along with the data and asks the file to zero large ranges.
	ZeroAuto ZeroPolicy = iota
	// ZeroRange always asks the file, where it can zero quickly.
	ZeroRange
	// ZeroWrite always writes them.
	ZeroWrite
)

var zeroPolicyNames = [...]string{"auto", "range", "write"}

func (z ZeroPolicy) String() string { return zeroPolicyNames[z] }

// ParseZeroPolicy finds a policy by its name.
func ParseZeroPolicy(s string) (ZeroPolicy, bool) {
	for i, n := range zeroPolicyNames {
		if n == s {
			return ZeroPolicy(i), true
		}
	}
	return 0, false
}

// openWriter makes im writable. Nothing is written yet.
func (im *Image) openWriter(ctx context.Context) error {
	h := im.Header()
	if h.HasIncompatible(layout.IncompatCorrupt) {
		return im.corrupt("open", 72, "the image is marked corrupt and can be opened for reading only")
	}
	if err := h.OverlapError(); err != nil {
		return wrapLayout("open", im.path, err)
	}
	t, err := newTable("refcount table", im.file, h.RefcountTableOffset, int64(h.RefcountTableClusters)<<h.ClusterBits/8,
		block.EventReftableLoad, im.budget)
	if err != nil {
		return err
	}
	w := &writer{im: im, opts: im.opts.Write, order: newOrdering(im)}
	w.reqs.New = func() any { return new(writeReq) }
	w.over.w = w
	w.space = newSpace(im, t, w.order, w)
	w.space.mu.refs.cache.beforeWrite = func(ctx context.Context, off layout.HostOffset, n int64) error {
		if err := im.file.Event(ctx, block.EventRefblockUpdate); err != nil {
			return err
		}
		return w.checkOverlap(ctx, off, n, metaRefBlock)
	}
	im.w = w
	return nil
}

// prepare does what must precede the first change of a session, and refuses changes after a fatal error.
func (w *writer) prepare(ctx context.Context) error {
	if err := w.broke.Load(); err != nil {
		return *err
	}
	if w.ready.Load() {
		return nil
	}
	w.start.Lock()
	defer w.start.Unlock()
	if w.ready.Load() {
		return nil
	}
	im := w.im
	if im.crypt {
		return block.Errorf(block.KindUnsupported, "write", im.path, block.NoOffset, "the image is encrypted")
	}
	if im.geo.DataFile && im.DataFile() == nil {
		return block.Errorf(block.KindRefused, "write", im.path, block.NoOffset, "the external data file is not open")
	}
	if err := w.clearAutoclear(ctx); err != nil {
		return err
	}
	w.ready.Store(true)
	return nil
}

// fail refuses every further change with err: what is in memory and what is in the file may disagree.
// The first error counts; first tells whether this is it.
func (w *writer) fail(err error) (first bool) { return w.broke.CompareAndSwap(nil, &err) }

// corruption marks the image corrupt if err says that its metadata is impossible, and returns err.
func (w *writer) corruption(ctx context.Context, err error) error {
	if errors.Is(err, block.ErrCorrupt) {
		w.markCorrupt(ctx, err)
	}
	return err
}

// dataDevice is where guest data lies.
func (w *writer) dataDevice() (*block.Device, *barrier) {
	if w.im.geo.DataFile {
		return w.im.DataFile(), &w.order.data
	}
	return w.im.file, &w.order.image
}

// unlinkLocked notes that a run of clusters lost a reference by an edit that is made under the same hold of mu.
func (w *writer) unlinkLocked(c clusters, class discardClass) {
	if w.im.geo.DataFile && class != discardOther {
		return // clusters of a data file are not counted
	}
	m := &w.mu
	m.count += c.n
	if n := len(m.unlinked); n > 0 {
		if last := &m.unlinked[n-1]; last.class == class && last.end() == c.at {
			last.n += c.n
			return
		}
	}
	m.unlinked = append(m.unlinked, freed{c, class})
}

// unlinkEntryLocked does so for what an L2 entry pointed to.
func (w *writer) unlinkEntryLocked(e layout.L2Entry, class discardClass) {
	g := w.im.geo
	if e.Compressed() {
		c, ok := g.DecodeCompressed(e)
		if ok {
			first := g.Cluster(c.Offset)
			w.unlinkLocked(clusters{first, g.Cluster(c.End()-1) - first + 1}, class)
		}
		return
	}
	if off := e.Offset(); off != 0 {
		w.unlinkLocked(clusters{g.Cluster(off), 1}, class)
	}
}

// punches says whether the place of freed clusters is given back to the host.
func (w *writer) punches(c discardClass) bool {
	switch c {
	case discardRequest:
		return w.opts.Discard
	case discardSnapshot:
		return !w.opts.KeepSnapshotSpace
	case discardOther:
		return w.opts.PunchOther
	}
	return c == discardAlways
}
