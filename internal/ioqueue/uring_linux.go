package ioqueue

import (
	"byre/internal/uring"

	"golang.org/x/sys/unix"
)

// NewURing makes a queue of the given depth over io_uring for the open file fd. Errors wrap uring.ErrUnsupported.
func NewURing(fd, depth int) (*Queue, error) {
	ring, err := uring.New(depth)
	if err != nil {
		return nil, err
	}
	k := &uringKernel{ring: ring, file: uring.File{FD: int32(fd)}, plainOps: ring.Supports(uring.OpRead) && ring.Supports(uring.OpWrite)}
	if ring.RegisterFiles([]int32{int32(fd)}) == nil {
		k.file = uring.File{FD: 0, Fixed: true}
	}
	return New(k), nil
}

type uringKernel struct {
	ring     *uring.Ring
	file     uring.File
	plainOps bool // READ and WRITE are known
	buf      [reapBatch]uring.Completion
}

func (k *uringKernel) Depth() int { return k.ring.Entries() }

func (k *uringKernel) Stage(r *Request, slot uint32) {
	e := k.ring.Push() // never nil: there are as many entries as slots
	id := uint64(slot)
	switch {
	case r.Op == OpFdatasync:
		e.PrepFsync(k.file, true, id)
	case r.Op == OpFallocate:
		e.PrepFallocate(k.file, r.RWF, r.Off, r.Len, id)
	case r.Op == OpRead && k.plainOps && len(r.Iov) == 1:
		e.PrepRead(k.file, r.Iov[0].Base, int(r.Iov[0].Len), r.Off, r.RWF, id)
	case r.Op == OpRead:
		e.PrepReadv(k.file, r.Iov, r.Off, r.RWF, id)
	case k.plainOps && len(r.Iov) == 1:
		e.PrepWrite(k.file, r.Iov[0].Base, int(r.Iov[0].Len), r.Off, r.RWF, id)
	default:
		e.PrepWritev(k.file, r.Iov, r.Off, r.RWF, id)
	}
	k.ring.Publish()
}

func (k *uringKernel) Submit() error {
	n := k.ring.Unsubmitted()
	if n == 0 {
		return nil
	}
	if _, err := k.ring.Enter(n, 0); err != nil {
		return err
	}
	return k.rest()
}

func (k *uringKernel) Enter() error {
	if _, err := k.ring.Enter(k.ring.Unsubmitted(), 1); err != nil {
		return err
	}
	return k.rest()
}

// rest says whether the kernel has left entries behind.
func (k *uringKernel) rest() error {
	if k.ring.Unsubmitted() > 0 {
		return unix.EINTR
	}
	return nil
}

func (k *uringKernel) Wait() error {
	_, err := k.ring.Enter(0, 1)
	return err
}

func (k *uringKernel) Ready() int { return k.ring.Ready() }

func (k *uringKernel) Reap(out []Completion) int {
	n := k.ring.Reap(k.buf[:min(len(out), len(k.buf))])
	for i, c := range k.buf[:n] {
		out[i] = Completion{Slot: c.UserData, Result: int64(c.Result)}
	}
	return n
}

func (k *uringKernel) Close() error { return k.ring.Close() }
