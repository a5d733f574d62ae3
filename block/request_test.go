package block

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// op1 is one request of the table of pairs.
type op1 struct {
	name        string
	serialising bool
	do          func(d *Device, off int64) error
}

func TestOfTwoRequestsTheLaterWaitsOnlyIfOneSerialisesAndTheyMeet(t *testing.T) {
	buf := make([]byte, 4096)
	ops := []op1{
		{"read", false, func(d *Device, off int64) error { return d.Read(bg, buf, off) }},
		{"write", false, func(d *Device, off int64) error { return d.Write(bg, make([]byte, 4096), off, 0) }},
		{"zero", false, func(d *Device, off int64) error { return d.Zero(bg, off, 4096, 0) }},
		{"discard", false, func(d *Device, off int64) error { return d.Discard(bg, off, 4096) }},
		{"serialising write", true, func(d *Device, off int64) error { return d.Write(bg, make([]byte, 4096), off, Serialising) }},
		{"serialising zero", true, func(d *Device, off int64) error { return d.Zero(bg, off, 4096, Serialising) }},
		{"whole-unit rewrite of a part", true, func(d *Device, off int64) error { return d.Write(bg, []byte{1}, off+5, 0) }},
	}
	for _, a := range ops {
		for _, b := range ops {
			for _, meet := range []bool{true, false} {
				f := newFake(t, 1<<16, 1<<16, Geometry{RequestAlign: 4096})
				d := NewDevice(f)
				f.hold.Store(true)
				first := async(func() error { return a.do(d, 8192) })
				ca := f.next()
				off := int64(8192)
				if !meet {
					off = 12288
				}
				second := async(func() error { return b.do(d, off) })
				if meet && (a.serialising || b.serialising) {
					d.untilWaiting(t, 1)
					if len(f.held) > 0 {
						t.Errorf("%s, %s: both reached the driver", a.name, b.name)
					}
					f.hold.Store(false)
					ca.end <- nil
				} else {
					cb := f.next()
					f.hold.Store(false)
					cb.end <- nil
					await(t, second)
					ca.end <- nil
					second = nil
				}
				await(t, first)
				if second != nil {
					await(t, second)
				}
				must(t, d.Close())
				if d.InFlight() != 1 { // the drain of Close has left when Close returned
					if d.InFlight() != 0 {
						t.Errorf("%d in flight", d.InFlight())
					}
				}
			}
		}
	}
}

func TestWaitersAreServedInTheirOrder(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{})
	d := NewDevice(f)
	f.hold.Store(true)
	reader := async(func() error { return d.Read(bg, make([]byte, 4096), 0) })
	read := f.next()
	var ends []<-chan error
	for i := range 5 { // a serialising write waits for the read, everything later waits behind it, even reads
		ends = append(ends, async(func() error {
			if i%2 == 1 {
				return d.Read(bg, make([]byte, 100), 0)
			}
			return d.Write(bg, make([]byte, 100+i), 0, Serialising)
		}))
		d.untilWaiting(t, i+1)
	}
	if len(f.held) != 0 {
		t.Fatal("somebody passed")
	}
	read.end <- nil
	await(t, reader)
	for i, want := range []string{"write 0+100", "read 0+100", "write 0+102", "read 0+100", "write 0+104"} {
		c := f.next()
		if c.name != want || len(f.held) != 0 {
			t.Fatalf("%s came as number %d, want %s", c.name, i, want)
		}
		c.end <- nil
		await(t, ends[i])
	}
}

func TestNoWaitGivesBusyInsteadOfWaiting(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{RequestAlign: 512})
	d := NewDevice(f)
	f.hold.Store(true)
	first := async(func() error { return d.Write(bg, make([]byte, 512), 0, 0) })
	c := f.next()
	for _, err := range []error{
		d.Write(bg, make([]byte, 512), 0, Serialising|NoWait),
		d.Zero(bg, 0, 1024, Serialising|NoWait),
		d.Write(bg, make([]byte, 100), 5, NoWait), // a read-modify-write serialises
	} {
		if !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
	}
	if n := d.InFlight(); n != 1 {
		t.Errorf("%d in flight", n)
	}
	c.end <- nil
	await(t, first)
	f.hold.Store(false)
	must(t, d.Write(bg, make([]byte, 512), 0, Serialising|NoWait))
}

func TestSerialisingWritesHoldOffTheirWholeCluster(t *testing.T) {
	f := newFake(t, 1<<20, 1<<20, Geometry{ClusterSize: 1 << 16})
	d := NewDevice(f)
	f.hold.Store(true)
	first := async(func() error { return d.Write(bg, make([]byte, 10), 70000, Serialising) })
	c := f.next()
	second := async(func() error { return d.Read(bg, make([]byte, 10), 131071-9) })
	third := async(func() error { return d.Read(bg, make([]byte, 10), 131072) })
	o := f.next()
	if o.name != "read 131072+10" {
		t.Fatal(o.name)
	}
	o.end <- nil
	await(t, third)
	d.untilWaiting(t, 1)
	f.hold.Store(false)
	c.end <- nil
	await(t, first)
	await(t, second)
}

// widening is a driver whose requests widen their records.
type widening struct {
	*fake
	request func(r *Request) error
}

func (w *widening) WritevRequest(ctx context.Context, r *Request, iov [][]byte, off int64, flags Flags) error {
	if err := w.request(r); err != nil {
		return err
	}
	return w.fake.WritevAt(ctx, iov, off, flags)
}

func (w *widening) ZeroRequest(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	if err := w.request(r); err != nil {
		return err
	}
	return w.fake.ZeroAt(ctx, off, n, flags)
}

func TestADriverFindsAndWidensItsOwnRecord(t *testing.T) {
	var d *Device
	w := &widening{fake: newFake(t, 1<<20, 1<<20, Geometry{})}
	steps := make(chan string, 10)
	w.request = func(r *Request) error {
		span := func() [2]int64 { return [2]int64{r.off, r.end} }
		if span() != [2]int64{5000, 5100} || r.ser {
			t.Errorf("not the record of this request: %v", span())
		}
		must(t, r.Serialise(bg, 6000, 100, 4096, false))
		if span() != [2]int64{4096, 8192} || !r.ser {
			t.Errorf("widened to %v", span())
		}
		must(t, r.Serialise(bg, 5000, 10, 512, false))
		if span() != [2]int64{4096, 8192} {
			t.Errorf("an overlap has shrunk to %v", span())
		}
		steps <- "wide"
		if err := r.Serialise(bg, 0, infinity, 4096, true); !errors.Is(err, ErrBusy) || span() != [2]int64{4096, 8192} || !r.ser {
			t.Errorf("busy: %v, then %v", err, span())
		}
		return nil
	}
	d = NewDevice(w)
	w.hold.Store(true)
	far := async(func() error { return d.Read(bg, make([]byte, 10), 100000) })
	cFar := w.next()
	wide := async(func() error { return d.Write(bg, make([]byte, 100), 5000, 0) })
	<-steps
	c := w.next()
	later := async(func() error { return d.Read(bg, make([]byte, 10), 8000) })
	d.untilWaiting(t, 1)
	w.hold.Store(false)
	c.end <- nil
	await(t, wide)
	await(t, later)
	cFar.end <- nil
	await(t, far)
}

func TestRunningRequestsThatWidenOverEachOtherDoNotDeadlock(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		w := &widening{fake: newFake(t, 1<<20, 1<<20, Geometry{})}
		d := NewDevice(w)
		var ready sync.WaitGroup
		const n = 8
		ready.Add(n)
		var running atomic.Int32
		w.request = func(r *Request) error {
			ready.Done()
			ready.Wait() // all run before the first widens
			must(t, r.Serialise(bg, 0, infinity, 1, false))
			if running.Add(1) > 1 {
				t.Error("two run where both hold everything")
			}
			time.Sleep(100 * time.Microsecond)
			running.Add(-1)
			return nil
		}
		var ends []<-chan error
		for i := range n {
			ends = append(ends, async(func() error { return d.Write(bg, make([]byte, 10), int64(i)*1000, 0) }))
		}
		if fresh { // others queue up at the same time
			ready.Wait()
			for i := range n {
				ends = append(ends, async(func() error { return d.Read(bg, make([]byte, 10), int64(i)*1000) }))
				ends = append(ends, async(func() error { return d.Discard(bg, int64(i)*1000, 10) }))
			}
		}
		for _, e := range ends {
			await(t, e)
		}
		if d.InFlight() != 0 || d.waiting() != 0 || d.track.serialising.Load() != 0 {
			t.Errorf("left: %d in flight, %d waiting, %d serialising", d.InFlight(), d.waiting(), d.track.serialising.Load())
		}
	}
}

func TestAnEndedContextEndsTheWaiting(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{})
	d := NewDevice(f)
	f.hold.Store(true)
	first := async(func() error { return d.Write(bg, make([]byte, 512), 0, Serialising) })
	c := f.next()
	ctx, cancel := context.WithCancel(bg)
	second := async(func() error { return d.Write(ctx, make([]byte, 512), 0, 0) })
	third := async(func() error { return d.Write(ctx, make([]byte, 512), 0, Serialising) })
	d.untilWaiting(t, 2)
	cancel()
	for _, e := range []<-chan error{second, third} {
		if err := <-e; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if d.waiting() != 0 || d.InFlight() != 1 {
		t.Error("they still wait")
	}
	f.hold.Store(false)
	c.end <- nil
	await(t, first)
	must(t, d.Write(bg, make([]byte, 512), 0, Serialising))
}

func TestZerosBeyondTheEndHoldOffAllBehindThem(t *testing.T) {
	const end = 1 << 20
	buf := func() []byte { return make([]byte, 4096) }
	f := newFake(t, end, 4<<20, Geometry{Growable: true})
	d := NewDevice(f)
	f.hold.Store(true)
	behind := async(func() error { return d.Write(bg, buf(), end+1<<20, 0) })
	before := async(func() error { return d.Write(bg, buf(), end-4096, 0) })
	c1, c2 := f.next(), f.next()
	if c1.name != "write 2097152+4096" {
		c1, c2 = c2, c1
	}
	zero := async(func() error { return d.Zero(bg, end, 65536, 0) })
	d.untilWaiting(t, 1) // for the write behind it
	late := async(func() error { return d.Write(bg, buf(), end+2<<20, 0) })
	d.untilWaiting(t, 2) // behind the zero
	lateBefore := async(func() error { return d.Write(bg, buf(), 0, 0) })
	c3 := f.next() // ends before: waits for nobody
	c3.end <- nil
	await(t, lateBefore)
	c1.end <- nil
	await(t, behind)
	cz := f.next() // while the write that ends before the zero still runs
	if cz.name != "zero 1048576+65536" || len(f.held) != 0 {
		t.Fatal(cz.name)
	}
	if d.Size() != end+1<<20+4096 {
		t.Errorf("size %d", d.Size())
	}
	cz.end <- nil
	await(t, zero)
	cl := f.next()
	cl.end <- nil
	await(t, late)
	c2.end <- nil
	await(t, before)
	// Inside the known length zeros hold off nobody.
	in := async(func() error { return d.Zero(bg, 0, 4096, 0) })
	ci := f.next()
	at := async(func() error { return d.Write(bg, buf(), 8192, 0) })
	ca := f.next()
	ca.end <- nil
	await(t, at)
	ci.end <- nil
	await(t, in)
}

func TestResizeHoldsOffTheAreaThatComesOrGoes(t *testing.T) {
	f := newFake(t, 1<<20, 4<<20, Geometry{Growable: true})
	d := NewDevice(f)
	f.hold.Store(true)
	for _, size := range []int64{2 << 20, 1 << 19} {
		off := min(size, d.Size())
		w := async(func() error { return d.Write(bg, make([]byte, 10), off+100, 0) })
		cw := f.next()
		r := async(func() error { return d.Resize(bg, size, ResizeOptions{}) })
		d.untilWaiting(t, 1)
		below := async(func() error { return d.Write(bg, make([]byte, 10), 0, 0) })
		cb := f.next()
		cb.end <- nil
		await(t, below)
		cw.end <- nil
		await(t, w)
		cr := f.next()
		in := async(func() error { return d.Read(bg, make([]byte, 1), off-1) })
		ci := f.next() // before the area
		ci.end <- nil
		await(t, in)
		cr.end <- nil
		await(t, r)
		if d.Size() != size {
			t.Fatal(d.Size())
		}
	}
	// What was inside when it was asked for may be outside after the wait.
	r := async(func() error { return d.Resize(bg, 1000, ResizeOptions{}) })
	cr := f.next()
	late := async(func() error { return d.Read(bg, make([]byte, 10), 2000) })
	d.untilWaiting(t, 1)
	cr.end <- nil
	await(t, r)
	if err := <-late; !errors.Is(err, ErrOutOfBounds) {
		t.Error(err)
	}
}

func TestDrainWaitsForAllAndQuiesceHoldsOffTheRest(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{})
	d := NewDevice(f)
	must(t, d.Drain(bg))
	f.hold.Store(true)
	w := async(func() error { return d.Write(bg, make([]byte, 10), 0, 0) })
	cw := f.next()
	fl := async(func() error { return d.Flush(bg) })
	cf := f.next()
	var resume func()
	q := async(func() (err error) { resume, err = d.Quiesce(bg); return err })
	d.untilWaiting(t, 1)
	late := async(func() error { return d.Read(bg, make([]byte, 10), 5000) })
	lateFlush := async(func() error { return d.Flush(bg) })
	d.untilWaiting(t, 3)
	cw.end <- nil
	await(t, w)
	select {
	case <-q:
		t.Fatal("drained with a flush in flight")
	case <-time.After(5 * time.Millisecond):
	}
	cf.end <- nil
	await(t, fl)
	await(t, q)
	if len(f.held) != 0 {
		t.Fatal("a request runs in the quiet")
	}
	f.hold.Store(false)
	resume()
	await(t, late)
	await(t, lateFlush)
}

func TestCloseWaitsAndRefusesWhatComesLater(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{RequestAlign: 512})
	d := NewDevice(f)
	f.hold.Store(true)
	w := async(func() error { return d.Write(bg, make([]byte, 512), 0, 0) })
	cw := f.next()
	cl := async(d.Close)
	d.untilWaiting(t, 1)
	if err := d.Read(bg, make([]byte, 1), 0); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	f.hold.Store(false)
	cw.end <- nil
	await(t, w)
	await(t, cl)
	if calls := f.seen(); calls[len(calls)-1] != "close 0+0" {
		t.Error(calls)
	}
	_, extent := d.Extent(bg, 0, 1, 0)
	for i, err := range []error{d.Close(), d.Flush(bg), d.Read(bg, make([]byte, 1), 0), d.Write(bg, make([]byte, 1), 0, 0), extent,
		d.Zero(bg, 0, 1, 0), d.Discard(bg, 0, 1), d.Resize(bg, 1, ResizeOptions{}), d.Reopen(bg, ReopenOptions{})} {
		if err == nil {
			t.Errorf("%d is served after Close", i)
		}
	}
	if len(f.seen()) != 0 {
		t.Error("the driver was called after Close")
	}
}

// The memory of the fake driver is not synchronised: under the race detector this proves that whatever meets a
// serialising request is ordered before or after it.
func TestNothingRunsBesideASerialisingRequest(t *testing.T) {
	f := newFake(t, 1<<16, 1<<16, Geometry{RequestAlign: 512})
	d := NewDevice(f)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			b := make([]byte, 8192)
			for range 300 {
				off, n := r.Int64N(1<<16-8192), 1+r.IntN(8000)
				var err error
				switch r.IntN(5) {
				case 0, 1:
					err = d.Read(bg, b[:n], off)
				case 2:
					err = d.Write(bg, b[:n], off, Serialising)
				case 3:
					err = d.Zero(bg, off, int64(n), Serialising)
				case 4:
					if err = d.Write(bg, b[:n], off, Serialising|NoWait); errors.Is(err, ErrBusy) {
						err = nil
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if d.InFlight() != 0 || d.waiting() != 0 || d.track.serialising.Load() != 0 {
		t.Error("records are left")
	}
}

func TestPiecesOfOneBlockWrittenAtOnceAreAllKept(t *testing.T) {
	f := newFake(t, 4096, 8192, Geometry{RequestAlign: 4096, Growable: true})
	d := NewDevice(f)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			at, fill := int64(g%8)*512+int64(g/8)*64, byte(g+1)
			b := make([]byte, 64)
			for i := range 50 {
				for j := range b {
					b[j] = fill + byte(i)
				}
				must(t, d.Write(bg, b, at, 0))
				got := make([]byte, 64)
				must(t, d.Read(bg, got, at))
				if string(got) != string(b) {
					t.Errorf("piece %d lost its write", g)
					return
				}
			}
		})
	}
	wg.Wait()
	for g := range 64 {
		at := int64(g%8)*512 + int64(g/8)*64
		if f.data[at] != byte(g+1)+49 {
			t.Errorf("piece %d is %d", g, f.data[at])
		}
	}
}

// Everything at once, cancelled now and then; that it ends is the point, and what the invariants build adds.
func TestAnythingAtOnceEnds(t *testing.T) {
	w := &widening{fake: newFake(t, 1<<16, 2<<20, Geometry{RequestAlign: 1, Growable: true})}
	var mu sync.Mutex // the fake does not order plain requests
	w.request = func(r *Request) error {
		if r.off%7 == 0 {
			return r.Serialise(bg, r.off/2, 4096, 512, false)
		}
		if r.off%11 == 0 {
			r.Serialise(bg, r.off, infinity, 4096, true)
		}
		return nil
	}
	d := NewDevice(&locked{w, &mu})
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 8))
			for range 300 {
				ctx, cancel := context.WithCancel(bg)
				if r.IntN(4) == 0 {
					time.AfterFunc(time.Duration(r.IntN(200))*time.Microsecond, cancel)
				}
				off, n := r.Int64N(1<<16), 1+r.Int64N(8000)
				switch r.IntN(9) {
				case 0, 1:
					d.Read(ctx, make([]byte, n), off)
				case 2, 3:
					d.Write(ctx, make([]byte, n), off, Flags(r.IntN(2))*Serialising)
				case 4:
					d.Zero(ctx, off, n, Flags(r.IntN(2))*Serialising)
				case 5:
					d.Discard(ctx, off, n)
				case 6:
					d.Flush(ctx)
				case 7:
					d.Resize(ctx, 1<<15+r.Int64N(1<<16), ResizeOptions{})
				case 8:
					d.Drain(ctx)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if d.InFlight() != 0 || d.waiting() != 0 || d.track.serialising.Load() != 0 {
		t.Error("records are left")
	}
	must(t, d.Close())
}

// locked orders the memory accesses of plain requests.
type locked struct {
	*widening
	mu *sync.Mutex
}

func (l *locked) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if off+iovLen(iov) > l.Size() {
		return nil // shrunk since: the check of the fake would complain
	}
	return l.widening.ReadvAt(ctx, iov, off)
}

func (l *locked) WritevRequest(ctx context.Context, r *Request, iov [][]byte, off int64, flags Flags) error {
	if err := l.request(r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fake.WritevAt(ctx, iov, off, flags)
}

func (l *locked) ZeroRequest(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	if err := l.request(r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fake.ZeroAt(ctx, off, n, flags)
}

func (l *locked) DiscardAt(ctx context.Context, off, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if off+n > l.Size() {
		return nil
	}
	return l.fake.DiscardAt(ctx, off, n)
}

func (l *locked) Resize(ctx context.Context, size int64, o ResizeOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fake.Resize(ctx, size, o)
}
