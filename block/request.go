package block

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"byre/internal/invariants"
)

// infinity is the end of a range that has none.
const infinity = math.MaxInt64

// Request is the device's record of one request in flight: the range that it keeps to itself or shares, and who waits
// for it. Drivers meet it through [Widener]; it is theirs until the call that brought it returns.
//
// The rule: a request waits for another in flight if one of the two is serialising and their ranges meet. Order is by
// arrival: who comes later also waits for those that still wait. Whoever already holds something (it ran, and widens
// its range now) waits for running ones only, never for waiting ones, which wait, perhaps through others, for it: so no
// ring of waiters can form. Ranges of a record only grow.
type Request struct {
	dev   *Device
	shard *shard
	wake  chan struct{} // one token for each time that waitFor was cleared by the other side

	// Guarded by shard.mu; off, end, ser, drain, seq and waiting change under tracker.mu as well once other requests
	// can have seen them.
	next, prev *Request
	off, end   int64
	seq        uint64 // order of arrival among those that had to look around; 0: was running before anybody looked
	gen        uint64 // odd while linked; tells the uses of a record apart
	ser        bool   // holds off every other request that meets [off, end)
	drain      bool   // holds off everything
	waiting    bool
	waiters    *Request // those that sleep until this one ends
	waitFor    *Request // guarded by waitFor.shard.mu
	nextWaiter *Request

	waited  bool // has slept: what was checked before may be stale
	granted atomic.Bool

	// Scratch of the request, so that nothing is allocated for it.
	one [1][]byte
	vec [][]byte
}

// tracker finds requests that concern each other. The normal path, a plain request while nobody serialises, takes the
// lock of a shard that is nearly its own (records stay with a shard, and the pool gives a processor its records back).
type tracker struct {
	shards      []shard
	turn        atomic.Uint32
	serialising atomic.Int32 // records with ser or drain
	pool        sync.Pool

	mu struct { // before shard.mu
		sync.Mutex
		seq uint64
	}
}

type shard struct {
	mu   sync.Mutex
	head *Request
	n    int
	_    [104]byte // a pair of cache lines of its own
}

func (t *tracker) init(d *Device) {
	n := 1
	for n < min(runtime.GOMAXPROCS(0), 16) {
		n *= 2
	}
	t.shards = make([]shard, n)
	t.pool.New = func() any {
		i := int(t.turn.Add(1)) & (n - 1)
		return &Request{dev: d, shard: &t.shards[i], wake: make(chan struct{}, 1)}
	}
}

// request lends a record, to be given back with release.
func (d *Device) request() *Request { return d.track.pool.Get().(*Request) }

func (r *Request) release() {
	r.one[0] = nil
	clear(r.vec)
	r.vec = r.vec[:0]
	r.dev.track.pool.Put(r)
}

// enter starts a plain request for [off, end) once no serialising one forbids it. On success leave must follow.
func (r *Request) enter(ctx context.Context, off, end int64) error {
	s := r.shard
	s.mu.Lock()
	r.linkLocked(off, end)
	s.mu.Unlock()
	t := &r.dev.track
	if t.serialising.Load() == 0 {
		if invariants.Enabled {
			r.granted.Store(true)
		}
		return nil
	}
	t.mu.Lock()
	s.mu.Lock()
	// Somebody may have seen this one as running and sleep for it: then it must not wait for those who wait.
	fresh := r.waiters == nil
	if fresh {
		t.mu.seq++
		r.seq = t.mu.seq
	}
	r.waiting = true
	s.mu.Unlock()
	return r.waitLocked(ctx, fresh, false)
}

// enterSerialising starts a request that holds off all others in [off, end). Marking and waiting are one step. On
// success leave must follow.
func (r *Request) enterSerialising(ctx context.Context, off, end int64, nowait bool) error {
	return r.enterMarked(ctx, off, end, false, nowait)
}

func (r *Request) enterMarked(ctx context.Context, off, end int64, drain, nowait bool) error {
	t := &r.dev.track
	t.mu.Lock()
	t.serialising.Add(1)
	t.mu.seq++
	s := r.shard
	s.mu.Lock()
	r.linkLocked(off, end)
	r.ser, r.drain, r.waiting, r.seq = true, drain, true, t.mu.seq
	s.mu.Unlock()
	return r.waitLocked(ctx, true, nowait)
}

func (r *Request) linkLocked(off, end int64) {
	r.off, r.end = off, end
	r.seq, r.ser, r.drain, r.waiting, r.waited = 0, false, false, false, false
	r.gen++
	s := r.shard
	r.prev, r.next = nil, s.head
	if s.head != nil {
		s.head.prev = r
	}
	s.head = r
	s.n++
}

// leave ends the request and wakes who waits for it.
func (r *Request) leave() {
	s := r.shard
	s.mu.Lock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		s.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	s.n--
	r.gen++
	ser := r.ser
	w := r.waiters
	r.waiters = nil
	for x := w; x != nil; x = x.nextWaiter {
		x.waitFor = nil
	}
	if invariants.Enabled {
		r.granted.Store(false)
	}
	s.mu.Unlock()
	if ser {
		r.dev.track.serialising.Add(-1)
	}
	for w != nil {
		next := w.nextWaiter
		w.nextWaiter = nil
		w.wake <- struct{}{}
		w = next
	}
}

// Serialise widens the record of a running request to cover [off, off+n), rounded outwards to align (a power of two),
// and holds off every other request there: it returns when those in flight have ended. n = math.MaxInt64 reaches to
// infinity. With nowait it returns an error of KindBusy, and leaves the record as it was, where it would have to wait.
// After another error (the context has ended) the request must fail. Call it before any byte of the request moves:
// while it waits, others that widen their ranges may pass.
func (r *Request) Serialise(ctx context.Context, off, n, align int64, nowait bool) error {
	end := int64(infinity)
	if n < infinity-off-align {
		end = (off + n + align - 1) &^ (align - 1)
	}
	return r.widen(ctx, off&^(align-1), end, nowait)
}

func (r *Request) widen(ctx context.Context, off, end int64, nowait bool) error {
	t, s := &r.dev.track, r.shard
	t.mu.Lock()
	s.mu.Lock()
	oldOff, oldEnd, oldSer := r.off, r.end, r.ser
	r.off, r.end = min(r.off, off), max(r.end, end)
	if !r.ser {
		r.ser = true
		t.serialising.Add(1)
	}
	r.waiting = true
	r.granted.Store(false)
	s.mu.Unlock()
	busy, err := r.sleepLocked(ctx, false, nowait)
	if !busy {
		return err
	}
	// In the same step as the look around: nobody has seen this one waiting and passed.
	s.mu.Lock()
	r.off, r.end, r.waiting = oldOff, oldEnd, false
	r.granted.Store(invariants.Enabled)
	if !oldSer {
		r.ser = false
		t.serialising.Add(-1)
	}
	s.mu.Unlock()
	t.mu.Unlock()
	return r.busy()
}

func (r *Request) busy() error {
	return r.dev.err(KindBusy, "", r.off, "another request is in the way")
}

// waitLocked is sleepLocked for a request that has just entered: on error it leaves.
func (r *Request) waitLocked(ctx context.Context, fresh, nowait bool) error {
	busy, err := r.sleepLocked(ctx, fresh, nowait)
	if busy {
		r.dev.track.mu.Unlock()
		err = r.busy()
	}
	if err != nil {
		r.leave()
	}
	return err
}

// sleepLocked returns when nothing in flight stands against r, which then runs. It is called with tracker.mu held and
// returns without, but for one case: busy tells, with nowait, that something does, and nothing has changed.
func (r *Request) sleepLocked(ctx context.Context, fresh, nowait bool) (busy bool, err error) {
	t := &r.dev.track
	for {
		b := t.blockerLocked(r, fresh, !nowait)
		if b == nil {
			r.shard.mu.Lock()
			r.waiting = false
			r.shard.mu.Unlock()
			if invariants.Enabled {
				t.checkGrantLocked(r)
			}
			t.mu.Unlock()
			return false, nil
		}
		if nowait {
			return true, nil
		}
		t.mu.Unlock()
		r.waited = true
		select {
		case <-r.wake:
		case <-ctx.Done():
			r.unhook(b)
			return false, &Error{Kind: KindIO, Path: r.dev.Path(), Offset: r.off, Msg: "gave up waiting for another request", Err: ctx.Err()}
		}
		t.mu.Lock()
	}
}

// unhook stops sleeping for b.
func (r *Request) unhook(b *Request) {
	b.shard.mu.Lock()
	if r.waitFor != b {
		b.shard.mu.Unlock()
		<-r.wake // it has ended meanwhile, or is about to say so
		return
	}
	for p := &b.waiters; ; p = &(*p).nextWaiter {
		if *p == r {
			*p = r.nextWaiter
			break
		}
	}
	r.waitFor, r.nextWaiter = nil, nil
	b.shard.mu.Unlock()
}

// blockerLocked finds what r must wait for, nil if nothing, and with hook makes r one of its waiters. Of several it is
// the latest to have arrived: with a queue of requests for one place each end then wakes one.
func (t *tracker) blockerLocked(r *Request, fresh, hook bool) *Request {
	for {
		var best *Request
		var seq, gen uint64
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			for b := s.head; b != nil; b = b.next {
				if r.blockedBy(b, fresh) && (best == nil || b.seq > seq) {
					best, seq, gen = b, b.seq, b.gen
				}
			}
			s.mu.Unlock()
		}
		if best == nil || !hook {
			return best
		}
		s := best.shard
		s.mu.Lock()
		// It may have ended since, and its record may serve another request.
		still := best.gen == gen
		if still {
			r.waitFor, r.nextWaiter = best, best.waiters
			best.waiters = r
		}
		s.mu.Unlock()
		if still {
			return best
		}
	}
}

// blockedBy tells whether r must wait for b. Called with tracker.mu and b.shard.mu held.
func (r *Request) blockedBy(b *Request, fresh bool) bool {
	switch {
	case r == b:
		return false
	case r.drain || b.drain:
	case !r.ser && !b.ser, r.off >= b.end, b.off >= r.end:
		return false
	}
	return !b.waiting || fresh && b.seq < r.seq
}

// checkGrantLocked proves that nothing that runs stands against r.
func (t *tracker) checkGrantLocked(r *Request) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for b := s.head; b != nil; b = b.next {
			if b != r && b.granted.Load() && (r.ser || b.ser) && r.off < b.end && b.off < r.end {
				off, end := b.off, b.end
				s.mu.Unlock() // the panic runs deferred calls that need the locks
				t.mu.Unlock()
				invariants.Check(false, "two requests run where one serialises: [%#x,%#x) and [%#x,%#x)", r.off, r.end, off, end)
			}
		}
		s.mu.Unlock()
	}
	r.granted.Store(true)
}
