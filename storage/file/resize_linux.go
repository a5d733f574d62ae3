package file

import (
	"context"
	"errors"
	"fmt"

	"byre/block"

	"golang.org/x/sys/unix"
)

// Resize implements block.Driver. Preallocation off, falloc and full are known; a growth that fails is taken back.
// A block device keeps its size: with Exact every other is refused, without it a smaller one is accepted.
func (f *File) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	if err := f.started(ctx, "resize", block.NoOffset); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.size.Load()
	if f.dev {
		return f.resizeDevice(old, size, o)
	}
	switch o.Prealloc {
	case block.PreallocOff, block.PreallocFalloc, block.PreallocFull:
	default:
		return f.invalidf("resize", "preallocation mode %q does not apply to a plain file", o.Prealloc)
	}
	if size < old {
		if o.Prealloc != block.PreallocOff {
			return f.invalidf("resize", "a file that shrinks cannot be preallocated")
		}
		return f.shrinkLocked(size)
	}
	return f.growLocked(ctx, old, size, o)
}

func (f *File) invalidf(op, format string, args ...any) error {
	return &block.Error{Kind: block.KindInvalid, Op: op, Path: f.path, Offset: block.NoOffset, Msg: fmt.Sprintf(format, args...)}
}

func (f *File) resizeDevice(old, size int64, o block.ResizeOptions) error {
	switch {
	case o.Prealloc != block.PreallocOff:
		return f.invalidf("resize", "a block device cannot be preallocated")
	case size > old:
		return &block.Error{Kind: block.KindOutOfBounds, Op: "resize", Path: f.path, Offset: block.NoOffset,
			Msg: fmt.Sprintf("the block device has %d bytes and cannot grow to %d", old, size)}
	case size < old && o.Exact:
		return f.invalidf("resize", "the block device has %d bytes and cannot shrink to %d", old, size)
	}
	return nil
}

func (f *File) shrinkLocked(size int64) error {
	f.extents.drop(size, 1<<62)
	err := f.host.ftruncate(f.FD(), size)
	f.changes.completed.Add(1)
	if err != nil {
		return f.fail("resize", block.NoOffset, err)
	}
	f.size.Store(size)
	f.fresh.Store(min(f.fresh.Load(), size))
	f.extents.drop(size, 1<<62)
	return nil
}

func (f *File) growLocked(ctx context.Context, old, size int64, o block.ResizeOptions) error {
	err := f.host.ftruncate(f.FD(), size)
	f.changes.completed.Add(1)
	if err != nil {
		return f.fail("resize", block.NoOffset, err)
	}
	f.extents.drop(old, 1<<62)
	f.size.Store(size)
	if size == old {
		return nil
	}
	switch o.Prealloc {
	case block.PreallocFalloc:
		err = f.reserve(ctx, old, size, o.Progress)
	case block.PreallocFull:
		raise(&f.fresh, size)
		err = f.fill(ctx, old, size, o.Progress)
	}
	if err != nil {
		err = errors.Join(err, f.shrinkLocked(old))
		return f.fail("preallocate", block.NoOffset, err)
	}
	return nil
}

// reserveStep bounds one fallocate, so that progress shows and an interrupt is heard.
const reserveStep = 1 << 30

func (f *File) reserve(ctx context.Context, from, to int64, progress func(done, total int64)) error {
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(to-at, reserveStep)
		if err := f.host.fallocate(f.FD(), 0, at, n); err != nil {
			return fmt.Errorf("reserve host space: %w", err)
		}
		if at += n; progress != nil {
			progress(at-from, to-from)
		}
	}
	f.changes.completed.Add(1)
	return nil
}

// fill writes zeros over the new area, in whole blocks: where the old end lies inside a block, the kernel has zeroed
// the rest of it.
func (f *File) fill(ctx context.Context, from, to int64, progress func(done, total int64)) error {
	unit := f.limit.request
	from = (from + unit - 1) &^ (unit - 1)
	end := to &^ (unit - 1)
	total := max(end-from, 0)
	for at := from; at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(end-at, 64<<20)
		if err := f.writeZeros(at, n, nil); err != nil {
			return err
		}
		f.changes.completed.Add(1)
		if at += n; progress != nil {
			progress(at-from, total)
		}
	}
	if to > end { // the piece of the last block that direct I/O cannot write alone
		if err := f.host.fallocate(f.FD(), 0, max(end, from-unit), to-max(end, from-unit)); err != nil && !unable(err) {
			return err
		}
	}
	if f.opt.Cache.NoFlush() {
		return nil
	}
	return f.host.fsync(f.FD())
}

// Create makes (or empties) a regular file, or opens a block device, for reading and writing, and gives it its size.
// A file that it made is removed again if that fails.
func Create(ctx context.Context, path string, o Options, c CreateOptions) (*File, error) {
	o.ReadOnly = false
	flags := unix.O_CREAT
	if c.Exclusive {
		flags |= unix.O_EXCL
	}
	var st unix.Stat_t
	existed := unix.Lstat(path, &st) == nil
	f, err := open(ctx, path, o, flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.shape(ctx, c); err != nil {
		err = errors.Join(err, f.Close())
		if !existed {
			err = errors.Join(err, unix.Unlink(path))
		}
		return nil, failure("create", path, block.NoOffset, err)
	}
	return f, nil
}

func (f *File) shape(ctx context.Context, c CreateOptions) error {
	ro := block.ResizeOptions{Prealloc: c.Prealloc, Progress: c.Progress}
	if !f.dev {
		if err := f.Resize(ctx, 0, block.ResizeOptions{}); err != nil {
			return err
		}
		if c.NoCOW {
			setNoCOW(f.FD())
		}
		if f.opt.ExtentSizeHint > 0 {
			setExtentSizeHint(f.FD(), f.opt.ExtentSizeHint)
		}
	}
	if err := f.Resize(ctx, c.Size, ro); err != nil {
		return err
	}
	f.fresh.Store(0)
	if c.Prealloc == block.PreallocFull || f.dev {
		f.fresh.Store(f.size.Load())
	}
	return nil
}
