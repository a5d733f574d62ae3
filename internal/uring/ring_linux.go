package uring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ring is one io_uring instance. See the package comment for which goroutine may call what.
type Ring struct {
	fd       int
	ringMem  []byte
	sqeMem   []byte
	sqHead   *uint32
	sqTail   *uint32
	sqMask   uint32
	sqLen    uint32
	sqes     []SQE
	cqHead   *uint32
	cqTail   *uint32
	cqMask   uint32
	cqes     []cqe
	tail     uint32 // our copy of the submission tail
	supports [opLast]bool
	files    bool // some are registered
}

// New sets up a ring with room for entries submissions (rounded up to a power of two, cut to the kernel's
// limit) and twice as many completions. Every error wraps ErrUnsupported.
func New(entries int) (*Ring, error) {
	r, err := setup(entries, setupSubmitAll)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.18
		r, err = setup(entries, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return r, nil
}

func setup(entries int, flags uint32) (*Ring, error) {
	p := params{flags: setupClamp | setupCQSize | flags, cqEntries: uint32(entries) * 2}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, errno
	}
	unix.CloseOnExec(int(fd))
	r := &Ring{fd: int(fd)}
	if err := r.mapQueues(&p); err != nil {
		r.Close()
		return nil, err
	}
	if err := r.probe(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ring) mapQueues(p *params) error {
	const need = featSingleMmap | featNoDrop | featSubmitStable
	if p.features&need != need {
		return fmt.Errorf("kernel features %#x lack some of %#x", p.features, need)
	}
	sqEnd := int(p.sqOff.array) + int(p.sqEntries)*4
	cqEnd := int(p.cqOff.cqes) + int(p.cqEntries)*int(unsafe.Sizeof(cqe{}))
	const prot, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	var err error
	if r.ringMem, err = unix.Mmap(r.fd, offSQRing, max(sqEnd, cqEnd), prot, how); err != nil {
		return fmt.Errorf("map the queues: %w", err)
	}
	if r.sqeMem, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(SQE{})), prot, how); err != nil {
		return fmt.Errorf("map the submission entries: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.ringMem[off])) }
	r.sqHead, r.sqTail = word(p.sqOff.head), word(p.sqOff.tail)
	r.sqMask, r.sqLen = *word(p.sqOff.ringMask), p.sqEntries
	r.cqHead, r.cqTail = word(p.cqOff.head), word(p.cqOff.tail)
	r.cqMask = *word(p.cqOff.ringMask)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.ringMem[p.cqOff.cqes])), p.cqEntries)
	// Slot i of the ring always names entry i: the indirection is not used.
	array := unsafe.Slice(word(p.sqOff.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i)
	}
	r.tail = atomic.LoadUint32(r.sqTail)
	return nil
}

func (r *Ring) probe() error {
	var p probe
	if err := r.register(registerProbe, unsafe.Pointer(&p), int(opLast)); err != nil {
		return fmt.Errorf("probe operations: %w", err)
	}
	for _, o := range p.ops[:min(int(p.opsLen), int(opLast))] {
		if o.op < uint8(opLast) && o.flags&opSupported != 0 {
			r.supports[o.op] = true
		}
	}
	for _, op := range []Opcode{OpReadv, OpWritev, OpFsync} {
		if !r.Supports(op) {
			return fmt.Errorf("operation %d is missing", op)
		}
	}
	return nil
}

// Supports says whether the kernel knows op.
func (r *Ring) Supports(op Opcode) bool { return op < opLast && r.supports[op] }

// Entries is the size of the submission queue.
func (r *Ring) Entries() int { return int(r.sqLen) }

// CompletionEntries is how many completions can wait to be reaped.
func (r *Ring) CompletionEntries() int { return len(r.cqes) }

// RegisterFiles makes fds known to the kernel, so that entries may name them by index ([File.Fixed]) and each
// request is spared taking a reference.
func (r *Ring) RegisterFiles(fds []int32) error {
	err := r.register(registerFiles, unsafe.Pointer(unsafe.SliceData(fds)), len(fds))
	r.files = err == nil
	return err
}

// RegisterBuffers pins the memory that iov describes for use by PrepReadFixed and PrepWriteFixed. It must be
// off-heap memory and stay mapped until Close.
func (r *Ring) RegisterBuffers(iov []unix.Iovec) error {
	return r.register(registerBuffers, unsafe.Pointer(unsafe.SliceData(iov)), len(iov))
}

func (r *Ring) register(op uintptr, arg unsafe.Pointer, n int) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Push hands out the next free entry for the caller to fill, or nil if the submission queue is full. The
// entry is seen by the kernel after Publish.
func (r *Ring) Push() *SQE {
	if r.tail-atomic.LoadUint32(r.sqHead) >= r.sqLen {
		return nil
	}
	return &r.sqes[r.tail&r.sqMask]
}

// Publish makes the entry that Push gave visible to the kernel; Enter submits it.
func (r *Ring) Publish() {
	r.tail++
	atomic.StoreUint32(r.sqTail, r.tail)
}

// Unsubmitted is how many published entries the kernel has not taken yet.
func (r *Ring) Unsubmitted() int {
	return int(atomic.LoadUint32(r.sqTail) - atomic.LoadUint32(r.sqHead))
}

// Enter submits up to submit published entries and, if wait > 0, blocks until that many completions can be
// reaped. It returns how many entries the kernel took. EINTR, EAGAIN and EBUSY are ordinary: come again, after
// reaping if it is one of the latter.
func (r *Ring) Enter(submit, wait int) (int, error) {
	var flags uintptr
	if wait > 0 {
		flags = enterGetEvents
		n, _, errno := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), flags, 0, 0)
		return result(n, errno)
	}
	// Submitting does not wait for I/O (what would is handed to kernel workers), so the scheduler need not hear
	// of it.
	n, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), 0, 0, 0, 0)
	return result(n, errno)
}

func result(n uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Completion is the end of one request: Result is a byte count, 0, or a negated errno.
type Completion struct {
	UserData uint64
	Result   int32
}

// Ready is how many completions Reap would find.
func (r *Ring) Ready() int {
	return int(atomic.LoadUint32(r.cqTail) - atomic.LoadUint32(r.cqHead))
}

// Reap moves waiting completions to out and returns their number, without entering the kernel.
func (r *Ring) Reap(out []Completion) int {
	head, tail := atomic.LoadUint32(r.cqHead), atomic.LoadUint32(r.cqTail)
	n := 0
	for ; head != tail && n < len(out); head++ {
		c := &r.cqes[head&r.cqMask]
		out[n] = Completion{UserData: c.userData, Result: c.res}
		n++
	}
	if n > 0 {
		atomic.StoreUint32(r.cqHead, head)
	}
	return n
}

// Close gives the ring back to the kernel. No request may be in flight and no other call run.
func (r *Ring) Close() error {
	var errs []error
	if r.files {
		// Else they stay open until the kernel has taken the ring down, some time after the close.
		r.files = false
		errs = append(errs, r.register(unregisterFiles, nil, 0))
	}
	for _, m := range []*[]byte{&r.sqeMem, &r.ringMem} {
		if *m != nil {
			errs = append(errs, unix.Munmap(*m))
			*m = nil
		}
	}
	if r.fd >= 0 {
		errs = append(errs, unix.Close(r.fd))
		r.fd = -1
	}
	return errors.Join(errs...)
}
