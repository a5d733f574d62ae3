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
	k := &aioKernel{ctx: c, fd: fd, blocks: make([]aio.IOCB, depth), failed: make([]atomic.Int64, depth)}
	k.mu.staged, k.submit.batch = newBatch(depth), newBatch(depth)
	return New(k), nil
}

type aioKernel struct {
	ctx    *aio.Context
	fd     int
	blocks []aio.IOCB     // by slot
	failed []atomic.Int64 // by slot: negated errno that io_submit gave instead of taking the block, else 0
	buf    [reapBatch]aio.Completion

	mu struct {
		sync.Mutex
		staged batch
	}
	submit struct {
		sync.Mutex
		batch batch
	}
}

// batch is a run of blocks as io_submit takes them. What is asked of a block while submitting stands beside it: the
// kernel may have completed it, and its slot be in use again, before io_submit returns.
type batch struct {
	blocks []*aio.IOCB
	info   []blockInfo
}

type blockInfo struct {
	slot  uint32
	bytes int64
}

func newBatch(n int) batch { return batch{make([]*aio.IOCB, 0, n), make([]blockInfo, 0, n)} }

func (b *batch) reset() { b.blocks, b.info = b.blocks[:0], b.info[:0] }
func (b *batch) add(o batch) {
	b.blocks, b.info = append(b.blocks, o.blocks...), append(b.info, o.info...)
}
func (b *batch) skip(n int) { b.blocks, b.info = b.blocks[n:], b.info[n:] }

func (k *aioKernel) Depth() int { return len(k.blocks) }

func (k *aioKernel) Stage(r *Request, slot uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := &k.blocks[slot]
	if r.Op == OpRead {
		b.PrepReadv(k.fd, r.Iov, r.Off, r.RWF, uint64(slot))
	} else {
		b.PrepWritev(k.fd, r.Iov, r.Off, r.RWF, uint64(slot))
	}
	info := blockInfo{slot: slot}
	for i := range r.Iov {
		info.bytes += int64(r.Iov[i].Len)
	}
	k.mu.staged.blocks = append(k.mu.staged.blocks, b)
	k.mu.staged.info = append(k.mu.staged.info, info)
}

func (k *aioKernel) Submit() error {
	k.submit.Lock()
	defer k.submit.Unlock()
	k.submit.batch.reset()
	k.mu.Lock()
	k.submit.batch, k.mu.staged = k.mu.staged, k.submit.batch
	k.mu.Unlock()
	left := k.submit.batch
	for len(left.blocks) > 0 {
		n, err := k.ctx.Submit(left.blocks[:left.head()])
		left.skip(n)
		errno, _ := err.(unix.Errno)
		switch {
		case err == nil:
			continue
		case errno != unix.EAGAIN && errno != unix.EINTR && errno != unix.ENOMEM && k.failed[left.info[0].slot].Load() == 0:
			// The first block is refused for what it asks. Its goroutine, perhaps the one that waits in the kernel, must
			// hear of it, so a read of nothing goes in its place and completes at once.
			slot := left.info[0].slot
			left.blocks[0].PrepReadv(k.fd, nil, 0, 0, uint64(slot))
			k.failed[slot].Store(-int64(errno))
			continue
		}
		k.mu.Lock()
		k.mu.staged.add(left)
		k.mu.Unlock()
		return err
	}
	return nil
}

// burst is how many bytes go to the kernel in one call. The block layer makes one request of neighbours that come in
// one call; a larger one would end as a whole, and the device would be idle until its successors come.
const burst = 256 << 10

// head is how many blocks go to the kernel in one call.
func (b *batch) head() int {
	n := int64(0)
	for i := range b.info {
		if n += b.info[i].bytes; n > burst && i > 0 {
			return i
		}
	}
	return len(b.info)
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
