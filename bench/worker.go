package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"byre/block"
	"byre/internal/iobuf"
)

// workload is what all phases of a run share.
type workload struct {
	dev     *block.Device
	o       *Options
	plan    plan
	data    contents
	pattern []byte // of all writes, unless they are stamped
}

func newWorkload(dev *block.Device, o *Options) *workload {
	w := &workload{dev: dev, o: o, plan: newPlan(o, dev.Size())}
	w.data = contents{stamped: o.Verify && !o.PatternSet, pattern: o.Pattern, seed: o.Seed}
	if o.Mode.Writes() && !w.data.stamped {
		w.pattern = lend(o.Size)
		w.data.fill(w.pattern, 0)
	}
	return w
}

// lend gives memory that suits direct I/O; a request may be of no bytes at all.
func lend(n int64) []byte { return iobuf.Get(int(max(n, 1)))[:n] }

func giveBack(b []byte) {
	if b != nil {
		iobuf.Put(b)
	}
}

// phase is a number of requests, or a time: warm-up, measurement.
type phase struct {
	*workload
	ctx     context.Context
	first   int64 // number of its first request
	last    int64 // first number behind it, as far as known beforehand
	timed   time.Duration
	latency bool
	base    time.Time

	next  atomic.Int64 // number of the next request that a worker takes
	gate  atomic.Int64 // workers with this number or a higher one wait for the flush
	stop  atomic.Bool
	loose sync.WaitGroup // undrained flushes

	workers  []worker
	finished time.Time

	mu struct {
		sync.Mutex
		waiting int
		pass    int  // counts openings of the gate
		done    bool // the flush at the end was made
		err     error
		flushes int64
	}
	opened sync.Cond
}

// worker has one request in flight. What it counts is its own until it ends.
type worker struct {
	p                    *phase
	buf, scratch         []byte
	reads, writes, bytes int64
	verified             int64
	hist                 *histogram
	_                    [64]byte // keep neighbours off the cache line
}

// phase makes the phase that starts at request first. With a time and no count it is the time that ends it.
func (w *workload) phase(first, count int64, timed time.Duration) *phase {
	p := &phase{workload: w, first: first, last: first + count, timed: timed}
	if timed > 0 && count == 0 {
		p.last = math.MaxInt64
	}
	p.next.Store(first)
	p.opened.L = &p.mu
	p.gate.Store(p.firstGate())
	return p
}

// end is the first number that was not issued; the phase must be over. Numbers that workers held at the gate when
// the time was up were not.
func (p *phase) end() int64 { return min(p.next.Load(), p.gate.Load()) }

// firstGate is the first number before which there is a flush. As the classic tool does, flushes count back from the
// end, and one that would come before the queue was full once is left out.
func (p *phase) firstGate() int64 {
	n := p.o.FlushInterval
	if n == 0 || !p.o.Mode.Writes() {
		return p.last
	}
	if p.last == math.MaxInt64 {
		return p.first + n
	}
	gate := p.first + (p.last-p.first)%n
	if gate-p.first < int64(p.o.Depth) {
		gate += n
	}
	return min(gate, p.last)
}

func (p *phase) flushing() bool { return p.o.FlushInterval > 0 && p.o.Mode.Writes() }

// run executes the phase and waits for its end.
func (p *phase) run(ctx context.Context) error {
	depth := min(int64(p.o.Depth), p.last-p.first)
	p.finished = time.Now()
	if depth <= 0 {
		return ctx.Err()
	}
	p.ctx = ctx
	p.workers = make([]worker, depth)
	for i := range p.workers {
		p.workers[i].prepare(p)
	}
	undo := context.AfterFunc(ctx, func() { p.fail(ctx.Err()) })
	defer undo()
	if p.timed > 0 {
		t := time.AfterFunc(p.timed, p.timeUp)
		defer t.Stop()
	}
	var wg sync.WaitGroup
	p.base = time.Now()
	for i := range p.workers {
		w := &p.workers[i]
		wg.Go(w.loop)
	}
	wg.Wait()
	p.finished = time.Now()
	for i := range p.workers {
		giveBack(p.workers[i].buf)
		p.workers[i].buf = nil
	}
	p.loose.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

func (w *worker) prepare(p *phase) {
	w.p = p
	if p.o.Mode != Write && p.o.Mode != RandWrite || p.data.stamped {
		w.buf = lend(p.o.Size)
	}
	if p.o.Verify && !p.o.Mode.Writes() {
		w.scratch = make([]byte, p.o.Size)
	}
	if p.latency {
		w.hist = new(histogram)
	}
}

// loop takes requests and issues them until there are none.
func (w *worker) loop() {
	p := w.p
	var then time.Duration
	if w.hist != nil {
		then = time.Since(p.base)
	}
	for !p.stop.Load() {
		i := p.next.Add(1) - 1
		if i >= p.gate.Load() {
			if !p.pass(i) {
				return
			}
			if w.hist != nil {
				then = time.Since(p.base)
			}
		}
		if err := w.issue(p.plan.at(i)); err != nil {
			p.fail(err)
			return
		}
		if w.hist != nil {
			now := time.Since(p.base)
			w.hist.add(int64(now - then))
			then = now
		}
	}
}

// issue moves the data of one request.
func (w *worker) issue(r request) error {
	p := w.p
	w.bytes += r.n
	if r.write {
		w.writes++
		buf := p.pattern
		if p.data.stamped {
			buf = w.buf
			p.data.fill(buf[:r.n], r.off)
		}
		return p.dev.Write(p.ctx, buf[:r.n], r.off, 0)
	}
	w.reads++
	if err := p.dev.Read(p.ctx, w.buf[:r.n], r.off); err != nil {
		return err
	}
	if w.scratch != nil {
		w.verified += r.n
		return p.data.check(w.buf[:r.n], r.off, w.scratch)
	}
	return nil
}

// pass is called with a number at or behind the gate. It returns true once the request may be issued, and false when
// the worker should end.
func (p *phase) pass(i int64) bool {
	if !p.flushing() {
		return false // the gate is the end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i >= p.gate.Load() && !p.mu.done {
		switch {
		case p.stop.Load():
			return false
		case p.o.NoDrain:
			p.mu.flushes++
			p.loose.Go(p.flushBeside)
			p.openLocked()
		case p.mu.waiting+1 == len(p.workers):
			p.flushLocked()
		default:
			p.mu.waiting++
			for pass := p.mu.pass; pass == p.mu.pass && !p.stop.Load(); {
				p.opened.Wait()
			}
		}
	}
	return i < p.gate.Load()
}

// flushLocked flushes for all workers, which wait.
func (p *phase) flushLocked() {
	p.mu.flushes++
	p.mu.Unlock()
	err := p.dev.Flush(p.ctx)
	p.mu.Lock()
	if err != nil {
		p.failLocked(err)
	}
	// Once stopped, waiting workers may have left with their numbers: the gate must stay before those.
	if !p.stop.Load() {
		p.openLocked()
	}
}

// flushBeside is an undrained flush.
func (p *phase) flushBeside() {
	if err := p.dev.Flush(p.ctx); err != nil {
		p.fail(err)
	}
}

// openLocked moves the gate to the end of the next interval. At the end of the phase it stays.
func (p *phase) openLocked() {
	gate := p.gate.Load()
	if p.mu.done = gate == p.last; !p.mu.done {
		p.gate.Store(min(p.last, gate+p.o.FlushInterval))
	}
	p.mu.waiting = 0
	p.mu.pass++
	p.opened.Broadcast()
}

// timeUp ends a timed phase; requests in flight still count.
func (p *phase) timeUp() {
	p.mu.Lock()
	p.stop.Store(true)
	p.opened.Broadcast()
	p.mu.Unlock()
}

func (p *phase) fail(err error) {
	p.mu.Lock()
	p.failLocked(err)
	p.mu.Unlock()
}

func (p *phase) failLocked(err error) {
	if p.mu.err == nil {
		p.mu.err = err
	}
	p.stop.Store(true)
	p.opened.Broadcast()
}

// result sums up what the workers counted.
func (p *phase) result() *Result {
	r := &Result{Flushes: p.mu.flushes}
	var h histogram
	for i := range p.workers {
		w := &p.workers[i]
		r.Reads += w.reads
		r.Writes += w.writes
		r.Bytes += w.bytes
		r.Verified += w.verified
		if w.hist != nil {
			h.merge(w.hist)
		}
	}
	r.Requests = r.Reads + r.Writes
	r.Latency = h.summary()
	return r
}

// readBack compares everything that requests below end wrote.
func (w *workload) readBack(ctx context.Context, end int64) (int64, error) {
	buf, scratch := lend(w.o.Size), make([]byte, w.o.Size)
	defer giveBack(buf)
	total := int64(0)
	for i := range end {
		r := w.plan.at(i)
		if !r.write {
			continue
		}
		if err := w.dev.Read(ctx, buf[:r.n], r.off); err != nil {
			return total, fmt.Errorf("reading back: %w", err)
		}
		if err := w.data.check(buf[:r.n], r.off, scratch); err != nil {
			return total, err
		}
		total += r.n
	}
	return total, nil
}
