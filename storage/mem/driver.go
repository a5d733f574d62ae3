package mem

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"byre/block"
)

var errNegative = errors.New("negative offset or size, or a range that is too long")

// Options say how a file is opened.
type Options struct {
	ReadOnly bool
	// Fixed: like a block device, neither grown by writes nor by Resize.
	Fixed bool
	// SlowZero: zeroing without fallback is refused (KindUnsupported), as on storage that knows no quick zeros.
	SlowZero bool
	// GrowStep rounds up what GrowTo adds, bytes; 0 = exact.
	GrowStep int64
	// Geometry, if not nil, may change what Driver.Geometry tells (alignments, limits).
	Geometry func(*block.Geometry)
}

// Driver is an open File. It implements block.Driver and block.FreshSpace. Requests are done when they return, in the
// order of their events; durable is only what was flushed.
type Driver struct {
	f      *File
	o      Options
	geo    block.Geometry
	closed atomic.Bool
	fresh  atomic.Int64 // see FreshFrom; unbounded by the size
}

var (
	_ block.Driver     = (*Driver)(nil)
	_ block.FreshSpace = (*Driver)(nil)
)

// New gives a driver on a fresh file of size zero bytes that records nothing.
func New(size int64) *Driver { return NewFile("mem", size).Open(Options{}) }

// Open gives a driver on the file. Several may be open at once.
func (f *File) Open(o Options) *Driver {
	d := &Driver{f: f, o: o, geo: block.Geometry{
		Path:         f.name,
		RequestAlign: 1,
		MemAlign:     1,
		ReadOnly:     o.ReadOnly,
		Growable:     !o.Fixed,
		ZeroInit:     true,
		QuickZero:    !o.SlowZero,
		Unmap:        true,
	}}
	if o.Geometry != nil {
		o.Geometry(&d.geo)
	}
	d.fresh.Store(f.Size())
	return d
}

// File is the file below.
func (d *Driver) File() *File { return d.f }

func (d *Driver) Geometry() block.Geometry { return d.geo }
func (d *Driver) Size() int64              { return d.f.Size() }

// limit is where writes end.
func (d *Driver) limit() int64 {
	if d.geo.Growable {
		return math.MaxInt64
	}
	return d.f.Size()
}

func (d *Driver) open(op string, off int64) error {
	if d.closed.Load() {
		return block.Errorf(block.KindInvalid, op, d.geo.Path, off, "closed")
	}
	return nil
}

func (d *Driver) ReadvAt(_ context.Context, iov [][]byte, off int64) error {
	if err := d.open("read", off); err != nil {
		return err
	}
	d.f.lock.RLock()
	defer d.f.lock.RUnlock()
	for _, p := range iov {
		d.f.mu.tree.read(p, uint64(off))
		off += int64(len(p))
	}
	return nil
}

func (d *Driver) WritevAt(_ context.Context, iov [][]byte, off int64, flags block.Flags) error {
	if err := d.open("write", off); err != nil {
		return err
	}
	if flags&block.Compressed != 0 {
		return block.Errorf(block.KindUnsupported, "write", d.geo.Path, off, "memory stores nothing compressed")
	}
	var n int64
	for _, p := range iov {
		n += int64(len(p))
	}
	d.issue(off + n)
	d.f.write(iov, off, n, d.limit(), flags&block.FUA != 0)
	return nil
}

func (d *Driver) ZeroAt(_ context.Context, off, n int64, flags block.Flags) error {
	if err := d.open("write zeroes", off); err != nil {
		return err
	}
	if d.o.SlowZero && flags&block.NoFallback != 0 {
		return block.Errorf(block.KindUnsupported, "write zeroes", d.geo.Path, off, "no quick way")
	}
	d.issue(off + n)
	d.f.zero(off, n, d.limit(), flags&block.FUA != 0)
	return nil
}

func (d *Driver) DiscardAt(_ context.Context, off, n int64) error {
	if err := d.open("discard", off); err != nil {
		return err
	}
	d.f.punch(off, n)
	return nil
}

func (d *Driver) Flush(context.Context) error {
	if err := d.open("flush", block.NoOffset); err != nil {
		return err
	}
	d.f.flush()
	return nil
}

func (d *Driver) Extent(_ context.Context, off, n int64, _ block.Query) (block.Extent, error) {
	d.f.lock.RLock()
	defer d.f.lock.RUnlock()
	end := min(off+n, d.f.mu.size)
	if off >= end {
		return block.Extent{}, block.Errorf(block.KindOutOfBounds, "query extent", d.geo.Path, off, "beyond the end")
	}
	data, stop := d.f.mu.tree.run(uint64(off), uint64(end))
	e := block.Extent{Start: off, Length: int64(stop) - off, Host: off, File: d.geo.Path,
		Flags: block.Allocated | block.HasHost | block.Zero}
	if data {
		e.Flags ^= block.Zero | block.Data
	}
	if e.End() == d.f.mu.size {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

func (d *Driver) Resize(_ context.Context, size int64, _ block.ResizeOptions) error {
	if err := d.open("resize", block.NoOffset); err != nil {
		return err
	}
	if d.o.Fixed && size != d.f.Size() {
		return block.Errorf(block.KindUnsupported, "resize", d.geo.Path, block.NoOffset, "the size is fixed")
	}
	d.f.resize(size)
	for { // as after a cut: what comes back when it grows again is fresh
		old := d.fresh.Load()
		if old <= size || d.fresh.CompareAndSwap(old, size) {
			return nil
		}
	}
}

// Close ends the use of this driver; the file stays.
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return block.Errorf(block.KindInvalid, "close", d.geo.Path, block.NoOffset, "closed twice")
	}
	return nil
}

// GrowTo extends the file to size, rounded up to the step of the options; a longer file stays as it is.
func (d *Driver) GrowTo(_ context.Context, size int64) (int64, error) {
	if err := d.open("grow", block.NoOffset); err != nil {
		return 0, err
	}
	if d.o.Fixed {
		return 0, block.Errorf(block.KindUnsupported, "grow", d.geo.Path, block.NoOffset, "the size is fixed")
	}
	d.f.lock.Lock()
	defer d.f.lock.Unlock()
	if size <= d.f.mu.size {
		return d.f.mu.size, nil
	}
	if s := d.o.GrowStep; s > 0 && size <= math.MaxInt64-s {
		size = (size + s - 1) / s * s
	}
	d.f.resizeLocked(size)
	return size, nil
}

// issue notes that bytes up to end are about to be written.
func (d *Driver) issue(end int64) {
	for {
		old := d.fresh.Load()
		if end <= old || d.fresh.CompareAndSwap(old, end) {
			return
		}
	}
}

// FreshFrom is the offset from which on nothing was written through this driver; it starts as the size at open.
func (d *Driver) FreshFrom() int64 { return min(d.fresh.Load(), d.f.Size()) }

// CutTo shortens the file to size, unless something was written behind that.
func (d *Driver) CutTo(_ context.Context, size int64) error {
	if err := d.open("cut", block.NoOffset); err != nil {
		return err
	}
	if d.o.Fixed {
		return block.Errorf(block.KindUnsupported, "cut", d.geo.Path, block.NoOffset, "the size is fixed")
	}
	d.f.lock.Lock()
	defer d.f.lock.Unlock()
	if size >= d.f.mu.size {
		return nil
	}
	if fresh := d.fresh.Load(); size < fresh {
		return block.Errorf(block.KindInvalid, "cut", d.geo.Path, block.NoOffset, "written up to %d, beyond %d", fresh, size)
	}
	d.f.resizeLocked(size)
	return nil
}
