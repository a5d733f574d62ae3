package block

import (
	"context"
	"io"
	"math"
	"sync"
	"sync/atomic"
)

// Device wraps a driver and gives everybody above the same guarantees (see the package comment). It is safe for any
// number of goroutines, and is an io.ReaderAt and io.WriterAt.
type Device struct {
	drv    Driver
	geo    Geometry
	sink   EventSink // nil unless the driver listens to events
	closed atomic.Bool
	vecs   sync.Pool // *[1][]byte: the vector of a single-buffer request, without an allocation
}

// NewDevice wraps drv, which the device owns from now on: Close closes it.
func NewDevice(drv Driver) *Device {
	d := &Device{drv: drv, geo: drv.Geometry()}
	d.sink, _ = drv.(EventSink)
	d.vecs.New = func() any { return new([1][]byte) }
	return d
}

// Driver gives the driver below, for its optional interfaces. Data must not be moved past the device.
func (d *Device) Driver() Driver { return d.drv }

// Geometry of the driver.
func (d *Device) Geometry() Geometry { return d.geo }

// Path is what errors and listings call the device.
func (d *Device) Path() string { return d.geo.Path }

// Size is the current length in bytes.
func (d *Device) Size() int64 { return d.drv.Size() }

// Event passes a named step to the driver if it listens. It costs a nil check otherwise.
func (d *Device) Event(ctx context.Context, e Event) error {
	if d.sink == nil {
		return nil
	}
	return d.sink.Event(ctx, e)
}

// ReadAt implements io.ReaderAt: a read that reaches the end returns what is there and io.EOF.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	return d.ReadAtContext(context.Background(), p, off)
}

// ReadAtContext is ReadAt with a context.
func (d *Device) ReadAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	size := d.Size()
	if off < 0 {
		return 0, d.err(KindInvalid, "read", off, "negative offset")
	}
	if off >= size {
		return 0, io.EOF
	}
	var eof error
	if int64(len(p)) > size-off {
		p, eof = p[:size-off], io.EOF
	}
	if err := d.Read(ctx, p, off); err != nil {
		return 0, err
	}
	return len(p), eof
}

// WriteAt implements io.WriterAt.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	if err := d.Write(context.Background(), p, off, 0); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read fills p from off; all of [off, off+len(p)) must lie inside.
func (d *Device) Read(ctx context.Context, p []byte, off int64) error {
	v := d.vecs.Get().(*[1][]byte)
	v[0] = p
	err := d.Readv(ctx, v[:], off)
	v[0] = nil
	d.vecs.Put(v)
	return err
}

// Write writes p at off. Flags as for Writev.
func (d *Device) Write(ctx context.Context, p []byte, off int64, flags Flags) error {
	v := d.vecs.Get().(*[1][]byte)
	v[0] = p
	err := d.Writev(ctx, v[:], off, flags)
	v[0] = nil
	d.vecs.Put(v)
	return err
}

// Readv fills the buffers of iov in order from off. An empty request is a successful no-op.
func (d *Device) Readv(ctx context.Context, iov [][]byte, off int64) error {
	n, err := d.check("read", off, iovLen(iov), false)
	if err != nil || n == 0 {
		return err
	}
	return d.drv.ReadvAt(ctx, iov, off)
}

// Writev writes the buffers of iov in order at off. Flags: FUA, Compressed, Serialising, NoWait.
func (d *Device) Writev(ctx context.Context, iov [][]byte, off int64, flags Flags) error {
	n, err := d.check("write", off, iovLen(iov), true)
	if err != nil || n == 0 {
		return err
	}
	return d.drv.WritevAt(ctx, iov, off, flags)
}

// Zero makes [off, off+n) read as zeros. Flags: FUA, MayUnmap, NoFallback, Serialising, NoWait.
func (d *Device) Zero(ctx context.Context, off, n int64, flags Flags) error {
	n, err := d.check("write zeroes", off, n, true)
	if err != nil || n == 0 {
		return err
	}
	return d.drv.ZeroAt(ctx, off, n, flags)
}

// Discard says that [off, off+n) is no longer needed.
func (d *Device) Discard(ctx context.Context, off, n int64) error {
	n, err := d.check("discard", off, n, true)
	if err != nil || n == 0 {
		return err
	}
	return d.drv.DiscardAt(ctx, off, n)
}

// Flush makes every request that completed before the call durable.
func (d *Device) Flush(ctx context.Context) error {
	if d.closed.Load() {
		return d.err(KindInvalid, "flush", NoOffset, "device is closed")
	}
	return d.drv.Flush(ctx)
}

// Extent answers what is at off, for at most n bytes; n is clipped to the end.
func (d *Device) Extent(ctx context.Context, off, n int64, q Query) (Extent, error) {
	size := d.Size()
	if off < 0 || off >= size || n <= 0 {
		return Extent{}, d.err(KindOutOfBounds, "query extent", off, "beyond the end")
	}
	e, err := d.drv.Extent(ctx, off, min(n, size-off), q)
	if err == nil && (e.Start != off || e.Length <= 0 || e.Length > n) {
		return Extent{}, d.err(KindIO, "query extent", off, "driver answered for another range")
	}
	return e, err
}

// Resize changes the length.
func (d *Device) Resize(ctx context.Context, size int64, o ResizeOptions) error {
	switch {
	case size < 0:
		return d.err(KindInvalid, "resize", NoOffset, "negative size")
	case d.geo.MaxSize > 0 && size > d.geo.MaxSize:
		return d.err(KindOutOfBounds, "resize", NoOffset, "larger than this layer can be")
	case d.closed.Load():
		return d.err(KindInvalid, "resize", NoOffset, "device is closed")
	case d.geo.ReadOnly:
		return d.err(KindInvalid, "resize", NoOffset, "opened read-only")
	}
	return d.drv.Resize(ctx, size, o)
}

// Close closes the driver.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return d.err(KindInvalid, "close", NoOffset, "closed twice")
	}
	return d.drv.Close()
}

func (d *Device) err(k Kind, op string, off int64, msg string) error {
	return &Error{Kind: k, Op: op, Path: d.geo.Path, Offset: off, Msg: msg}
}

// check validates a request of n bytes at off.
func (d *Device) check(op string, off, n int64, write bool) (int64, error) {
	limit := d.drv.Size()
	if write && d.geo.Growable {
		limit = math.MaxInt64
		if d.geo.MaxSize > 0 {
			limit = d.geo.MaxSize
		}
	}
	switch {
	case d.closed.Load():
		return 0, d.err(KindInvalid, op, off, "device is closed")
	case off < 0 || n < 0:
		return 0, d.err(KindInvalid, op, off, "negative offset or length")
	case off > limit || n > limit-off:
		return 0, d.err(KindOutOfBounds, op, off, "beyond the end")
	case write && d.geo.ReadOnly:
		return 0, d.err(KindInvalid, op, off, "opened read-only")
	}
	return n, nil
}

func iovLen(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}
