package ioqueue

import (
	"sync"
	"sync/atomic"

	"byre/internal/aio"

	"golang.org/x/sys/unix"
)

// NewAIO makes a queue of the given depth over Linux AIO for the open file fd, which should be open for direct I/O.
// It knows reads and writes only. Errors wrap aio.ErrUnsupported.
func NewAIO(fd, depth int) (*Queue, error) {
	c, err := aio.New(depth)
	if err != nil {
		return nil, err
	}
	k := &aioKernel{ctx: c, fd: fd, blocks: make([]aio.IOCB, depth), bytes: make([]int64, depth), failed: make([]atomic.Int64, depth)}
	k.mu.staged = make([]*aio.IOCB, 0, depth)
	k.submit.batch = make([]*aio.IOCB, 0, depth)
	return New(k), nil
}

type aioKernel struct {
	ctx    *aio.Context
	fd     int
	blocks []aio.IOCB     // by slot
	bytes  []int64        // by slot: length of the request
	failed []atomic.Int64 // by slot: negated errno that io_submit gave instead of taking the block, else 0
	buf    [reapBatch]aio.Completion

	mu struct {
		sync.Mutex
		staged []*aio.IOCB
	}
	submit struct {
		sync.Mutex
		batch []*aio.IOCB
	}
}

func (k *aioKernel) Depth() int { return len(k.blocks) }

func (k *aioKernel) Stage(r *Request, slot uint32) {
	b := &k.blocks[slot]
	k.bytes[slot] = 0
	for i := range r.Iov {
		k.bytes[slot] += int64(r.Iov[i].Len)
	}
	if r.Op == OpRead {
		b.PrepReadv(k.fd, r.Iov, r.Off, r.RWF, uint64(slot))
	} else {
		b.PrepWritev(k.fd, r.Iov, r.Off, r.RWF, uint64(slot))
	}
	k.mu.Lock()
	k.mu.staged = append(k.mu.staged, b)
	k.mu.Unlock()
}

func (k *aioKernel) Submit() error {
	k.submit.Lock()
	defer k.submit.Unlock()
	k.mu.Lock()
	k.submit.batch, k.mu.staged = k.mu.staged, k.submit.batch[:0]
	k.mu.Unlock()
	left := k.submit.batch
	for len(left) > 0 {
		n, err := k.ctx.Submit(k.head(left))
		left = left[n:]
		errno, _ := err.(unix.Errno)
		switch {
		case err == nil:
			continue
		case errno != unix.EAGAIN && errno != unix.EINTR && errno != unix.ENOMEM:
			// The first block is refused for what it asks. Its goroutine, perhaps the one that waits in the kernel, must
			// hear of it, so a read of nothing goes in its place and completes at once.
			slot := left[0].UserData()
			if k.failed[slot].CompareAndSwap(0, -int64(errno)) {
				left[0].PrepReadv(k.fd, nil, 0, 0, slot)
				continue
			}
		}
		k.mu.Lock()
		k.mu.staged = append(k.mu.staged, left...)
		k.mu.Unlock()
		return err
	}
	return nil
}

// burst is how many bytes go to the kernel in one call. The block layer makes one request of neighbours that come in
// one call; a larger one would end as a whole, and the device would be idle until its successors come.
const burst = 256 << 10

// head is the part of blocks that goes to the kernel in one call.
func (k *aioKernel) head(blocks []*aio.IOCB) []*aio.IOCB {
	n := int64(0)
	for i, b := range blocks {
		if n += k.bytes[b.UserData()]; n > burst && i > 0 {
			return blocks[:i]
		}
	}
	return blocks
}

func (k *aioKernel) Enter() error {
	if err := k.Submit(); err != nil && err != unix.EAGAIN {
		return err
	}
	return k.ctx.Wait()
}

func (k *aioKernel) Wait() error { return k.ctx.Wait() }

func (k *aioKernel) Ready() int { return k.ctx.Ready() }

func (k *aioKernel) Reap(out []Completion) int {
	n := k.ctx.Reap(k.buf[:min(len(out), len(k.buf))])
	for i, c := range k.buf[:n] {
		out[i] = Completion{Slot: c.UserData, Result: c.Result}
		if errno := k.failed[c.UserData].Load(); errno != 0 {
			k.failed[c.UserData].Store(0)
			out[i].Result = errno
		}
	}
	return n
}

func (k *aioKernel) Close() error { return k.ctx.Close() }
