package qcow2

import (
	"context"
	"sync"

	"byre/block"
	"byre/qcow2/layout"
)

// Extent implements block.Driver. One call walks at most one L2 slice, or any
// number of absent L2 tables.
func (im *Image) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	return im.view.extent(ctx, off, n, q)
}

func (v *view) extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	var m mapping
	if err := v.lookup(ctx, off, n, lookupRuns, &m); err != nil {
		return block.Extent{}, err
	}
	e := block.Extent{Start: off, Length: m.n}
	switch m.typ {
	case layout.TypeZeroPlain:
		e.Flags = block.Zero | block.Allocated
	case layout.TypeZeroAlloc:
		e.Flags = block.Zero | block.Allocated
		v.im.setHost(&e, m.host)
	case layout.TypeCompressed:
		e.Flags = block.Data | block.Allocated | block.CompressedData
	case layout.TypeNormal:
		e.Flags = block.Data | block.Allocated
		v.im.setHost(&e, m.host)
		if err := v.im.refineData(ctx, &e, q); err != nil {
			return block.Extent{}, err
		}
	default:
		if m.typ == layout.TypeUnallocatedAlloc {
			v.im.setHost(&e, m.host)
		}
		if err := v.im.extentBelow(ctx, &e, q); err != nil {
			return block.Extent{}, err
		}
	}
	if e.End() >= v.size.Load() {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

// setHost names the place of the extent; ciphertext has none that could be read there.
func (im *Image) setHost(e *block.Extent, host layout.HostOffset) {
	if im.crypt {
		return
	}
	e.Flags |= block.HasHost
	e.Host, e.File = int64(host), im.path
	if im.geo.DataFile {
		if dev := im.dataFile.Load(); dev != nil {
			e.File = dev.Path()
		}
		e.FileExtra = true
	}
}

// extentBelow answers for a range that this layer leaves to its backing file.
func (im *Image) extentBelow(ctx context.Context, e *block.Extent, q block.Query) error {
	dev := im.backing.Load()
	if dev == nil {
		if q&block.TopOnly == 0 {
			if err := im.needBacking(); err != nil {
				return err
			}
		}
		if !im.namesBacking || im.backingKnown.Load() {
			e.Flags |= block.Zero
		}
		return nil
	}
	size := dev.Size()
	if e.Start >= size {
		e.Flags |= block.Zero
		return nil
	}
	if q&block.TopOnly != 0 {
		return nil
	}
	below, err := dev.Extent(ctx, e.Start, min(e.Length, size-e.Start), q)
	if err != nil {
		return err
	}
	below.Depth++
	below.Flags &^= block.EOFExtent
	*e = below
	return nil
}

// refineData finds the holes of the host file, or of the external data file,
// in data, if the image seems to be preallocated (qcow2-format §3.10: the image
// file decides, also when the data lies in another).
func (im *Image) refineData(ctx context.Context, e *block.Extent, q block.Query) error {
	if q&block.WantZero == 0 || e.Flags&block.HasHost == 0 {
		return nil
	}
	dev := im.file
	if e.FileExtra {
		if dev = im.dataFile.Load(); dev == nil {
			return nil
		}
	}
	if on, err := im.preallocated(ctx); err != nil || !on {
		return err
	}
	if e.Host >= dev.Size() {
		return nil
	}
	h, err := dev.Extent(ctx, e.Host, min(e.Length, dev.Size()-e.Host), q)
	if err != nil {
		return err
	}
	if h.Length < e.Length {
		e.Length = h.Length
	}
	if h.IsZero() {
		e.Flags |= block.Zero
	}
	return nil
}

// preallocation is the answer of the heuristic, found once.
type preallocation struct {
	sync.Mutex
	known, on bool
}

// AllocatedSize is how many bytes the image file takes on disk; ok is false if
// the storage cannot tell.
func (im *Image) AllocatedSize(ctx context.Context) (n int64, ok bool, err error) {
	a, ok := im.file.Driver().(block.AllocatedSizer)
	if !ok {
		return 0, false, nil
	}
	n, err = a.AllocatedSize(ctx)
	return n, true, err
}

// preallocated tells whether the image counts many more clusters than its file
// holds on disk: with u clusters counted and r bytes allocated in clusters,
// u ≥ max(r·10/9, r+2).
func (im *Image) preallocated(ctx context.Context) (bool, error) {
	p := &im.prealloc
	p.Lock()
	defer p.Unlock()
	if p.known {
		return p.on, nil
	}
	real, ok, err := im.AllocatedSize(ctx)
	if err != nil || !ok {
		return false, err
	}
	r := real >> im.geo.ClusterBits
	p.on, err = im.countsAtLeast(ctx, max(r*10/9, r+2), r)
	p.known = err == nil
	return p.on, err
}

// countsAtLeast tells whether at least threshold host clusters within the file
// have a refcount that is not 0. real is how many clusters the file holds on
// disk; it bounds the work: no more refcount blocks than that can hold
// anything, whatever the table says.
func (im *Image) countsAtLeast(ctx context.Context, threshold, real int64) (bool, error) {
	h := im.Header()
	rt, err := newTable("refcount table", im.file, h.RefcountTableOffset, int64(h.RefcountTableClusters)<<h.ClusterBits/8, block.EventReftableLoad, im.budget)
	if err != nil {
		return false, err
	}
	defer rt.close()
	g := im.geo
	perBlock := int64(g.RefcountsPerBlock())
	clusters := g.Clusters(im.file.Size())
	buf := make([]byte, g.ClusterSize())
	var counted, blocks int64
	for i := int64(0); i < rt.n && i*perBlock < clusters && counted < threshold; i++ {
		word, err := rt.get(ctx, i)
		if err != nil {
			return false, err
		}
		off := layout.RefTableEntry(word).Offset()
		if off == 0 {
			continue
		}
		if blocks++; blocks > real+16 {
			return false, nil
		}
		if !g.Aligned(off) || off < 0 || int64(off) > im.file.Size()-g.ClusterSize() {
			return false, nil // damaged counts decide nothing; check tells
		}
		if err := im.file.Read(ctx, buf, int64(off)); err != nil {
			return false, err
		}
		counted += int64(layout.CountNonzero(buf, g.RefcountOrder, int(min(perBlock, clusters-i*perBlock))))
	}
	return counted >= threshold, nil
}
