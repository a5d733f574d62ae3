package qcow2

import (
	"context"
	"sync"
	"sync/atomic"
)

// discardClass says why clusters were freed, which decides whether their place in the file is given back to the host
// (qcow2-format §10.2).
type discardClass uint8

const (
	discardNever    discardClass = iota // replaced by copy-on-write, undone allocations
	discardRequest                      // the guest's discards, and zeroes that may unmap
	discardSnapshot                     // snapshot operations
	discardOther                        // metadata tables
	discardAlways                       // shrinking
)

// freed is a run of clusters each of which lost one reference.
type freed struct {
	clusters
	class discardClass
}

// pin is what an access to host clusters holds from the lookup that named them to the end of its I/O.
type pin uint8

// quarantine keeps freed host clusters away from the allocator until (1) the removal of their last reference is durable
// and (2) every read and write that found them by a lookup from before the removal has ended (qcow2-format §8.8).
//
// The second part works by grace periods: an access enters before its lookup looks at the entries and exits after its
// I/O. It costs two atomic additions and knows no clusters. Freed clusters wait until all accesses that had entered when
// they were retired are gone; a request that is suspended for long holds back their reuse, nothing else.
type quarantine struct {
	cur    atomic.Uint32
	active [2]struct {
		atomic.Int64
		_ [56]byte
	}
	waiting atomic.Bool // draining is not empty
	mu      struct {
		sync.Mutex
		queued   []freed // retired after the present grace period began
		draining []freed // wait for the accesses of the slot that is not current
		ready    []freed
		quiet    chan struct{} // closed when nothing is queued or draining any more; nil if nobody waits
	}
}

// enter begins an access.
func (q *quarantine) enter() pin {
	for {
		c := q.cur.Load()
		q.active[c].Add(1)
		if q.cur.Load() == c {
			return pin(c)
		}
		q.exit(pin(c)) // the period ended in between
	}
}

// exit ends an access.
func (q *quarantine) exit(p pin) {
	if q.active[p].Add(-1) == 0 && q.waiting.Load() {
		q.mu.Lock()
		q.advanceLocked()
		q.mu.Unlock()
	}
}

// retire takes clusters whose removal is durable.
func (q *quarantine) retire(batch []freed) {
	if len(batch) == 0 {
		return
	}
	q.mu.Lock()
	q.mu.queued = append(q.mu.queued, batch...)
	q.advanceLocked()
	q.mu.Unlock()
}

// advanceLocked ends grace periods that can end.
func (q *quarantine) advanceLocked() {
	m := &q.mu
	for {
		if len(m.draining) == 0 && len(m.queued) > 0 {
			// Nobody is left in the other slot, so it becomes the current one.
			m.draining, m.queued = m.queued, nil
			q.waiting.Store(true)
			q.cur.Store(1 - q.cur.Load())
		}
		if len(m.draining) == 0 || q.active[1-q.cur.Load()].Load() != 0 {
			return
		}
		m.ready = append(m.ready, m.draining...)
		m.draining = nil
		q.waiting.Store(false)
		if len(m.queued) == 0 && m.quiet != nil {
			close(m.quiet)
			m.quiet = nil
		}
	}
}

// take returns what is ready to be released.
func (q *quarantine) take() []freed {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.mu.ready
	q.mu.ready = nil
	return r
}

// wait returns when everything retired so far is ready. The caller must not be inside an access itself.
func (q *quarantine) wait(ctx context.Context) error {
	q.mu.Lock()
	if len(q.mu.queued) == 0 && len(q.mu.draining) == 0 {
		q.mu.Unlock()
		return nil
	}
	if q.mu.quiet == nil {
		q.mu.quiet = make(chan struct{})
	}
	c := q.mu.quiet
	q.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain returns when every access that has entered so far has ended. The caller must not be inside one.
func (q *quarantine) drain(ctx context.Context) error {
	q.mu.Lock()
	q.mu.queued = append(q.mu.queued, freed{}) // nothing, to wait for
	q.advanceLocked()
	q.mu.Unlock()
	return q.wait(ctx)
}
