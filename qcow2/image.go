package qcow2

import (
	"context"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// Image is an open qcow2 image: a block.Driver whose bytes are the virtual
// disk. Make a block.Device of it to use it. All methods are safe for any
// number of goroutines; the exceptions say so.
type Image struct {
	view // the active state

	file   *block.Device
	path   string
	geo    layout.Geometry
	opts   Options
	budget *Budget
	l2     *cache // L2 slices of all views

	crypt        bool // guest data is ciphertext
	zstd         bool // streams are zstd frames
	namesBacking bool // the header named a backing file when the image was opened

	backing  atomic.Pointer[block.Device]
	dataFile atomic.Pointer[block.Device]
	// backingKnown: somebody decided what the backing file is, if only that there is none.
	backingKnown atomic.Bool
	closed       atomic.Bool

	fences   atomic.Pointer[[]layout.Region] // what no data and no L2 table may lie in
	w        *writer                         // the writing half; nil if the image cannot be changed
	inflated *inflatedCache
	prealloc preallocation
	// sparseFrom: from so many bytes of loaded L2 slices on, ask for holes first; 0 = not known yet.
	sparseFrom atomic.Int64

	mu struct {
		sync.RWMutex
		header        *layout.Header
		snapshots     []layout.Snapshot
		snapshotBytes int64 // length of the snapshot table in the file
		views         int   // open snapshot views
	}
}

var _ block.Driver = (*Image)(nil)
var _ block.Chained = (*Image)(nil)

// ReadHeader reads and validates cluster 0 of a file: what a caller needs to
// decide about backing file and data file before it opens them.
func ReadHeader(ctx context.Context, file *block.Device, checkMode bool) (*layout.Header, error) {
	mode := layout.Strict
	if checkMode {
		mode = layout.CheckMode
	}
	first := make([]byte, min(512, file.Size()))
	if err := readFile(ctx, file, first, 0); err != nil {
		return nil, err
	}
	n, err := layout.Cluster0Size(first)
	if err != nil {
		return nil, wrapLayout("open", file.Path(), err)
	}
	cluster0 := make([]byte, min(int64(n), file.Size()))
	if err := readFile(ctx, file, cluster0, 0); err != nil {
		return nil, err
	}
	h, err := layout.ParseHeader(cluster0, mode)
	if err != nil {
		return nil, wrapLayout("open", file.Path(), err)
	}
	return h, nil
}

// readFile reads p unless it is empty.
func readFile(ctx context.Context, file *block.Device, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	return file.Read(ctx, p, off)
}

// Open opens the image in file, which the image owns from then on: Close
// closes it. On an error the file stays the caller's.
//
// Nothing but the header, the snapshot table and the bitmap directory is read.
// Backing file and data file are given by the options or set afterwards; Open
// never opens a file itself.
func Open(ctx context.Context, file *block.Device, o Options) (*Image, error) {
	h, err := ReadHeader(ctx, file, o.CheckMode)
	if err != nil {
		return nil, err
	}
	o.ReadOnly = o.ReadOnly || file.Geometry().ReadOnly
	if !o.ReadOnly && !o.CheckMode {
		if h, err = repairDirty(ctx, file, h); err != nil {
			return nil, err
		}
	}
	im := &Image{file: file, path: file.Path(), geo: h.Geometry(), opts: o, budget: o.Budget}
	if im.budget == nil {
		size := o.CacheSize
		if size == 0 {
			size = DefaultCacheSize
		}
		im.budget = NewBudget(size)
	}
	im.mu.header = h
	im.crypt = h.CryptMethod != layout.CryptNone
	im.zstd = h.CompressionType == layout.CompressionZstd
	im.namesBacking = h.BackingFile != ""
	if err := im.load(ctx, h); err != nil {
		im.drop()
		return nil, err
	}
	if o.Backing != nil {
		im.SetBacking(o.Backing)
	}
	if o.DataFile != nil {
		im.SetDataFile(o.DataFile)
	}
	if !o.ReadOnly && !o.CheckMode {
		if err := im.openWriter(ctx); err != nil {
			im.drop()
			return nil, err
		}
	}
	return im, nil
}

// load reads and checks what the header points to.
func (im *Image) load(ctx context.Context, h *layout.Header) error {
	if h.CryptMethod == layout.CryptLUKS && h.Crypto == nil {
		return im.corrupt("open", 32, "encrypted with LUKS, but the encryption header extension is missing")
	}
	if end := int64(h.RefcountTableOffset) + int64(h.RefcountTableClusters)<<h.ClusterBits; !im.opts.CheckMode && end > im.file.Size() {
		return im.corrupt("open", h.RefcountTableOffset, "the refcount table of %d clusters does not fit into the file of %d bytes",
			h.RefcountTableClusters, im.file.Size())
	}
	im.view.im, im.view.active = im, true
	im.view.size.Store(h.VirtualSize())
	im.l2 = newCache("L2 table", im.file, im.l2SliceSize(h), block.EventL2Load, im.budget)
	im.inflated = newInflatedCache(im.geo.ClusterSize())
	if err := im.view.openL1(h.L1TableOffset, int64(h.L1Size)); err != nil {
		return err
	}
	if err := im.loadSnapshots(ctx, h); err != nil {
		return err
	}
	im.updateFences()
	_, err := im.readBitmaps(ctx, h)
	return err
}

// l2SliceSize chooses the unit of the L2 cache: small slices where the cache
// cannot hold the tables of the whole disk, so that a miss costs little.
func (im *Image) l2SliceSize(h *layout.Header) int64 {
	cs := im.geo.ClusterSize()
	if n := im.opts.L2SliceSize; n >= 512 && n&(n-1) == 0 {
		return min(n, cs)
	}
	if tables := im.geo.Clusters(h.VirtualSize()) * int64(im.geo.L2EntrySize()); tables > im.budget.Limit() {
		return min(4<<10, cs)
	}
	return min(16<<10, cs)
}

// updateFences notes which ranges no guest data and no L2 table may lie in:
// header, active L1 table, refcount table, snapshot table (qcow2-format §0).
// Call it after any of them moved.
func (im *Image) updateFences() {
	im.mu.RLock()
	defer im.mu.RUnlock()
	h := im.mu.header
	f := append(h.Regions()[:3:3], layout.Region{Name: "snapshot table", Offset: h.SnapshotsOffset, Length: im.mu.snapshotBytes})
	im.fences.Store(&f)
}

// fenced returns the error for an access to [off, off+n) that lies in a fenced region.
func (im *Image) fenced(op string, off layout.HostOffset, n int64) error {
	for _, r := range *im.fences.Load() {
		if r.Overlaps(off, n) {
			return im.corrupt(op, off, "overlaps the %s at offset %#x", r.Name, int64(r.Offset))
		}
	}
	return nil
}

// SetBacking decides where unallocated clusters come from; nil stands for
// zeros. The image owns dev from then on; a device that it replaces is the
// caller's again.
func (im *Image) SetBacking(dev *block.Device) (old *block.Device) {
	old = im.backing.Swap(dev)
	im.backingKnown.Store(true)
	return old
}

// SetDataFile gives the external data file, which the image owns from then on.
func (im *Image) SetDataFile(dev *block.Device) { im.dataFile.Store(dev) }

// Backing implements block.Chained.
func (im *Image) Backing() *block.Device { return im.backing.Load() }

// DataFile implements block.Chained.
func (im *Image) DataFile() *block.Device { return im.dataFile.Load() }

// File implements block.Chained.
func (im *Image) File() *block.Device { return im.file }

// Header returns a copy of the header as it is now; slices and pointers in it
// are shared and must not be changed.
func (im *Image) Header() layout.Header {
	im.mu.RLock()
	defer im.mu.RUnlock()
	return *im.mu.header
}

// LayoutGeometry is what the format's arithmetic depends on.
func (im *Image) LayoutGeometry() layout.Geometry { return im.geo }

// Geometry implements block.Driver.
func (im *Image) Geometry() block.Geometry {
	return block.Geometry{
		Path:         im.path,
		RequestAlign: 1,
		MemAlign:     im.file.Geometry().MemAlign,
		OptTransfer:  im.geo.ClusterSize(),
		ZeroAlign:    im.geo.SubclusterSize(),
		DiscardAlign: im.geo.ClusterSize(),
		ClusterSize:  im.geo.ClusterSize(),
		MaxSize:      im.geo.MaxDiskSize(),
		ReadOnly:     im.opts.ReadOnly,
		ZeroInit:     true,
		QuickZero:    im.geo.Version >= 3,
		Unmap:        true,
	}
}

// Size implements block.Driver.
func (im *Image) Size() int64 { return im.view.size.Load() }

// drop gives back memory and leaves all devices alone.
func (im *Image) drop() {
	if t := im.view.l1.Load(); t != nil {
		t.close()
	}
	if im.l2 != nil {
		im.l2.close()
	}
}

// closeDevices closes file, data file and backing file and returns the first error.
func (im *Image) closeDevices() error {
	err := im.file.Close()
	for _, d := range []*block.Device{im.dataFile.Swap(nil), im.backing.Swap(nil)} {
		if d == nil {
			continue
		}
		if e := d.Close(); err == nil {
			err = e
		}
	}
	return err
}
