package block

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var bg = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call is a request that has reached a fake driver and waits there to be let go.
type call struct {
	name string // "write 4096+512"
	end  chan error
}

// fake is a driver over plain bytes that does not synchronise access to them, proves that it is called within its
// geometry, and can hold requests.
type fake struct {
	t     testing.TB
	geo   Geometry
	size  atomic.Int64
	data  []byte // as long as the driver can get
	held  chan *call
	hold  atomic.Bool
	calls struct {
		sync.Mutex
		list []string
	}
	noZero  bool // KindUnsupported to every zero
	flushes atomic.Int64
	fail    atomic.Pointer[error] // for every request
}

func newFake(t testing.TB, size, room int64, geo Geometry) *fake {
	geo.Path = "fake"
	if geo.RequestAlign == 0 {
		geo.RequestAlign = 1
	}
	f := &fake{t: t, geo: geo, data: make([]byte, room), held: make(chan *call, 100)}
	f.size.Store(size)
	return f
}

// enter reports a call and waits if told to.
func (f *fake) enter(op string, off, n int64) error {
	name := fmt.Sprintf("%s %d+%d", op, off, n)
	f.calls.Lock()
	f.calls.list = append(f.calls.list, name)
	f.calls.Unlock()
	if f.hold.Load() {
		c := &call{name, make(chan error, 1)}
		f.held <- c
		return <-c.end
	}
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fake) seen() (l []string) {
	f.calls.Lock()
	defer f.calls.Unlock()
	l, f.calls.list = f.calls.list, nil
	return l
}

func (f *fake) check(op string, off, n, limit int64, grows bool) {
	g := &f.geo
	a := g.RequestAlign
	end := roundUp(f.size.Load(), a)
	if off < 0 || n <= 0 || off%a != 0 || n%a != 0 || limit > 0 && n > max(limit, a) || !(grows && g.Growable) && off+n > end {
		f.t.Errorf("%s %d+%d is against the geometry (size %d, unit %d, limit %d)", op, off, n, f.size.Load(), a, limit)
	}
}

func (f *fake) checkVec(op string, iov [][]byte, off int64) {
	f.check(op, off, iovLen(iov), f.geo.MaxTransfer, op == "write")
	if m := f.geo.MaxIovec; m > 0 && len(iov) > m {
		f.t.Errorf("%s with %d buffers", op, len(iov))
	}
}

func (f *fake) grow(end int64) {
	for f.geo.Growable {
		if old := f.size.Load(); end <= old || f.size.CompareAndSwap(old, end) {
			return
		}
	}
}

func (f *fake) Geometry() Geometry { return f.geo }
func (f *fake) Size() int64        { return f.size.Load() }

func (f *fake) ReadvAt(_ context.Context, iov [][]byte, off int64) error {
	f.checkVec("read", iov, off)
	if err := f.enter("read", off, iovLen(iov)); err != nil {
		return err
	}
	for _, p := range iov {
		k := max(min(int64(len(p)), f.size.Load()-off), 0)
		copy(p[:k], f.data[off:])
		clear(p[k:])
		off += int64(len(p))
	}
	return nil
}

func (f *fake) WritevAt(_ context.Context, iov [][]byte, off int64, flags Flags) error {
	f.checkVec("write", iov, off)
	op := "write"
	if flags&FUA != 0 {
		op = "write-fua"
	}
	n := iovLen(iov)
	if err := f.enter(op, off, n); err != nil {
		return err
	}
	end := off + n
	for _, p := range iov {
		if !f.geo.Growable {
			p = p[:max(min(int64(len(p)), f.size.Load()-off), 0)]
		}
		copy(f.data[off:], p)
		off += int64(len(p))
	}
	f.grow(end)
	return nil
}

func (f *fake) ZeroAt(_ context.Context, off, n int64, flags Flags) error {
	f.check("zero", off, n, f.geo.MaxZero, true)
	if err := f.enter("zero", off, n); err != nil {
		return err
	}
	if f.noZero {
		return &Error{Kind: KindUnsupported}
	}
	end := off + n
	if !f.geo.Growable {
		end = min(end, f.size.Load())
	}
	clear(f.data[off:end])
	f.grow(end)
	return nil
}

func (f *fake) DiscardAt(_ context.Context, off, n int64) error {
	f.check("discard", off, n, f.geo.MaxDiscard, false)
	if err := f.enter("discard", off, n); err != nil {
		return err
	}
	clear(f.data[off:min(off+n, f.size.Load())])
	return nil
}

func (f *fake) Flush(context.Context) error {
	f.flushes.Add(1)
	return f.enter("flush", 0, 0)
}

func (f *fake) Extent(_ context.Context, off, n int64, _ Query) (Extent, error) {
	return Extent{Start: off, Length: n, Flags: Data}, nil
}

func (f *fake) Resize(_ context.Context, size int64, _ ResizeOptions) error {
	if err := f.enter("resize", size, 0); err != nil {
		return err
	}
	if old := f.size.Load(); size < old {
		clear(f.data[size:old])
	}
	f.size.Store(size)
	return nil
}

func (f *fake) Close() error { return f.enter("close", 0, 0) }

// next is the next call that the driver holds.
func (f *fake) next() *call {
	f.t.Helper()
	select {
	case c := <-f.held:
		return c
	case <-time.After(10 * time.Second):
		f.t.Fatal("no request reached the driver")
		return nil
	}
}

// waiting counts the requests that sleep.
func (d *Device) waiting() (n int) {
	for i := range d.track.shards {
		s := &d.track.shards[i]
		s.mu.Lock()
		for r := s.head; r != nil; r = r.next {
			for w := r.waiters; w != nil; w = w.nextWaiter {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// untilWaiting returns when n requests sleep.
func (d *Device) untilWaiting(t testing.TB, n int) {
	t.Helper()
	for start := time.Now(); d.waiting() != n; time.Sleep(50 * time.Microsecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d requests wait, want %d", d.waiting(), n)
		}
	}
}

// async runs do in a goroutine; the channel gives its error.
func async(do func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- do() }()
	return c
}

func await(t testing.TB, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("request does not end")
	}
}
