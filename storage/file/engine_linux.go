package file

import (
	"fmt"
	"runtime"
	"unsafe"

	"byre/block"
	"byre/internal/ioqueue"

	"golang.org/x/sys/unix"
)

// engine carries requests to the kernel. do transfers once, as far as the kernel does in one go, and blocks until
// then; it may return fewer bytes than asked for, EINTR and EAGAIN. Safe for any number of goroutines.
type engine interface {
	kind() Engine
	do(r *ioqueue.Request) (int, error)
	sync() error // fdatasync
	// reopened says that the descriptor's number stands for another open file description now.
	reopened() error
	close() error
}

// newEngine chooses or refuses. For direct I/O the queues are quickest, native ahead of io_uring; for buffered I/O
// most requests are copies, which threads do in parallel.
func newEngine(f *File) (engine, error) {
	refuse := func(msg string, err error) error {
		return &block.Error{Kind: block.KindUnsupported, Op: "open", Path: f.path, Offset: block.NoOffset,
			Msg: fmt.Sprintf("I/O engine %q %s", f.opt.Engine, msg), Err: err}
	}
	direct := f.opt.Cache.Direct()
	switch f.opt.Engine {
	case EngineThreads:
		return &threads{f: f}, nil
	case EngineNative:
		if !direct {
			return nil, refuse(fmt.Sprintf("needs direct I/O: use cache mode none or directsync, not %s", f.opt.Cache), nil)
		}
		if err := haveAIO(); err != nil {
			return nil, refuse("cannot be used", err)
		}
		return newQueued(f, EngineNative), nil
	case EngineIOUring:
		if err := haveURing(); err != nil {
			return nil, refuse("cannot be used", err)
		}
		return newQueued(f, EngineIOUring), nil
	}
	switch {
	case !direct:
		return &threads{f: f}, nil
	case haveAIO() == nil:
		return newQueued(f, EngineNative), nil
	case haveURing() == nil:
		return newQueued(f, EngineIOUring), nil
	}
	return &threads{f: f}, nil
}

// threads is the engine in which every request is one blocking system call; the Go scheduler provides the threads.
type threads struct {
	f *File
}

func (t *threads) kind() Engine    { return EngineThreads }
func (t *threads) reopened() error { return nil }
func (t *threads) close() error    { return nil }
func (t *threads) sync() error     { return t.f.host.fdatasync(t.f.FD()) }

func (t *threads) do(r *ioqueue.Request) (int, error) { return t.f.plain(r) }

// plain carries r out by one system call. The memory stays put and alive: r is a pooled record on the heap, and its
// vector points to heap or off-heap memory.
func (f *File) plain(r *ioqueue.Request) (int, error) {
	f.counts.syscalls.Add(1)
	fd := f.FD()
	var n uintptr
	var errno unix.Errno
	// Offsets go in two halves, of which 64-bit kernels read the first alone.
	lo, hi := uintptr(r.Off), uintptr(uint64(r.Off)>>32)
	if len(r.Iov) == 1 && r.RWF == 0 {
		trap := uintptr(unix.SYS_PREAD64)
		if r.Op == ioqueue.OpWrite {
			trap = unix.SYS_PWRITE64
		}
		n, _, errno = unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(r.Iov[0].Base)), uintptr(r.Iov[0].Len), lo, hi, 0)
	} else {
		trap := uintptr(unix.SYS_PREADV2)
		switch {
		case r.RWF == 0 && r.Op == ioqueue.OpRead:
			trap = unix.SYS_PREADV
		case r.RWF == 0:
			trap = unix.SYS_PWRITEV
		case r.Op == ioqueue.OpWrite:
			trap = unix.SYS_PWRITEV2
		}
		n, _, errno = unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&r.Iov[0])), uintptr(len(r.Iov)), lo, hi, uintptr(r.RWF))
	}
	runtime.KeepAlive(r)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
