package file

import (
	"context"

	"byre/block"
	"byre/internal/iobuf"
	"byre/internal/ioqueue"

	"golang.org/x/sys/unix"
)

const (
	modeZero  = unix.FALLOC_FL_ZERO_RANGE
	modePunch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
)

// ZeroAt implements block.Driver. Flags: FUA, MayUnmap, NoFallback. A range beyond the end extends a regular file.
func (f *File) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	if err := f.started(ctx, "write zeroes", off); err != nil {
		return err
	}
	f.issue(off, n)
	fua := f.beginFUA(flags)
	f.extents.drop(off, n)
	err := f.zero(off, n, flags)
	f.written(off, n, err)
	f.extents.drop(off, n)
	return f.endFUA(fua, false, err)
}

func (f *File) zero(off, n int64, flags block.Flags) error {
	var done bool
	var err error
	if f.dev {
		done, err = f.zeroDevice(off, n, flags)
	} else {
		done, err = f.zeroRegular(off, n, flags)
	}
	switch {
	case done:
		return f.fail("write zeroes", off, err)
	case flags&block.NoFallback != 0:
		return &block.Error{Kind: block.KindUnsupported, Op: "write zeroes", Path: f.path, Offset: off,
			Msg: "the host has no quick way to zero this range"}
	}
	return f.writeZeros(off, n, nil)
}

func (f *File) zeroRegular(off, n int64, flags block.Flags) (done bool, err error) {
	fd := f.FD()
	if flags&block.MayUnmap != 0 {
		if done, err = f.punchAndExtend(fd, off, n, false); done {
			return done, err
		}
	}
	done, err = attempt(&f.can.zeroRange, func() error { return f.host.fallocate(fd, modeZero, off, n) })
	if done {
		return done, err
	}
	// A hole that is filled again: the space stays reserved, as without MayUnmap it should.
	if f.can.fallocate.Load() {
		if done, err = f.punchAndExtend(fd, off, n, true); done {
			return done, err
		}
	}
	// Behind the end there is nothing to punch.
	if size := f.size.Load(); off >= size {
		return attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, off, n) })
	}
	return false, nil
}

// punchAndExtend makes [off, off+n) a hole, extends the file over it if need be, and with fill reserves space again.
func (f *File) punchAndExtend(fd int, off, n int64, fill bool) (done bool, err error) {
	done, err = attempt(&f.can.punchHole, func() error { return f.host.fallocate(fd, modePunch, off, n) })
	if !done || err != nil {
		return done, err
	}
	if fill {
		done, err = attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, off, n) })
		if done {
			return done, err
		}
	}
	if off+n > f.size.Load() {
		return true, f.extend(off + n)
	}
	return true, nil
}

// extend makes the file at least size long, and never cuts what a concurrent write has added.
func (f *File) extend(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extendLocked(size)
}

func (f *File) extendLocked(size int64) error {
	fd := f.FD()
	// A plain ftruncate would cut off a write that ends further out and completes just now; fallocate of the last
	// byte only ever extends.
	done, err := attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, size-1, 1) })
	if done {
		return err
	}
	return f.writeZeros(size-f.limit.request, f.limit.request, nil)
}

func (f *File) zeroDevice(off, n int64, flags block.Flags) (done bool, err error) {
	fd := f.FD()
	if flags&block.MayUnmap != 0 {
		// On a block device this zeroes by unmapping or by a zeroing command, or fails.
		done, err = attempt(&f.can.punchHole, func() error { return f.host.fallocate(fd, modePunch, off, n) })
		if done {
			return done, err
		}
	}
	if flags&block.NoFallback != 0 && !f.geo.QuickZero {
		return false, nil
	}
	return attempt(&f.can.ioctlZero, func() error { return f.host.ioctlRange(fd, unix.BLKZEROOUT, off, n) })
}

// writeZeros writes zeros the slow way.
func (f *File) writeZeros(off, n int64, progress func(done, total int64)) error {
	x := f.reqs.Get().(*xfer)
	defer f.reqs.Put(x)
	buf := iobuf.Get(int(min(n, bounceChunk)))
	defer iobuf.Put(buf)
	clear(buf)
	for done := int64(0); done < n; {
		x.one[0] = buf[:min(n-done, int64(len(buf)))]
		if err := f.move(x, ioqueue.OpWrite, x.one[:], off+done, 0); err != nil {
			return err
		}
		done += int64(len(x.one[0]))
		if progress != nil {
			progress(done, n)
		}
	}
	return nil
}

// DiscardAt implements block.Driver. What is given back reads as zeros on regular files; on block devices its
// contents are the device's choice.
func (f *File) DiscardAt(ctx context.Context, off, n int64) error {
	if err := f.started(ctx, "discard", off); err != nil {
		return err
	}
	f.extents.drop(off, n)
	fd := f.FD()
	var done bool
	var err error
	if f.dev {
		done, err = attempt(&f.can.ioctlTrim, func() error { return f.host.ioctlRange(fd, unix.BLKDISCARD, off, n) })
	} else {
		done, err = attempt(&f.can.punchHole, func() error { return f.host.fallocate(fd, modePunch, off, n) })
	}
	f.changes.completed.Add(1)
	f.extents.drop(off, n)
	if !done {
		return nil
	}
	return f.fail("discard", off, err)
}

// Preallocate implements block.Preallocator: host space for [off, off+n) is reserved, contents stay. KindUnsupported
// where the host has no such thing.
func (f *File) Preallocate(ctx context.Context, off, n int64) error {
	if err := f.started(ctx, "preallocate", off); err != nil {
		return err
	}
	fd := f.FD()
	done, err := attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, off, n) })
	if !done {
		return &block.Error{Kind: block.KindUnsupported, Op: "preallocate", Path: f.path, Offset: off,
			Msg: "the host cannot reserve space"}
	}
	if err == nil {
		raise(&f.size, off+n)
	}
	f.changes.completed.Add(1)
	f.extents.drop(off, n)
	return f.fail("preallocate", off, err)
}
