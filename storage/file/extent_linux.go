package file

import (
	"context"
	"sync"

	"byre/block"

	"golang.org/x/sys/unix"
)

// extentCache remembers the last run that the kernel named, so that asking for a large extent piece by piece does not
// make the file system walk it again for each piece. Data runs only (a stale one is merely pessimistic), unless nobody
// writes.
type extentCache struct {
	mu struct {
		sync.Mutex
		start, end int64 // empty if equal
		data       bool
		epoch      uint64 // counts drops: an answer that was under way across one is not kept
	}
}

func (c *extentCache) find(off int64) (end int64, data, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off >= c.mu.start && off < c.mu.end {
		return c.mu.end, c.mu.data, true
	}
	return 0, false, false
}

func (c *extentCache) epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.epoch
}

func (c *extentCache) keep(start, end int64, data bool, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.epoch == epoch {
		c.mu.start, c.mu.end, c.mu.data = start, end, data
	}
}

// drop forgets everything if [off, off+n) touches it, and whatever is being asked for right now.
func (c *extentCache) drop(off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.epoch++
	if off < c.mu.end && off+n > c.mu.start {
		c.mu.start, c.mu.end = 0, 0
	}
}

// Extent implements block.Driver: data and holes as the file system tells them apart. Only with WantZero the host is
// asked; otherwise all is data.
func (f *File) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	if err := f.started(ctx, "query extent", off); err != nil {
		return block.Extent{}, err
	}
	size := f.size.Load()
	e := block.Extent{Start: off, Flags: block.Data | block.Allocated | block.HasHost, Host: off, File: f.path}
	end := min(off+n, size)
	if end <= off {
		return e, &block.Error{Kind: block.KindOutOfBounds, Op: "query extent", Path: f.path, Offset: off, Msg: "beyond the end"}
	}
	if q&block.WantZero != 0 && f.can.seekHole.Load() {
		runEnd, data, err := f.run(off, size)
		if err != nil {
			return e, f.fail("query extent", off, err)
		}
		if !data {
			e.Flags = block.Zero | block.Allocated | block.HasHost
		}
		end = min(end, runEnd)
	}
	e.Length = end - off
	if end == size {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

// run finds what kind of run off lies in and where it ends.
func (f *File) run(off, size int64) (end int64, data bool, err error) {
	if end, data, ok := f.extents.find(off); ok {
		return end, data, nil
	}
	epoch := f.extents.epoch()
	fd := f.FD()
	dataAt, err := f.host.seek(fd, off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: // a hole up to the end
		end, data = size, false
	case err != nil:
		if unable(err) || unfit(err) {
			f.can.seekHole.Store(false)
			return size, true, nil
		}
		return 0, false, err
	case dataAt > off:
		end, data = dataAt, false
	case dataAt < off: // a broken file system; do not trust it
		return size, true, nil
	default:
		data = true
		end, err = f.host.seek(fd, off, unix.SEEK_HOLE)
		switch {
		case err == unix.ENXIO: // cut off in between
			end, data = size, false
		case err != nil:
			return 0, false, err
		case end <= off: // punched in between
			return min(off+f.limit.request, size), true, nil
		}
	}
	if data {
		// Direct requests cannot tell parts of a block apart.
		end = min((end+f.limit.request-1)&^(f.limit.request-1), max(size, off+1))
	} else if end < size {
		end &^= f.limit.request - 1
		if end <= off {
			return min(off+f.limit.request, size), true, nil
		}
	}
	if data || f.readOnly.Load() {
		f.extents.keep(off, end, data, epoch)
	}
	return end, data, nil
}
