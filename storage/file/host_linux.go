package file

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// host is everything but reading and writing that is asked of the kernel for an open file: a seam where tests put
// failures in.
type host interface {
	fdatasync(fd int) error
	fsync(fd int) error
	fallocate(fd int, mode uint32, off, n int64) error
	ftruncate(fd int, size int64) error
	seek(fd int, off int64, whence int) (int64, error)
	ioctlRange(fd int, req uint, off, n int64) error // BLKZEROOUT, BLKDISCARD
}

// kernel is the host itself. It counts the calls, which are far between compared with reads and writes.
type kernel struct {
	calls *atomic.Int64
}

func (k kernel) count() {
	if k.calls != nil {
		k.calls.Add(1)
	}
}

// again repeats a call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (k kernel) fdatasync(fd int) error {
	k.count()
	return again(func() error { return unix.Fdatasync(fd) })
}

func (k kernel) fsync(fd int) error {
	k.count()
	return again(func() error { return unix.Fsync(fd) })
}

func (k kernel) fallocate(fd int, mode uint32, off, n int64) error {
	k.count()
	return again(func() error { return unix.Fallocate(fd, mode, off, n) })
}

func (k kernel) ftruncate(fd int, size int64) error {
	k.count()
	return again(func() error { return unix.Ftruncate(fd, size) })
}

func (k kernel) seek(fd int, off int64, whence int) (int64, error) {
	k.count()
	return unix.Seek(fd, off, whence)
}

func (k kernel) ioctlRange(fd int, req uint, off, n int64) error {
	k.count()
	arg := [2]uint64{uint64(off), uint64(n)}
	return again(func() error { return ioctl(fd, req, unsafe.Pointer(&arg)) })
}

func ioctl(fd int, req uint, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}
