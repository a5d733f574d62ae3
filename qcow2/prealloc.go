package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// preallocate gives every cluster of the guest range [from, to) a place, and reserves the space on the host as mode
// says. What it reads as does not change: zeros or, with extended L2 entries, what the backing file has. The gate is
// held exclusively.
func (w *writer) preallocate(ctx context.Context, from, to int64, mode block.PreallocMode, progress func(done, total int64)) error {
	g := w.im.geo
	start := g.FloorCluster(from)
	end := (to + g.ClusterSize() - 1) &^ (g.ClusterSize() - 1)
	r := new(writeReq)
	for at := start; at < end; at += r.part {
		r.off, r.n, r.at = at, end-at, -1
		if err := w.preallocatePart(ctx, r, mode); err != nil {
			return err
		}
		if progress != nil {
			progress(at+r.part-start, end-start)
		}
		if err := w.relieve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// maxPreallocRun bounds what is reserved and linked at once, in bytes.
const maxPreallocRun = 256 << 20

func (w *writer) preallocatePart(ctx context.Context, r *writeReq, mode block.PreallocMode) error {
	g := w.im.geo
	r.n = min(r.n, maxPreallocRun)
	s, _, _, err := w.writableSlice(ctx, r.off)
	if err != nil {
		return err
	}
	defer s.release()
	index := w.indexIn(s, r.off)
	s.RLock()
	skip := int64(0) // clusters that have a place already
	n := int64(0)    // clusters behind them that need one
	for i := index; i < len(s.data)/g.L2EntrySize() && (skip+n)<<g.ClusterBits < r.n; i++ {
		x := w.entryAt(s.data, i)
		if has := x.e.Compressed() || w.hasHost(x); has && n > 0 {
			break
		} else if has {
			skip++
		} else {
			n++
		}
	}
	s.RUnlock()
	r.part = (skip + n) << g.ClusterBits
	if n == 0 {
		return nil
	}
	f := &r.f
	*f = flight{guest: r.off + skip<<g.ClusterBits, n: n, slot: s, index: index + int(skip)}
	if err := w.place(ctx, r); err != nil {
		return err
	}
	r.part = skip<<g.ClusterBits + f.n<<g.ClusterBits
	if err := w.reserve(ctx, f, mode); err != nil {
		if !g.DataFile {
			w.space.giveBack(clusters{g.Cluster(f.host), f.n})
		}
		return err
	}
	if err := w.dirtyForLink(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	s.Lock()
	for i := range f.n {
		w.linkPreallocated(f, i)
	}
	w.im.l2.markDirty(s)
	s.Unlock()
	w.mu.Unlock()
	return nil
}

// reserve does to the host clusters of f what mode says. Clusters that do not read as zeros are linked as zero clusters
// if the format has these.
func (w *writer) reserve(ctx context.Context, f *flight, mode block.PreallocMode) error {
	g := w.im.geo
	if g.DataFile {
		return nil // done by the data file's own resize
	}
	off, n := int64(f.host), f.n<<g.ClusterBits
	if mode == block.PreallocFull || !f.fresh && g.Version < 3 {
		for at := int64(0); at < n; at += int64(len(zeroBytes)) {
			if err := w.im.file.Write(ctx, zeroBytes[:min(n-at, int64(len(zeroBytes)))], off+at, 0); err != nil {
				return err
			}
		}
		w.order.image.note()
		f.fresh = true
		return nil
	}
	if mode != block.PreallocFalloc {
		return nil
	}
	p, ok := w.im.file.Driver().(block.Preallocator)
	if !ok {
		return block.Errorf(block.KindUnsupported, "preallocate", w.im.path, off, "the storage cannot reserve space")
	}
	return p.Preallocate(ctx, off, n)
}

// linkPreallocated links cluster i of f. Subclusters keep what they read as (qcow2-format §10.4).
func (w *writer) linkPreallocated(f *flight, i int64) {
	g := w.im.geo
	data, at := f.slot.data, f.index+int(i)
	old := w.entryAt(data, at)
	e := layout.MakeL2Entry(f.host+layout.HostOffset(i<<g.ClusterBits), true)
	h := w.im.Header()
	switch {
	case g.ExtendedL2 && h.HasAutoclear(layout.AutoclearRawData):
		old.b = layout.BitmapAllAlloc
	case !g.ExtendedL2 && g.Version >= 3 && !f.fresh && !g.DataFile:
		e = e.WithZero(true)
	}
	w.putEntry(data, at, l2Entry{e, old.b})
}
