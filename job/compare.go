package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"byre/block"
	"byre/internal/iobuf"

	"golang.org/x/sync/errgroup"
)

// CompareOptions say how Compare compares.
type CompareOptions struct {
	// Strict also compares sizes and what is allocated or zero where.
	Strict  bool
	Workers int // how many units are compared at once; 0 chooses by the number of processors
	// Progress, if not nil, hears how much has been compared, in the order of offsets. Calls do not overlap.
	Progress func(done, total int64)
	// Longer, if not nil, is called when what both images have has turned out the same and one of them goes on behind
	// it. Not with Strict.
	Longer func()
}

// Verdict is what Compare found.
type Verdict uint8

const (
	// Identical: the same contents; if one image is longer, the rest of it is zeros.
	Identical Verdict = iota
	// ContentDiffers: Offset is the first sector of 512 bytes that is not the same.
	ContentDiffers
	// SizeDiffers: in strict mode.
	SizeDiffers
	// StatusDiffers: in strict mode; allocation, zeros or the like are not the same at Offset.
	StatusDiffers
)

// Comparison is the outcome of Compare.
type Comparison struct {
	Verdict Verdict
	Offset  int64
}

// PartError tells what Compare could not do to which of its images.
type PartError struct {
	Image int  // 0 or 1
	Query bool // an extent could not be named; else data could not be read
	Off   int64
	Err   error
}

func (e *PartError) Error() string {
	if e.Query {
		return fmt.Sprintf("query at offset %d: %v", e.Off, e.Err)
	}
	return fmt.Sprintf("read at offset %d: %v", e.Off, e.Err)
}

func (e *PartError) Unwrap() error { return e.Err }

const compareUnit = 1 << 20

// Compare compares two images. Data is read only where neither is known to be zero, or where only one is; what both
// have from the same place of the same file is the same. Failures are *PartError.
func Compare(ctx context.Context, a, b *block.Device, o CompareOptions) (Comparison, error) {
	c := &comparer{o: o, devs: [2]*block.Device{a, b}, seq: newSequence()}
	c.both = min(a.Size(), b.Size())
	c.total = max(a.Size(), b.Size())
	if o.Strict && a.Size() != b.Size() {
		return Comparison{Verdict: SizeDiffers}, nil
	}
	return c.run(ctx)
}

// comparer is one run of Compare.
type comparer struct {
	o     CompareOptions
	devs  [2]*block.Device
	both  int64 // bytes that both have
	total int64
	seq   *sequence
	done  int64 // under seq

	mu struct {
		sync.Mutex
		found *finding // the one at the lowest offset
	}
}

// finding ends a comparison: a difference or a failure. Which one counts must not depend on the order in which
// workers come upon them, so it is the one at the lowest offset.
type finding struct {
	off     int64
	verdict Verdict
	err     error
}

// pair is a range to be compared; use tells which images have data there.
type pair struct {
	number int64
	off, n int64
	use    [2]bool
}

func (c *comparer) run(ctx context.Context) (Comparison, error) {
	g, gctx := errgroup.WithContext(ctx)
	n := c.o.Workers
	if n <= 0 {
		n = max(2*runtime.GOMAXPROCS(0), 8)
	}
	pairs := make(chan pair, n)
	g.Go(func() error {
		defer close(pairs)
		return c.plan(gctx, pairs)
	})
	for range n {
		g.Go(func() error { return c.work(gctx, pairs) })
	}
	err := g.Wait()
	f, out := c.mu.found, Comparison{}
	switch {
	case err != nil:
		return out, err
	case f != nil && f.err != nil:
		return out, f.err
	}
	if f != nil {
		out.Verdict, out.Offset = f.verdict, f.off
	}
	return out, nil
}

// find notes a finding unless there is one before it.
func (c *comparer) find(f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.found == nil || f.off < c.mu.found.off {
		c.mu.found = &f
	}
}

// settled tells whether what lies at off no longer matters.
func (c *comparer) settled(off int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.found != nil && c.mu.found.off <= off
}

// errSettled ends the walk early.
var errSettled = errors.New("settled")

// plan walks both images and sends what must be read.
func (c *comparer) plan(ctx context.Context, pairs chan<- pair) error {
	p := &pairPlanner{c: c, ctx: ctx, pairs: pairs}
	p.walk[0].dev, p.walk[1].dev = c.devs[0], c.devs[1]
	err := p.common()
	if err == nil && c.both < c.total {
		err = p.rest()
	}
	if err == nil {
		err = p.flush()
	}
	if err == errSettled {
		return nil
	}
	return err
}

// extentWalk remembers the extent that was named last.
type extentWalk struct {
	dev *block.Device
	e   block.Extent
}

// at names the extent at off, which never goes back, cut to begin there.
func (w *extentWalk) at(ctx context.Context, off int64) (block.Extent, error) {
	if off >= w.e.End() || off < w.e.Start {
		e, err := w.dev.Extent(ctx, off, w.dev.Size()-off, block.WantZero)
		if err != nil {
			return e, err
		}
		w.e = e
	}
	e, skip := w.e, off-w.e.Start
	e.Start, e.Length, e.Host = off, e.Length-skip, e.Host+skip
	return e, nil
}

type pairPlanner struct {
	c      *comparer
	ctx    context.Context
	pairs  chan<- pair
	walk   [2]extentWalk
	number int64
	cur    pair
}

// extent names the extent of one image at off; a failure is a finding.
func (p *pairPlanner) extent(i int, off int64) (block.Extent, error) {
	if p.ctx.Err() != nil {
		return block.Extent{}, context.Cause(p.ctx)
	}
	if p.c.settled(off) {
		return block.Extent{}, errSettled
	}
	e, err := p.walk[i].at(p.ctx, off)
	if err == nil {
		return e, nil
	}
	if p.ctx.Err() != nil {
		return e, context.Cause(p.ctx)
	}
	p.c.find(finding{off: off, err: &PartError{Image: i, Query: true, Off: off, Err: err}})
	if err := p.flush(); err != nil { // what lies before may differ
		return e, err
	}
	return e, errSettled
}

// common plans what both images have.
func (p *pairPlanner) common() error {
	for off := int64(0); off < p.c.both; {
		a, err := p.extent(0, off)
		if err != nil {
			return err
		}
		b, err := p.extent(1, off)
		if err != nil {
			return err
		}
		n := min(a.Length, b.Length, p.c.both-off)
		if p.c.o.Strict && a.Flags != b.Flags {
			p.c.find(finding{off: off, verdict: StatusDiffers})
			return nil
		}
		use := [2]bool{!empty(a), !empty(b)}
		if samePlace(a, b) {
			use = [2]bool{}
		}
		if err := p.add(off, n, use); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// rest plans what only the longer image has.
func (p *pairPlanner) rest() error {
	if err := p.flush(); err != nil {
		return err
	}
	p.c.seq.end(p.number, func() {
		if p.c.o.Longer != nil && !p.c.settled(p.c.both-1) {
			p.c.o.Longer()
		}
	})
	p.number++
	i := 0
	if p.c.devs[1].Size() == p.c.total {
		i = 1
	}
	for off := p.c.both; off < p.c.total; {
		e, err := p.extent(i, off)
		if err != nil {
			return err
		}
		var use [2]bool
		use[i] = !empty(e)
		if err := p.add(off, e.Length, use); err != nil {
			return err
		}
		off += e.Length
	}
	return nil
}

// empty tells whether an extent reads as zeros: it is known to, or no layer holds it.
func empty(e block.Extent) bool { return e.IsZero() || e.Flags&block.Allocated == 0 }

// samePlace tells whether two extents are the same bytes of the same file.
func samePlace(a, b block.Extent) bool {
	return a.Flags&b.Flags&block.HasHost != 0 && a.File == b.File && a.Host == b.Host
}

// add plans a range, in units.
func (p *pairPlanner) add(off, n int64, use [2]bool) error {
	if p.cur.n > 0 && p.cur.use != use {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if use == [2]bool{} {
		p.cur = pair{off: off, n: n}
		return p.flush()
	}
	for n > 0 {
		if p.cur.n == 0 {
			p.cur = pair{off: off, use: use}
		}
		step := min(n, compareUnit-p.cur.n)
		p.cur.n += step
		off, n = off+step, n-step
		if p.cur.n == compareUnit {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush sends the range being collected.
func (p *pairPlanner) flush() error {
	if p.cur.n == 0 {
		return nil
	}
	u := p.cur
	p.cur = pair{}
	u.number = p.number
	p.number++
	if u.use == [2]bool{} { // nothing to read
		p.c.seq.end(u.number, func() { p.c.report(u.n) })
		return nil
	}
	select {
	case p.pairs <- u:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (c *comparer) report(n int64) {
	c.done += n
	if c.o.Progress != nil {
		c.o.Progress(c.done, c.total)
	}
}

// work compares ranges until there are none.
func (c *comparer) work(ctx context.Context, pairs <-chan pair) error {
	var bufs [2][]byte
	defer func() {
		for _, b := range bufs {
			if b != nil {
				iobuf.Put(b)
			}
		}
	}()
	for u := range pairs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !c.settled(u.off) {
			for i := range bufs {
				if bufs[i] == nil {
					bufs[i] = iobuf.Get(compareUnit)
				}
			}
			if err := c.compare(ctx, u, bufs); err != nil {
				return err
			}
		}
		c.seq.end(u.number, func() {
			if !c.settled(u.off + u.n - 1) {
				c.report(u.n)
			}
		})
	}
	return nil
}

// compare reads and compares one range. Only the end of ctx is an error.
func (c *comparer) compare(ctx context.Context, u pair, bufs [2][]byte) error {
	for i, dev := range c.devs {
		if !u.use[i] {
			continue
		}
		if err := dev.Read(ctx, bufs[i][:u.n], u.off); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.find(finding{off: u.off, err: &PartError{Image: i, Off: u.off, Err: err}})
			return nil
		}
	}
	var at int64
	switch {
	case u.use == [2]bool{true, true}:
		at = firstDifference(bufs[0][:u.n], bufs[1][:u.n])
	case u.use[0]:
		at = firstNonzero(bufs[0][:u.n])
	default:
		at = firstNonzero(bufs[1][:u.n])
	}
	if at >= 0 {
		c.find(finding{off: u.off + at, verdict: ContentDiffers})
	}
	return nil
}

const sectorSize = 512

// firstDifference returns where the first sector begins that is not the same, or -1.
func firstDifference(a, b []byte) int64 {
	if bytes.Equal(a, b) {
		return -1
	}
	for at := 0; ; at += sectorSize {
		end := min(at+sectorSize, len(a))
		if !bytes.Equal(a[at:end], b[at:end]) {
			return int64(at)
		}
	}
}

// firstNonzero returns where the first sector begins that is not all zeros, or -1.
func firstNonzero(p []byte) int64 {
	for at := 0; at < len(p); at += sectorSize {
		if !isZero(p[at:min(at+sectorSize, len(p))]) {
			return int64(at)
		}
	}
	return -1
}
