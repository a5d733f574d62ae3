package ofdlock

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Acquire changes what the open file fd holds from old to want. It takes what is new, asks whether anybody is in the
// way, and only then lets go of what is no longer wanted; on error the file holds old again. Errors: *Conflict,
// ErrUnsupported, or the system's.
func Acquire(fd int, old, want Set) error {
	if err := hold(fd, want.Used&^old.Used, want.Unshared&^old.Unshared); err != nil {
		return errors.Join(err, drop(fd, want.Used&^old.Used, want.Unshared&^old.Unshared))
	}
	if err := check(fd, want); err != nil {
		return errors.Join(err, drop(fd, want.Used&^old.Used, want.Unshared&^old.Unshared))
	}
	return drop(fd, old.Used&^want.Used, old.Unshared&^want.Unshared)
}

// Test asks, without taking anything, whether want could be acquired through fd.
func Test(fd int, want Set) error { return check(fd, want) }

func hold(fd int, used, unshared Perm) error { return each(fd, unix.F_RDLCK, used, unshared) }
func drop(fd int, used, unshared Perm) error { return each(fd, unix.F_UNLCK, used, unshared) }

func each(fd int, kind int16, used, unshared Perm) error {
	for i := range numPerms {
		if used&(1<<i) != 0 {
			if err := set(fd, kind, usedBase+int64(i)); err != nil {
				return err
			}
		}
		if unshared&(1<<i) != 0 {
			if err := set(fd, kind, unsharedBase+int64(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func set(fd int, kind int16, off int64) error {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: 1}
	return wrap("lock", off, unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l))
}

func check(fd int, want Set) error {
	for i := range numPerms {
		p := Perm(1 << i)
		if want.Used&p != 0 {
			if err := probe(fd, unsharedBase+int64(i), p, false); err != nil {
				return err
			}
		}
		if want.Unshared&p != 0 {
			if err := probe(fd, usedBase+int64(i), p, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func probe(fd int, off int64, p Perm, theirs bool) error {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: off, Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l); err != nil {
		return wrap("query lock", off, err)
	}
	if l.Type == unix.F_UNLCK {
		return nil
	}
	c := &Conflict{Perm: p, Theirs: theirs, PID: int(l.Pid)}
	if c.PID <= 0 { // always, for this kind of lock
		c.PID = findHolder(fd, off)
	}
	c.Name = processName(c.PID)
	return c
}

func wrap(op string, off int64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("%w: %s byte %d: %w", ErrUnsupported, op, off, err)
	}
	return fmt.Errorf("%s byte %d: %w", op, off, err)
}

// Take makes the open file fd hold s without asking whether anybody is in the way: for a second open of a file whose
// first open holds at least s and will be closed.
func Take(fd int, s Set) error { return hold(fd, s.Used, s.Unshared) }

// Release lets go of s at once. Closing does so too, but only when the last reference to the open file is gone, and
// the kernel may hold one for a while.
func Release(fd int, s Set) error { return drop(fd, s.Used, s.Unshared) }
