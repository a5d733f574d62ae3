package block

import (
	"context"
	"io"
	"math"
	"sync/atomic"
)

// Device wraps a driver and gives everybody above the same guarantees (see the package comment). It is safe for any
// number of goroutines, and is an io.ReaderAt and io.WriterAt. A request of normal shape allocates nothing.
type Device struct {
	drv     Driver
	geo     atomic.Pointer[Geometry]
	sink    EventSink // nil unless the driver listens to events
	widener Widener   // nil unless the driver wants the record of its requests
	chained Chained   // nil unless the driver stands on others
	policy  atomic.Pointer[Policy]
	closed  atomic.Bool
	track   tracker
	flush   flusher
}

// NewDevice wraps drv, which the device owns from now on: Close closes it.
func NewDevice(drv Driver) *Device {
	d := &Device{drv: drv}
	geo := drv.Geometry()
	d.geo.Store(&geo)
	d.sink, _ = drv.(EventSink)
	d.widener, _ = drv.(Widener)
	d.chained, _ = drv.(Chained)
	d.track.init(d)
	d.flush.init(drv)
	return d
}

// Driver gives the driver below, for its optional interfaces. Data must not be moved past the device.
func (d *Device) Driver() Driver { return d.drv }

// Geometry of the driver.
func (d *Device) Geometry() Geometry { return *d.geo.Load() }

// Path is what errors and listings call the device.
func (d *Device) Path() string { return d.geo.Load().Path }

// Size is the current length in bytes. It grows only when what extends it has completed.
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

// Extent answers what is at off, for at most n bytes; n is clipped to the end. It waits for nobody.
func (d *Device) Extent(ctx context.Context, off, n int64, q Query) (Extent, error) {
	size := d.Size()
	if d.closed.Load() {
		return Extent{}, d.err(KindInvalid, "query extent", off, "device is closed")
	}
	if off < 0 || off >= size || n <= 0 {
		return Extent{}, d.err(KindOutOfBounds, "query extent", off, "beyond the end")
	}
	e, err := d.drv.Extent(ctx, off, min(n, size-off), q)
	if err == nil && (e.Start != off || e.Length <= 0 || e.Length > n) {
		return Extent{}, d.err(KindIO, "query extent", off, "driver answered for another range")
	}
	return e, err
}

// Close refuses new requests, waits for those in flight and closes the driver.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return d.err(KindInvalid, "close", NoOffset, "closed twice")
	}
	resume, err := d.Quiesce(context.Background())
	if err != nil {
		return err
	}
	defer resume()
	return d.drv.Close()
}

func (d *Device) err(k Kind, op string, off int64, msg string) error {
	return &Error{Kind: k, Op: op, Path: d.Path(), Offset: off, Msg: msg}
}

// check validates a request of n bytes at off, also that it can be rounded to whole units.
func (d *Device) check(op string, off, n int64, write bool) error {
	g := d.geo.Load()
	limit := d.drv.Size()
	if write && g.Growable {
		grown := int64(math.MaxInt64)
		if g.MaxSize > 0 {
			grown = g.MaxSize &^ (g.RequestAlign - 1) // the last unit is written whole
		}
		limit = max(limit, grown)
	}
	limit = min(limit, math.MaxInt64-g.RequestAlign)
	switch {
	case d.closed.Load():
		return d.err(KindInvalid, op, off, "device is closed")
	case off < 0 || n < 0:
		return d.err(KindInvalid, op, off, "negative offset or length")
	case off > limit || n > limit-off:
		return d.err(KindOutOfBounds, op, off, "beyond the end")
	case write && g.ReadOnly:
		return d.err(KindInvalid, op, off, "opened read-only")
	}
	return nil
}

func iovLen(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}
