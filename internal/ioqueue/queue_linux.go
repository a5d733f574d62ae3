package ioqueue

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Completion is the end of one request: its slot, and a byte count or negated errno.
type Completion struct {
	Slot   uint64
	Result int64
}

// Kernel is an asynchronous interface to one file.
type Kernel interface {
	// Depth is how many requests can be in flight.
	Depth() int
	// Stage takes r for the next Submit; its completion will carry slot. At most Depth requests are staged or in
	// flight. Calls are serialised with each other, not with the other methods.
	Stage(r *Request, slot uint32)
	// Submit hands everything staged before the call to the kernel without waiting for I/O. An error means that some
	// of it is still staged. It may run on several goroutines at once, and during Enter and Wait.
	Submit() error
	// Enter is Submit followed by Wait, in one system call if that can be.
	Enter() error
	// Wait waits until at least one completion is Ready, or returns early.
	Wait() error
	// Ready tells how many completions Reap would find.
	Ready() int
	// Reap takes completions; Enter, Wait, Ready and Reap are called by one goroutine at a time.
	Reap(out []Completion) int
	// Close is called when nothing is staged or in flight.
	Close() error
}

// ErrClosed is returned for requests that come after Close.
var ErrClosed = errors.New("I/O queue is closed")

const (
	reapBatch  = 64
	gatherTime = 20 * time.Microsecond // longest that the leader lets others go first, scheduling aside
)

// Queue shares a Kernel.
type Queue struct {
	k       Kernel
	depth   int
	entries atomic.Int64

	reaped [reapBatch]Completion // belong to the leader
	awake  [reapBatch]*Request

	mu struct {
		sync.Mutex
		idle       *sync.Cond // signalled when nobody leads any more, that is, nothing is under way
		closed     bool
		pending    list // waiting for a free slot
		flying     list // staged or in flight; its goroutines wait, except the leader
		slots      []*Request
		free       []uint32
		staged     bool // something may be staged that no Submit has covered
		leading    bool // somebody has, or is about to take, the lead
		expected   int  // goroutines woken by the last collect that have not come back yet
		blocked    bool // the leader is in the kernel, or about to enter it, and will not look at what is staged from now on
		submitting bool // somebody other than the leader is submitting
	}
}

// New makes a queue over k, which it owns.
func New(k Kernel) *Queue {
	q := &Queue{k: k, depth: k.Depth()}
	q.mu.idle = sync.NewCond(&q.mu)
	q.mu.slots = make([]*Request, q.depth)
	q.mu.free = make([]uint32, q.depth)
	for i := range q.mu.free {
		q.mu.free[i] = uint32(q.depth - 1 - i)
	}
	return q
}

// Do carries r out and returns the number of bytes moved, or the errno. It blocks the goroutine until the kernel has
// let go of r and its buffers.
func (q *Queue) Do(r *Request) (int, error) {
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return 0, ErrClosed
	}
	r.lead = false
	if q.mu.expected > 0 {
		q.mu.expected--
	}
	if len(q.mu.free) == 0 {
		q.mu.pending.pushBack(r)
	} else {
		q.stageLocked(r)
	}
	switch {
	case !q.mu.leading:
		q.mu.leading = true
		q.mu.Unlock()
		runtime.Gosched() // the kernel should hear of everybody who is about to come
		q.lead(r)
	case q.mu.blocked && !q.mu.submitting && q.mu.staged:
		q.submitLocked()
		q.mu.Unlock()
		q.park(r)
	default:
		q.mu.Unlock()
		q.park(r)
	}
	if r.res < 0 {
		return 0, unix.Errno(-r.res)
	}
	return int(r.res), nil
}

func (q *Queue) stageLocked(r *Request) {
	last := len(q.mu.free) - 1
	slot := q.mu.free[last]
	q.mu.free = q.mu.free[:last]
	q.mu.slots[slot] = r
	q.mu.flying.pushBack(r)
	q.k.Stage(r, slot)
	q.mu.staged = true
}

// park waits until r is done, leading in between if asked to.
func (q *Queue) park(r *Request) {
	<-r.wake
	q.mu.Lock()
	lead := r.lead
	q.mu.Unlock()
	if lead {
		q.gather(4)
		q.lead(r)
	}
}

// submitLocked submits what is staged on behalf of a leader that is in the kernel. It unlocks in between.
func (q *Queue) submitLocked() {
	q.mu.submitting = true
	for q.mu.staged {
		q.mu.staged = false
		q.mu.Unlock()
		q.entries.Add(1)
		err := q.k.Submit()
		q.mu.Lock()
		if err != nil {
			q.mu.staged = true
			if !q.mu.blocked {
				break // the leader will, after making room
			}
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
		}
	}
	q.mu.submitting = false
}

// lead enters the kernel for everybody until r is done, then hands the lead on.
func (q *Queue) lead(r *Request) {
	for {
		q.enter()
		woken, mine := q.collect(r)
		for i := range woken {
			q.awake[i].wake <- struct{}{}
		}
		if mine {
			q.handOver()
			return
		}
		if woken > 0 {
			q.gather(2*woken + 2)
		}
	}
}

// handOver gives the lead to one that still waits, or to nobody. Not before the last wake-up: the arrays belong to the
// leader.
func (q *Queue) handOver() {
	q.mu.Lock()
	next := q.mu.flying.tail // the youngest will lead for longest
	if next == nil {
		q.mu.leading = false
		q.mu.idle.Broadcast()
		q.mu.Unlock()
		return
	}
	next.lead = true
	q.mu.Unlock()
	next.wake <- struct{}{}
}

// gather lets the goroutines that were just woken queue their next requests, so that one entry serves all of them
// and neighbours in the file can become one request of the device. Some may never come back, so there is an end to it.
func (q *Queue) gather(yields int) {
	var start time.Time
	for i := range yields {
		runtime.Gosched()
		q.mu.Lock()
		all := q.mu.expected == 0
		q.mu.Unlock()
		switch {
		case all:
			return
		case i == 4:
			start = time.Now()
		case i > 4 && time.Since(start) > gatherTime:
			q.stopExpecting()
			return
		}
	}
	q.stopExpecting()
}

func (q *Queue) stopExpecting() {
	q.mu.Lock()
	q.mu.expected = 0
	q.mu.Unlock()
}

// enter submits what is staged and waits for a completion, unless there are some already.
func (q *Queue) enter() {
	q.mu.Lock()
	staged := q.mu.staged && !q.mu.submitting
	if staged {
		q.mu.staged = false
	}
	wait := q.k.Ready() == 0
	q.mu.blocked = wait
	q.mu.Unlock()
	var err error
	if staged || wait {
		q.entries.Add(1)
	}
	switch {
	case staged && wait:
		err = q.k.Enter()
	case staged:
		err = q.k.Submit()
	case wait:
		err = q.k.Wait()
	}
	if err == nil {
		return
	}
	q.mu.Lock()
	q.mu.staged = true
	q.mu.Unlock()
	if err != unix.EINTR && q.k.Ready() == 0 {
		time.Sleep(50 * time.Microsecond) // the kernel is short of something
	}
}

// collect takes the completions that are there. It returns how many goroutines of q.awake to wake, and whether r was
// among the completed.
func (q *Queue) collect(r *Request) (woken int, mine bool) {
	n := q.k.Reap(q.reaped[:])
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.blocked = false
	for _, c := range q.reaped[:n] {
		done := q.mu.slots[c.Slot]
		q.mu.slots[c.Slot] = nil
		q.mu.free = append(q.mu.free, uint32(c.Slot))
		q.mu.flying.remove(done)
		done.res = c.Result
		if done == r {
			mine = true
		} else {
			q.awake[woken] = done
			woken++
		}
	}
	for q.mu.pending.head != nil && len(q.mu.free) > 0 {
		p := q.mu.pending.head
		q.mu.pending.remove(p)
		q.stageLocked(p)
	}
	q.mu.expected = woken
	if mine {
		q.mu.expected++
	}
	return woken, mine
}

// Entries is how often the kernel was entered to submit or to wait, which may be two system calls at once.
func (q *Queue) Entries() int64 { return q.entries.Load() }

// Close refuses further requests, waits for those under way and closes the kernel interface.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.mu.closed = true
	for q.mu.leading {
		q.mu.idle.Wait()
	}
	q.mu.Unlock()
	return q.k.Close()
}
