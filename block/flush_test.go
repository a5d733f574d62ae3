package block

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestFlushesThatWaitTogetherShareOne(t *testing.T) {
	f := newFake(t, 4096, 4096, Geometry{})
	d := NewDevice(f)
	must(t, d.Write(bg, []byte{1}, 0, 0))
	f.hold.Store(true)
	first := async(func() error { return d.Flush(bg) })
	c := f.next()
	f.hold.Store(false)
	must(t, d.Write(bg, []byte{1}, 0, 0)) // the running flush may not cover it
	f.hold.Store(true)
	var rest []<-chan error
	for range 10 {
		rest = append(rest, async(func() error { return d.Flush(bg) }))
	}
	for d.InFlight() != 11 {
		time.Sleep(50 * time.Microsecond)
	}
	if n := f.flushes.Load(); n != 1 {
		t.Fatalf("%d flushes at once", n)
	}
	c.end <- nil
	await(t, first)
	second := f.next()
	second.end <- nil
	for _, e := range rest {
		await(t, e)
	}
	if n := f.flushes.Load(); n != 2 {
		t.Errorf("%d flushes, want 2", n)
	}
}

func TestAFlushWithNothingNewIsFree(t *testing.T) {
	f := newFake(t, 4096, 4096, Geometry{})
	d := NewDevice(f)
	flushes := func(want int64, what string) {
		t.Helper()
		must(t, d.Flush(bg))
		if n := f.flushes.Swap(0); n != want {
			t.Errorf("%s: %d flushes, want %d", what, n, want)
		}
	}
	flushes(1, "just opened")
	flushes(0, "nothing happened")
	must(t, d.Read(bg, make([]byte, 1), 0))
	flushes(0, "after a read")
	must(t, d.Write(bg, []byte{1}, 0, 0))
	flushes(1, "after a write")
	must(t, d.Zero(bg, 0, 1, 0))
	flushes(1, "after a zero")
	must(t, d.Discard(bg, 0, 1))
	flushes(1, "after a discard")
	must(t, d.Resize(bg, 100, ResizeOptions{}))
	flushes(1, "after a resize")
	bad := errors.New("bad")
	f.fail.Store(&bad)
	if err := d.Write(bg, []byte{1}, 0, 0); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	if err := d.Flush(bg); !errors.Is(err, bad) {
		t.Fatal("a failed write may have changed something: the flush must try")
	}
	f.fail.Store(nil)
	f.flushes.Store(0)
	flushes(1, "after a failed flush")
	flushes(0, "and then")
}

// asked is storage that can change without the device: it is always asked.
type asked struct{ *fake }

func (asked) GrowTo(context.Context, int64) (int64, error) { return 0, nil }
func (asked) CutTo(context.Context, int64) error           { return nil }
func (asked) FreshFrom() int64                             { return 0 }

func TestDriversThatChangeByThemselvesAreAlwaysAsked(t *testing.T) {
	f := asked{newFake(t, 4096, 4096, Geometry{})}
	d := NewDevice(f)
	for range 3 {
		must(t, d.Flush(bg))
	}
	if n := f.flushes.Load(); n != 3 {
		t.Error(n)
	}
}

func TestWritesToDriversWithoutFUAEndWithAFlush(t *testing.T) {
	f := newFake(t, 4096, 4096, Geometry{NoFUA: true})
	d := NewDevice(f)
	must(t, d.Flush(bg))
	for _, do := range []func(Flags) error{
		func(fl Flags) error { return d.Write(bg, []byte{1}, 0, fl) },
		func(fl Flags) error { return d.Zero(bg, 0, 10, fl) },
	} {
		f.flushes.Store(0)
		must(t, do(0))
		if f.flushes.Load() != 0 {
			t.Error("flushed unasked")
		}
		must(t, do(FUA))
		if f.flushes.Load() != 1 {
			t.Error("not flushed")
		}
		bad := errors.New("bad")
		f.hold.Store(true)
		e := async(func() error { return do(FUA) })
		f.next().end <- nil
		f.next().end <- bad
		if err := <-e; !errors.Is(err, bad) {
			t.Errorf("the failure of the flush is hidden: %v", err)
		}
		f.hold.Store(false)
	}
}

func TestAbandonedFlushesStillEndBeforeClose(t *testing.T) {
	f := newFake(t, 4096, 4096, Geometry{})
	d := NewDevice(f)
	f.hold.Store(true)
	first := async(func() error { return d.Flush(bg) })
	c := f.next()
	ctx, cancel := context.WithCancel(bg)
	second := async(func() error { return d.Flush(ctx) })
	for joined := false; !joined; time.Sleep(50 * time.Microsecond) {
		d.flush.mu.Lock()
		joined = d.flush.mu.next != nil
		d.flush.mu.Unlock()
	}
	must(t, func() error { f.hold.Store(false); return d.Write(bg, []byte{1}, 0, 0) }())
	f.hold.Store(true)
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cl := async(d.Close)
	c.end <- nil
	await(t, first)
	c = f.next() // the generation that nobody waits for any more
	if c.name != "flush 0+0" {
		t.Fatal(c.name)
	}
	if len(f.held) != 0 {
		t.Fatal("closed with a flush in flight")
	}
	c.end <- nil
	f.next().end <- nil
	await(t, cl)
}
