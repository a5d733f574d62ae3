package block

import (
	"context"
	"sync"
	"sync/atomic"
)

// flusher lets flushes share: one that starts while another runs cannot know what that one covers, so it joins the
// next, together with all others that start meanwhile.
type flusher struct {
	// dirty: something has completed since the last good flush began. Set after the change and before its request
	// returns, cleared before the flush: so a flush that finds it clear has nothing to do.
	dirty atomic.Bool
	// ask: the driver can change without the device hearing of it, so it is asked in any case.
	ask bool

	mu struct {
		sync.Mutex
		running bool
		next    *generation
		idle    chan struct{} // somebody waits for running to end for good
	}
}

// generation is a flush that several wait for.
type generation struct {
	done chan struct{}
	err  error
}

func (f *flusher) init(drv Driver) {
	f.dirty.Store(true) // who knows what happened before
	switch drv.(type) {
	case Chained, FreshSpace, Preallocator:
		f.ask = true
	}
}

// note says that the driver was changed, or may have been.
func (f *flusher) note() {
	if !f.dirty.Load() {
		f.dirty.Store(true)
	}
}

// Flush makes every request that completed before the call durable. Flushes that wait at the same time share one, and
// one with nothing new since the last is free. After an error nothing is known to be durable.
func (d *Device) Flush(ctx context.Context) error {
	if d.closed.Load() {
		return d.err(KindInvalid, "flush", NoOffset, "device is closed")
	}
	r := d.request()
	defer r.release()
	if err := r.enter(ctx, 0, 0); err != nil { // meets nobody but who drains
		return err
	}
	defer r.leave()
	if r.waited && d.closed.Load() {
		return d.err(KindInvalid, "flush", NoOffset, "device is closed")
	}
	f := &d.flush
	f.mu.Lock()
	if !f.mu.running {
		f.mu.running = true
		f.mu.Unlock()
		err := d.flushOnce(ctx)
		d.flushed()
		return err
	}
	g := f.mu.next
	if g == nil {
		g = &generation{done: make(chan struct{})}
		f.mu.next = g
	}
	f.mu.Unlock()
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return &Error{Kind: KindIO, Op: "flush", Path: d.Path(), Offset: NoOffset, Msg: "gave up waiting", Err: ctx.Err()}
	}
}

// flushed ends the running flush and starts the generation that has gathered.
func (d *Device) flushed() {
	f := &d.flush
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.mu.next
	f.mu.next = nil
	f.mu.running = g != nil
	if g == nil && f.mu.idle != nil {
		close(f.mu.idle)
		f.mu.idle = nil
	}
	if g != nil {
		go func() {
			// None of those who wait can end it for the others.
			g.err = d.flushOnce(context.Background())
			close(g.done)
			d.flushed()
		}()
	}
}

// waitIdle waits until no flush runs, not even one that everybody gave up waiting for. None may start meanwhile.
func (f *flusher) waitIdle() {
	f.mu.Lock()
	if !f.mu.running {
		f.mu.Unlock()
		return
	}
	if f.mu.idle == nil {
		f.mu.idle = make(chan struct{})
	}
	idle := f.mu.idle
	f.mu.Unlock()
	<-idle
}

func (d *Device) flushOnce(ctx context.Context) error {
	if err := d.flushEvent(ctx, EventFlushToOS); err != nil {
		return err
	}
	if !d.flush.dirty.Swap(false) && !d.flush.ask {
		return nil
	}
	err := d.flushEvent(ctx, EventFlushToDisk)
	if err == nil {
		err = d.drv.Flush(ctx)
	}
	if err != nil {
		d.flush.dirty.Store(true)
	}
	return err
}

// flushEvent tells the storage below a layer what the layer is about to do.
func (d *Device) flushEvent(ctx context.Context, e Event) error {
	if d.chained == nil {
		return nil
	}
	if below := d.chained.File(); below != nil {
		return below.Event(ctx, e)
	}
	return nil
}
