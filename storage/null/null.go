// Package null is storage that keeps nothing: writes vanish, reads give zeros (or whatever the buffer held). It is for
// measuring everything above storage.
package null

import (
	"context"
	"time"

	"byre/block"
)

// Options describe the device.
type Options struct {
	Size       int64         // bytes
	ReadZeroes bool          // reads give zeros; otherwise they leave buffers as they are
	Latency    time.Duration // how long each request takes
	ReadOnly   bool
}

// Driver is a [block.Driver], safe for any number of goroutines.
type Driver struct{ o Options }

var _ block.Driver = (*Driver)(nil)

// New makes a device.
func New(o Options) *Driver { return &Driver{o} }

// Geometry has no demands.
func (d *Driver) Geometry() block.Geometry {
	return block.Geometry{Path: "null-co://", RequestAlign: 1, MemAlign: 1, ReadOnly: d.o.ReadOnly, ZeroInit: d.o.ReadZeroes,
		QuickZero: true, Unmap: true}
}

// Size never changes.
func (d *Driver) Size() int64 { return d.o.Size }

func (d *Driver) wait(ctx context.Context) error {
	if d.o.Latency <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d.o.Latency)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// ReadvAt gives zeros, if the options say so.
func (d *Driver) ReadvAt(ctx context.Context, iov [][]byte, _ int64) error {
	if d.o.ReadZeroes {
		for _, b := range iov {
			clear(b)
		}
	}
	return d.wait(ctx)
}

// WritevAt forgets.
func (d *Driver) WritevAt(ctx context.Context, _ [][]byte, off int64, f block.Flags) error {
	if f&block.Compressed != 0 {
		return &block.Error{Kind: block.KindUnsupported, Op: "write", Path: "null-co://", Offset: off, Msg: "no compressed data is kept"}
	}
	return d.wait(ctx)
}

// ZeroAt forgets.
func (d *Driver) ZeroAt(ctx context.Context, _, _ int64, _ block.Flags) error { return d.wait(ctx) }

// DiscardAt forgets.
func (d *Driver) DiscardAt(ctx context.Context, _, _ int64) error { return d.wait(ctx) }

// Flush has nothing to do.
func (d *Driver) Flush(ctx context.Context) error { return d.wait(ctx) }

// Extent: everything is one piece.
func (d *Driver) Extent(_ context.Context, off, n int64, _ block.Query) (block.Extent, error) {
	e := block.Extent{Start: off, Length: n, Flags: block.Allocated | block.HasHost, Host: off, File: "null-co://"}
	if d.o.ReadZeroes {
		e.Flags |= block.Zero
	} else {
		e.Flags |= block.Data
	}
	if e.End() == d.o.Size {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

// Resize is refused unless nothing changes.
func (d *Driver) Resize(_ context.Context, size int64, _ block.ResizeOptions) error {
	if size == d.o.Size {
		return nil
	}
	return &block.Error{Kind: block.KindUnsupported, Op: "resize", Path: "null-co://", Offset: block.NoOffset, Msg: "the size is fixed"}
}

// AllocatedSize is 0.
func (d *Driver) AllocatedSize(context.Context) (int64, error) { return 0, nil }

// Close has nothing to do.
func (d *Driver) Close() error { return nil }
