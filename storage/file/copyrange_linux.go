package file

import (
	"context"
	"errors"

	"byre/block"

	"golang.org/x/sys/unix"
)

var _ block.RangeCopier = (*File)(nil)

// copyStep bounds one call, so that an interrupt is heard.
const copyStep = 64 << 20

// CopyRange implements block.RangeCopier between regular files.
func (f *File) CopyRange(ctx context.Context, off int64, src block.Driver, srcOff, n int64, share bool) error {
	from, ok := src.(*File)
	if !ok || f.dev || from.dev {
		return f.cannotCopy(off, nil)
	}
	f.issue(off, n)
	var err error
	for done := int64(0); done < n && err == nil; {
		if err = f.started(ctx, "copy", off+done); err != nil {
			break
		}
		step := min(n-done, copyStep)
		if share {
			err = f.cloneOnce(from, srcOff+done, off+done, step)
		} else {
			step, err = f.copyOnce(from, srcOff+done, off+done, step)
		}
		done += step
	}
	f.written(off, n, err)
	return err
}

func (f *File) cannotCopy(off int64, err error) error {
	return &block.Error{Kind: block.KindUnsupported, Op: "copy", Path: f.path, Offset: off,
		Msg: "the host cannot copy this range by itself", Err: err}
}

func (f *File) cloneOnce(from *File, srcOff, off, n int64) error {
	err := again(func() error {
		return unix.IoctlFileCloneRange(f.FD(), &unix.FileCloneRange{Src_fd: int64(from.FD()), Src_offset: uint64(srcOff),
			Src_length: uint64(n), Dest_offset: uint64(off)})
	})
	return f.copyError(off, err)
}

func (f *File) copyOnce(from *File, srcOff, off, n int64) (int64, error) {
	var got int
	err := again(func() (err error) {
		r, w := srcOff, off
		got, err = unix.CopyFileRange(from.FD(), &r, f.FD(), &w, int(n), 0)
		return err
	})
	if err == nil && got == 0 { // the source ends here, or the file system only pretends
		return 0, f.cannotCopy(off, nil)
	}
	return int64(got), f.copyError(off, err)
}

// copyError tells what the host cannot do from what failed.
func (f *File) copyError(off int64, err error) error {
	switch {
	case err == nil:
		return nil
	case unable(err), unfit(err), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EBADF), errors.Is(err, unix.EPERM):
		return f.cannotCopy(off, err)
	}
	return f.fail("copy", off, err)
}
