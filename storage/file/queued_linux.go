package file

import (
	"errors"
	"sync"
	"sync/atomic"

	"byre/internal/aio"
	"byre/internal/ioqueue"
	"byre/internal/uring"

	"golang.org/x/sys/unix"
)

const (
	queueDepth  = 128 // requests in flight per file; more wait
	crowdMemory = 16  // lone requests until it is forgotten that others came at the same time
)

// What the kernel offers is found out once per process, by trying.
var (
	haveURing = sync.OnceValue(func() error {
		r, err := uring.New(1)
		if err != nil {
			return err
		}
		return r.Close()
	})
	haveAIO = sync.OnceValue(func() error {
		c, err := aio.New(1)
		if err != nil {
			return err
		}
		return c.Close()
	})
)

// queued is the engine in which requests that run at the same time share a kernel queue. A request that is alone, and
// has been for a while, is a plain system call. The queue is made when it is first needed.
type queued struct {
	f      *File
	engine Engine
	flush  ioqueue.Request // the flusher runs one at a time
	active atomic.Int32    // requests under way
	crowd  atomic.Int32    // > 0: requests have come together lately

	queue atomic.Pointer[ioqueue.Queue]
	mu    struct {
		sync.Mutex
		broken bool // a queue could not be made: plain system calls it is
	}
}

func newQueued(f *File, e Engine) *queued { return &queued{f: f, engine: e} }

func (e *queued) kind() Engine { return e.engine }

func (e *queued) do(r *ioqueue.Request) (int, error) {
	defer e.active.Add(-1)
	if e.active.Add(1) == 1 {
		c := e.crowd.Load()
		if c == 0 {
			return e.f.plain(r)
		}
		e.crowd.Store(c - 1) // roughly counted is good enough
	} else if e.crowd.Load() != crowdMemory {
		e.crowd.Store(crowdMemory)
	}
	return e.share(r)
}

func (e *queued) share(r *ioqueue.Request) (int, error) {
	for {
		q := e.current()
		if q == nil {
			return e.f.plain(r)
		}
		n, err := q.Do(r)
		if !errors.Is(err, ioqueue.ErrClosed) { // else a Reopen has replaced it
			return n, err
		}
	}
}

// current is the queue, or nil if there can be none (too many files, AIO contexts used up).
func (e *queued) current() *ioqueue.Queue {
	if q := e.queue.Load(); q != nil {
		return q
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queue.Load(); q != nil || e.mu.broken {
		return q
	}
	var q *ioqueue.Queue
	var err error
	if e.engine == EngineNative {
		q, err = ioqueue.NewAIO(e.f.FD(), queueDepth)
	} else {
		q, err = ioqueue.NewURing(e.f.FD(), queueDepth)
	}
	if err != nil {
		e.mu.broken = true
		return nil
	}
	e.queue.Store(q)
	return q
}

// sync goes through the ring if there is one, which then does the waiting for everybody. A seam for failures is in the
// host, so that is asked where it is not the kernel itself.
func (e *queued) sync() error {
	q := e.queue.Load()
	if _, real := e.f.host.(kernel); !real || q == nil || e.engine != EngineIOUring {
		return e.f.host.fdatasync(e.f.FD())
	}
	e.flush.Op = ioqueue.OpFdatasync
	for {
		_, err := q.Do(&e.flush)
		switch {
		case errors.Is(err, ioqueue.ErrClosed):
			return e.f.host.fdatasync(e.f.FD())
		case err != unix.EINTR:
			return err
		}
	}
}

// reopened drops the queue, which may hold on to the old file description; the next request makes another.
func (e *queued) reopened() error {
	e.mu.Lock()
	q := e.queue.Swap(nil)
	e.mu.Unlock()
	if q == nil {
		return nil
	}
	err := q.Close()
	e.f.counts.syscalls.Add(q.Entries())
	return err
}

func (e *queued) close() error { return e.reopened() }
