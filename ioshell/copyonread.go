package ioshell

import (
	"context"
	"sync"

	"byre/block"
)

// CopyOnRead shows dev with a difference: what a read finds in a backing file is stored in dev itself. The result
// shares dev, which must outlive it.
func CopyOnRead(dev *block.Device) *block.Device { return block.NewDevice(&copyOnRead{Device: dev}) }

type copyOnRead struct {
	*block.Device
	// order keeps a copy from undoing a write: copies hold it alone, requests that change contents share it.
	order sync.RWMutex
}

// Driver's methods that differ from the device's in name or in what they do.

func (c *copyOnRead) Geometry() block.Geometry {
	g := c.Device.Geometry()
	g.RequestAlign = 1
	return g
}

// ReadvAt stores whole clusters first, then reads.
func (c *copyOnRead) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	end := off
	for _, b := range iov {
		end += int64(len(b))
	}
	unit := max(c.Device.Geometry().ClusterSize, 4096)
	for at := off / unit * unit; at < end; {
		e, err := c.Device.Extent(ctx, at, c.Size()-at, block.TopOnly)
		if err != nil {
			return err
		}
		stop := min(e.End(), (end+unit-1)/unit*unit)
		if e.Flags&block.Allocated == 0 {
			if err := c.store(ctx, at, stop, unit); err != nil {
				return err
			}
		}
		at = stop
	}
	return c.Device.Readv(ctx, iov, off)
}

// store copies what the chain holds at [at, stop). What a writer stored meanwhile is read and written back unchanged.
func (c *copyOnRead) store(ctx context.Context, at, stop, unit int64) error {
	buf := make([]byte, min(stop-at, max(unit, 1<<20)))
	c.order.Lock()
	defer c.order.Unlock()
	for at < stop {
		part := buf[:min(int64(len(buf)), stop-at, c.Size()-at)]
		if err := c.Device.Read(ctx, part, at); err != nil {
			return err
		}
		if err := c.Device.Write(ctx, part, at, 0); err != nil {
			return err
		}
		at += int64(len(part))
	}
	return nil
}

func (c *copyOnRead) WritevAt(ctx context.Context, iov [][]byte, off int64, f block.Flags) error {
	c.order.RLock()
	defer c.order.RUnlock()
	return c.Device.Writev(ctx, iov, off, f)
}

func (c *copyOnRead) ZeroAt(ctx context.Context, off, n int64, f block.Flags) error {
	c.order.RLock()
	defer c.order.RUnlock()
	return c.Device.Zero(ctx, off, n, f)
}

func (c *copyOnRead) DiscardAt(ctx context.Context, off, n int64) error {
	c.order.RLock()
	defer c.order.RUnlock()
	return c.Device.Discard(ctx, off, n)
}

// Close leaves the device to its owner.
func (c *copyOnRead) Close() error { return nil }
