package file

import (
	"context"
	"errors"
	"fmt"

	"byre/block"
	"byre/internal/ofdlock"

	"golang.org/x/sys/unix"
)

// Reopen implements block.Reopener: it changes between read-only and read-write on the same file, whatever has become
// of its name. Locks given in Options stay; default ones follow the mode. On error the file is as it was.
func (f *File) Reopen(ctx context.Context, o block.ReopenOptions) error {
	if err := f.started(ctx, "reopen", block.NoOffset); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.ReadOnly == f.readOnly.Load() {
		return nil
	}
	opt := f.opt
	opt.ReadOnly = o.ReadOnly
	before := f.mu.locks
	if err := f.lock(f.FD(), opt.locks()); err != nil {
		return err
	}
	if err := f.swapFD(openFlags(opt)); err != nil {
		return errors.Join(f.fail("reopen", block.NoOffset, err), f.lock(f.FD(), before))
	}
	f.opt.ReadOnly = o.ReadOnly
	f.readOnly.Store(o.ReadOnly)
	return nil
}

// SetLocks changes what the file holds and shares. On error it holds what it held.
func (f *File) SetLocks(want Locks) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.lock(f.FD(), want); err != nil {
		return err
	}
	f.opt.Locks = want
	return nil
}

// swapFD opens the file anew and puts the new description under the old number, so that requests which start at the
// same time find either.
func (f *File) swapFD(flags int) error {
	fd := f.FD()
	fresh, err := openFD(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fresh)
	held := f.mu.locks != (Locks{})
	old := -1
	if held {
		if err := ofdlock.Take(fresh, f.mu.locks); err != nil {
			return err
		}
		if old, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(old)
	}
	if err := again(func() error { return unix.Dup3(fresh, fd, unix.O_CLOEXEC) }); err != nil {
		return err
	}
	err = f.eng.reopened()
	if held { // a ring that is going away may still refer to the old description
		err = errors.Join(err, ofdlock.Release(old, f.mu.locks))
	}
	return err
}
