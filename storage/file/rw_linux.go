package file

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"
	"unsafe"

	"byre/block"
	"byre/internal/iobuf"
	"byre/internal/ioqueue"

	"golang.org/x/sys/unix"
)

const (
	iovMax      = 1024    // the kernel's limit
	maxCall     = 1 << 30 // bytes per system call, below the kernel's limit and a multiple of every alignment
	bounceChunk = 1 << 20 // bytes
	maxIdle     = 2000    // attempts without progress before a request is given up, some 20 s
)

// xfer is a pooled record of one transfer: the request as the engine sees it and the bounce buffer's vector.
type xfer struct {
	req  ioqueue.Request
	iovs []unix.Iovec
	one  [1][]byte
}

// ReadvAt implements block.Driver.
func (f *File) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	if err := f.started(ctx, "read", off); err != nil {
		return err
	}
	x := f.reqs.Get().(*xfer)
	var err error
	if f.mustBounce(iov) {
		err = f.bounceRead(x, iov, off)
	} else {
		err = f.move(x, ioqueue.OpRead, iov, off, 0)
	}
	f.reqs.Put(x)
	return err
}

// WritevAt implements block.Driver. Of the flags, FUA is known.
func (f *File) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	if err := f.started(ctx, "write", off); err != nil {
		return err
	}
	n := length(iov)
	f.issue(off, n)
	x := f.reqs.Get().(*xfer)
	fua := f.beginFUA(flags)
	var rwf uint32
	if fua == fuaAlone && n <= bounceChunk && len(iov) <= iovMax {
		rwf = unix.RWF_DSYNC
	}
	var err error
	if f.mustBounce(iov) {
		err = f.bounceWrite(x, iov, off, rwf)
	} else {
		err = f.move(x, ioqueue.OpWrite, iov, off, rwf)
	}
	f.reqs.Put(x)
	f.written(off, n, err)
	return f.endFUA(fua, rwf != 0 && f.can.dsync.Load(), err)
}

// mustBounce tells whether the memory of iov cannot be given to the kernel as it is.
func (f *File) mustBounce(iov [][]byte) bool {
	if f.limit.memory <= 1 {
		return false
	}
	unit := f.limit.memory
	if len(iov) > iovMax {
		unit = max(unit, int(f.limit.request)) // the vector will be cut between any two buffers
	}
	for _, b := range iov {
		if len(b)&(unit-1) != 0 || !iobuf.Aligned(b, f.limit.memory) {
			return true
		}
	}
	return false
}

func (f *File) bounceRead(x *xfer, iov [][]byte, off int64) error {
	left := length(iov)
	buf := iobuf.Get(int(min(left, bounceChunk)))
	defer iobuf.Put(buf)
	in := 0 // bytes of iov[0] already filled
	for left > 0 {
		n := int(min(left, bounceChunk))
		x.one[0] = buf[:n]
		if err := f.move(x, ioqueue.OpRead, x.one[:], off, 0); err != nil {
			return err
		}
		iov, in = spread(iov, in, buf[:n], false)
		off += int64(n)
		left -= int64(n)
	}
	return nil
}

func (f *File) bounceWrite(x *xfer, iov [][]byte, off int64, rwf uint32) error {
	left := length(iov)
	buf := iobuf.Get(int(min(left, bounceChunk)))
	defer iobuf.Put(buf)
	in := 0
	for left > 0 {
		n := int(min(left, bounceChunk))
		iov, in = spread(iov, in, buf[:n], true)
		x.one[0] = buf[:n]
		if err := f.move(x, ioqueue.OpWrite, x.one[:], off, rwf); err != nil {
			return err
		}
		off += int64(n)
		left -= int64(n)
	}
	return nil
}

// spread copies between flat and the buffers of iov from byte in of the first on, and returns where it ended.
func spread(iov [][]byte, in int, flat []byte, gather bool) ([][]byte, int) {
	for len(flat) > 0 {
		var n int
		if gather {
			n = copy(flat, iov[0][in:])
		} else {
			n = copy(iov[0][in:], flat)
		}
		flat = flat[n:]
		if in += n; in == len(iov[0]) {
			iov, in = iov[1:], 0
		}
	}
	return iov, in
}

// move transfers all of iov, whatever the kernel does in one go.
func (f *File) move(x *xfer, op ioqueue.Op, iov [][]byte, off int64, rwf uint32) error {
	if cap(x.iovs) < len(iov) {
		x.iovs = make([]unix.Iovec, 0, max(len(iov), 8))
	}
	vec := x.iovs[:0]
	for _, b := range iov {
		if len(b) > 0 {
			v := unix.Iovec{Base: unsafe.SliceData(b)}
			v.SetLen(len(b))
			vec = append(vec, v)
		}
	}
	err := f.moveAll(x, op, vec, off, rwf)
	clear(x.iovs[:len(vec)]) // the pool must not keep the caller's memory alive
	x.req.Iov = nil
	return err
}

func (f *File) moveAll(x *xfer, op ioqueue.Op, vec []unix.Iovec, off int64, rwf uint32) error {
	r := &x.req
	idle := 0 // attempts in a row that moved nothing
	for len(vec) > 0 {
		part, want := window(vec)
		var restore uint64
		last := &part[len(part)-1]
		if want > maxCall {
			restore = uint64(last.Len)
			last.SetLen(int(restore) - int(want-maxCall))
			want = maxCall
		}
		r.Op, r.RWF, r.Off, r.Iov = op, rwf, off, part
		n, err := f.eng.do(r)
		if restore != 0 {
			last.SetLen(int(restore))
		}
		switch {
		case err == unix.EINTR, err == unix.EAGAIN:
			if idle++; idle > maxIdle {
				return f.fail(opName(op), off, err)
			}
			pause(idle)
			continue
		case err == unix.EOPNOTSUPP && rwf != 0:
			f.can.dsync.Store(false) // the caller flushes instead
			rwf = 0
			continue
		case err != nil:
			return f.fail(opName(op), off, err)
		case int64(n) == want:
			vec, off, idle = skip(vec, want), off+want, 0
			continue
		}
		before := off
		if vec, off, err = f.short(op, vec, off, int64(n)); err != nil {
			return err
		}
		if idle++; off > before {
			idle = 0
		} else if idle > maxIdle {
			return f.fail(opName(op), off, io.ErrNoProgress)
		}
	}
	return nil
}

// short handles a transfer of which only the first n bytes moved, and returns what is left.
func (f *File) short(op ioqueue.Op, vec []unix.Iovec, off, n int64) ([]unix.Iovec, int64, error) {
	if op == ioqueue.OpRead {
		size := f.size.Load()
		if off+n >= size {
			zeroFill(skip(vec, n))
			return nil, off, nil
		}
		if n == 0 {
			return nil, off, f.fail("read", off, fmt.Errorf("the file ends before its length of %d bytes: %w", size, io.ErrUnexpectedEOF))
		}
	} else if n == 0 {
		return nil, off, f.fail("write", off, io.ErrShortWrite)
	}
	// A direct request must go on at a block boundary; what lies behind it is moved again.
	n -= (off + n) & (f.limit.request - 1)
	if n <= 0 {
		return vec, off, nil
	}
	return skip(vec, n), off + n, nil
}

// pause gives way before another attempt; a resource that the kernel lacks for long is worth sleeping for.
func pause(attempt int) {
	if attempt < 8 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(min(attempt, 100)) * 100 * time.Microsecond)
}

func opName(op ioqueue.Op) string {
	if op == ioqueue.OpRead {
		return "read"
	}
	return "write"
}

// window is the part of vec that fits in one call, and its length in bytes (which may exceed maxCall in its last
// buffer only).
func window(vec []unix.Iovec) ([]unix.Iovec, int64) {
	n := int64(0)
	for i := range vec {
		if i == iovMax {
			return vec[:i], n
		}
		n += int64(vec[i].Len)
		if n >= maxCall {
			return vec[:i+1], n
		}
	}
	return vec, n
}

// skip drops the first n bytes of vec, changing it in place.
func skip(vec []unix.Iovec, n int64) []unix.Iovec {
	for len(vec) > 0 && n >= int64(vec[0].Len) {
		n -= int64(vec[0].Len)
		vec = vec[1:]
	}
	if n > 0 {
		vec[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(vec[0].Base), n))
		vec[0].SetLen(int(vec[0].Len) - int(n))
	}
	return vec
}

func zeroFill(vec []unix.Iovec) {
	for i := range vec {
		clear(unsafe.Slice(vec[i].Base, vec[i].Len))
	}
}

func length(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}
