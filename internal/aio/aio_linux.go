package aio

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	cmdFDSync = 3
	cmdPreadv = 7
	cmdWritev = 8

	ringMagic = 0xa10a10a1
)

// IOCB is a control block: one request as the kernel reads it.
type IOCB struct {
	data     uint64
	keyFlags [2]uint32 // key (0) and RWF_ flags; which comes first depends on the byte order
	opcode   uint16
	_        int16 // priority
	fd       uint32
	buf      uint64
	nbytes   uint64
	off      int64
	_        uint64
	_        [2]uint32 // flags and the descriptor of an eventfd
}

var flagsSlot = func() int {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], 1)
	return int(b[0]) // little endian: key first
}()

func (c *IOCB) prep(op uint16, fd int, iov []unix.Iovec, off int64, rwf uint32, data uint64) {
	*c = IOCB{data: data, opcode: op, fd: uint32(fd), nbytes: uint64(len(iov)), off: off,
		buf: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(iov))))}
	c.keyFlags[flagsSlot] = rwf
}

// PrepReadv reads into iov from byte offset off.
func (c *IOCB) PrepReadv(fd int, iov []unix.Iovec, off int64, rwf uint32, data uint64) {
	c.prep(cmdPreadv, fd, iov, off, rwf, data)
}

// PrepWritev writes iov at byte offset off; rwf takes RWF_ flags such as unix.RWF_DSYNC.
func (c *IOCB) PrepWritev(fd int, iov []unix.Iovec, off int64, rwf uint32, data uint64) {
	c.prep(cmdWritev, fd, iov, off, rwf, data)
}

// PrepFdatasync makes completed writes durable. Kernels before 4.18 refuse it with EINVAL.
func (c *IOCB) PrepFdatasync(fd int, data uint64) {
	c.prep(cmdFDSync, fd, nil, 0, 0, data)
}

// Completion is the end of one request: Result is a byte count or a negated errno.
type Completion struct {
	UserData uint64
	Result   int64
}

type event struct {
	data uint64
	obj  uint64
	res  int64
	res2 int64
}

// ringHeader lies at the start of the memory that the context id points to.
type ringHeader struct {
	id, nr, head, tail              uint32
	magic, compat, incompat, length uint32
}

// Context is one AIO context.
type Context struct {
	id     uintptr
	ring   *ringHeader
	events []event // the ring's slots
	buf    []event // what Wait brought, not yet reaped
	bufLen int
	spare  [1]event
}

// New makes a context for at least entries requests in flight. Every error wraps ErrUnsupported.
func New(entries int) (*Context, error) {
	c := &Context{}
	_, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&c.id)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, errno)
	}
	c.buf = c.spare[:]
	// The id is the address of the ring. If it does not look like one, io_getevents alone is used.
	h := *(**ringHeader)(unsafe.Pointer(&c.id))
	if h.magic == ringMagic && h.incompat == 0 && h.length >= uint32(unsafe.Sizeof(ringHeader{})) && h.nr > 0 {
		c.ring = h
		c.events = unsafe.Slice((*event)(unsafe.Add(unsafe.Pointer(h), h.length)), h.nr)
	} else {
		c.buf = make([]event, entries)
	}
	return c, nil
}

// Submit hands blocks to the kernel in order and returns how many it took; the rest was not looked at, except
// that the error, if any, belongs to the first of it. EAGAIN means that the context is full.
func (c *Context) Submit(blocks []*IOCB) (int, error) {
	if len(blocks) == 0 {
		return 0, nil
	}
	n, _, errno := syscall.Syscall(unix.SYS_IO_SUBMIT, c.id, uintptr(len(blocks)), uintptr(unsafe.Pointer(&blocks[0])))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Wait blocks until at least one completion can be reaped. EINTR is ordinary.
func (c *Context) Wait() error {
	if c.Ready() > 0 {
		return nil
	}
	n, _, errno := syscall.Syscall6(unix.SYS_IO_GETEVENTS, c.id, 1, uintptr(len(c.buf)),
		uintptr(unsafe.Pointer(&c.buf[0])), 0, 0)
	if errno != 0 {
		return errno
	}
	c.bufLen = int(n)
	return nil
}

// Ready is how many completions Reap finds without a system call.
func (c *Context) Ready() int {
	n := c.bufLen
	if c.ring != nil {
		head, tail := atomic.LoadUint32(&c.ring.head), atomic.LoadUint32(&c.ring.tail)
		if tail < head {
			tail += c.ring.nr
		}
		n += int(tail - head)
	}
	return n
}

// Reap moves completions to out and returns their number, without entering the kernel.
func (c *Context) Reap(out []Completion) int {
	n := 0
	for ; n < len(out) && c.bufLen > 0; n++ {
		c.bufLen--
		out[n] = Completion{c.buf[c.bufLen].data, c.buf[c.bufLen].res}
	}
	if c.ring == nil || n == len(out) {
		return n
	}
	head, tail := atomic.LoadUint32(&c.ring.head), atomic.LoadUint32(&c.ring.tail)
	start := head
	for head != tail && n < len(out) {
		e := &c.events[head]
		out[n] = Completion{e.data, e.res}
		n++
		if head++; head == c.ring.nr {
			head = 0
		}
	}
	if head != start {
		atomic.StoreUint32(&c.ring.head, head)
	}
	return n
}

// Close destroys the context. No request may be in flight and no other call run.
func (c *Context) Close() error {
	if c.id == 0 {
		return nil
	}
	_, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, c.id, 0, 0)
	c.id, c.ring, c.events = 0, nil, nil
	if errno != 0 {
		return errno
	}
	return nil
}
