package file

import (
	"context"

	"byre/block"

	"golang.org/x/sys/unix"
)

const (
	defaultGrowStep = 64 << 20
	maxGrowStep     = 512 << 20
	growUnit        = 1 << 20
)

// FreshFrom implements block.FreshSpace; see "Fresh space" in the package comment.
func (f *File) FreshFrom() int64 { return min(f.fresh.Load(), f.size.Load()) }

// GrowTo implements block.FreshSpace.
func (f *File) GrowTo(ctx context.Context, size int64) (int64, error) {
	if err := f.started(ctx, "grow", block.NoOffset); err != nil {
		return 0, err
	}
	if f.dev {
		return f.size.Load(), f.noGrowth()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.size.Load()
	if size <= old {
		return old, nil
	}
	target := f.growTarget(old, size)
	fd := f.FD()
	done, err := attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, old, target-old) })
	if done && err != nil && target > size {
		// No room for the step: what was asked for may still fit.
		target = size
		done, err = attempt(&f.can.fallocate, func() error { return f.host.fallocate(fd, 0, old, target-old) })
	}
	if !done {
		// Sparse growth. Nothing was written beyond old that has completed, but something may be under way, so the
		// length must never be set to less than it is.
		err = f.growSparse(fd, target)
	}
	f.changes.completed.Add(1)
	if err != nil {
		return old, f.fail("grow", block.NoOffset, err)
	}
	raise(&f.size, target)
	f.extents.drop(old, target-old)
	return f.size.Load(), nil
}

func (f *File) growSparse(fd int, target int64) error {
	now, err := f.length()
	if err != nil || now >= target {
		return err
	}
	return f.host.ftruncate(fd, target)
}

func (f *File) noGrowth() error {
	return &block.Error{Kind: block.KindUnsupported, Op: "grow", Path: f.path, Offset: block.NoOffset,
		Msg: "a block device has a fixed size"}
}

// growTarget is how far to go when size is asked for: an eighth of the file ahead, within limits, and never more than
// a quarter of what the file system has left.
func (f *File) growTarget(old, size int64) int64 {
	if f.opt.NoGrowAhead {
		return size
	}
	step := f.opt.GrowStep
	if step <= 0 {
		step = defaultGrowStep
	}
	step = max(step, min(old/8, maxGrowStep))
	var fs unix.Statfs_t
	if unix.Fstatfs(f.FD(), &fs) == nil {
		free := int64(min(fs.Bavail, 1<<40)) * int64(fs.Bsize)
		step = min(step, free/4)
	}
	target := (size + step) / growUnit * growUnit
	return max(target, size)
}

// CutTo implements block.FreshSpace.
func (f *File) CutTo(ctx context.Context, size int64) error {
	if err := f.started(ctx, "cut", block.NoOffset); err != nil {
		return err
	}
	if f.dev {
		return f.noGrowth()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if size >= f.size.Load() {
		return nil
	}
	if fresh := f.fresh.Load(); size < fresh {
		return f.invalidf("cut", "the file was written up to %d, so it cannot be cut to %d as never written", fresh, size)
	}
	return f.shrinkLocked(size)
}
