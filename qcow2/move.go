package qcow2

import (
	"context"
	"sync"

	"byre/block"
	"byre/qcow2/layout"
)

const (
	// zeroMergeMax is the largest amount of zeros that ZeroAuto writes along with the data instead of asking the file
	// to zero the range: below it one larger write is cheaper on every file system that was measured, since zeroing a
	// range stalls direct I/O to the file.
	zeroMergeMax = 128 << 10
	// zeroBlock is the memory that zeros are written from.
	zeroBlock = 64 << 10
)

var zeroBytes = make([]byte, zeroBlock)

// cowBuffers is the memory of the regions that are copied for a flight.
type cowBuffers struct{ head, tail *cowBuffer }

type cowBuffer struct{ b []byte }

var cowPool = sync.Pool{New: func() any { return new(cowBuffer) }}

func getCOW(n int64) *cowBuffer {
	c := cowPool.Get().(*cowBuffer)
	if int64(cap(c.b)) < n {
		c.b = make([]byte, n)
	}
	c.b = c.b[:n]
	return c
}

func (c *cowBuffers) put() {
	for _, p := range []**cowBuffer{&c.head, &c.tail} {
		if *p != nil {
			cowPool.Put(*p)
			*p = nil
		}
	}
}

// move writes the data of a flight and gives contents to the rest of its hull: nothing where zeros are there already,
// else zeros or what the guest reads there, in one write with the data if possible (qcow2-format §9.4, §9.5).
func (w *writer) move(ctx context.Context, r *writeReq) error {
	f := &r.f
	r.vec = r.vec[:0]
	defer r.cow.put()
	if f.h0 == f.w0 && f.h1 == f.w1 {
		return w.moveData(ctx, r, f.w0, f.w1)
	}
	headZero, tailZero, err := w.zeroSides(ctx, f)
	if err != nil {
		return err
	}
	if headZero && tailZero {
		return w.moveZeros(ctx, r)
	}
	from, to := f.h0, f.h1
	if f.fresh && headZero {
		from = f.w0
	}
	if f.fresh && tailZero {
		to = f.w1
	}
	f.cow = true
	return w.moveCopied(ctx, r, from, to, headZero, tailZero)
}

// zeroSides tells for the parts of the hull before and behind the data whether they read as zeros.
func (w *writer) zeroSides(ctx context.Context, f *flight) (head, tail bool, err error) {
	if f.zeros {
		return true, true, nil
	}
	if head, err = w.readsZero(ctx, f.h0, f.w0); err != nil {
		return false, false, err
	}
	tail, err = w.readsZero(ctx, f.w1, f.h1)
	return head, tail, err
}

// moveZeros does a flight the rest of whose hull reads as zeros.
func (w *writer) moveZeros(ctx context.Context, r *writeReq) error {
	f := &r.f
	dev, _ := w.dataDevice()
	if err := w.im.file.Event(ctx, block.EventClusterAllocSpace); err != nil {
		return err
	}
	if f.fresh {
		return w.moveData(ctx, r, f.w0, f.w1)
	}
	f.cow = true
	n := f.h1 - f.h0
	if w.rangeZero(dev, n-(f.w1-f.w0)) {
		at := f.host + layout.HostOffset(f.h0-f.guest)
		if err := w.checkData(ctx, at, n); err != nil {
			return err
		}
		err := dev.Zero(ctx, int64(at), n, block.NoFallback)
		if err == nil {
			return w.moveData(ctx, r, f.w0, f.w1)
		}
		if block.KindOf(err) != block.KindUnsupported {
			return err
		}
	}
	return w.moveCopied(ctx, r, f.h0, f.h1, true, true)
}

// rangeZero decides whether n bytes of zeros are made by a request to the file.
func (w *writer) rangeZero(dev *block.Device, n int64) bool {
	switch w.opts.ZeroPolicy {
	case ZeroRange:
		return dev.Geometry().QuickZero
	case ZeroWrite:
		return false
	}
	return n > zeroMergeMax && dev.Geometry().QuickZero
}

// moveCopied writes [from, to) of a flight as one vector: head, data, tail.
func (w *writer) moveCopied(ctx context.Context, r *writeReq, from, to int64, headZero, tailZero bool) error {
	f := &r.f
	var err error
	if from < f.w0 {
		if r.vec, err = w.cowRegion(ctx, r.vec, &r.cow.head, from, f.w0, headZero); err != nil {
			return err
		}
	}
	r.vec = r.c.take(r.vec, f.w1-f.w0)
	if f.w1 < to {
		if r.vec, err = w.cowRegion(ctx, r.vec, &r.cow.tail, f.w1, to, tailZero); err != nil {
			return err
		}
	}
	if err := w.im.file.Event(ctx, block.EventWriteAIO); err != nil {
		return err
	}
	if err := w.im.file.Event(ctx, block.EventCOWWrite); err != nil {
		return err
	}
	return w.writeHost(ctx, r, from, to)
}

// cowRegion appends the contents of guest range [from, to) to vec.
func (w *writer) cowRegion(ctx context.Context, vec [][]byte, buf **cowBuffer, from, to int64, zero bool) ([][]byte, error) {
	if zero {
		for n := to - from; n > 0; n -= zeroBlock {
			vec = append(vec, zeroBytes[:min(n, zeroBlock)])
		}
		return vec, nil
	}
	*buf = getCOW(to - from)
	vec = append(vec, (*buf).b)
	if err := w.im.file.Event(ctx, block.EventCOWRead); err != nil {
		return vec, err
	}
	return vec, w.im.view.readv(ctx, vec[len(vec)-1:], from)
}

// moveData writes guest range [from, to), which is exactly what the request has at hand.
func (w *writer) moveData(ctx context.Context, r *writeReq, from, to int64) error {
	r.vec = r.c.take(r.vec, to-from)
	if err := w.im.file.Event(ctx, block.EventWriteAIO); err != nil {
		return err
	}
	return w.writeHost(ctx, r, from, to)
}

// writeHost writes r.vec to the place of guest range [from, to).
func (w *writer) writeHost(ctx context.Context, r *writeReq, from, to int64) error {
	dev, _ := w.dataDevice()
	at := r.f.host + layout.HostOffset(from-r.f.guest)
	if err := w.checkData(ctx, at, to-from); err != nil {
		return err
	}
	return dev.Writev(ctx, r.vec, int64(at), 0)
}

// readsZero reports whether the guest range [from, to) is known to read as zeros. It may say no where it does.
func (w *writer) readsZero(ctx context.Context, from, to int64) (bool, error) {
	for from < to {
		var m mapping
		if err := w.im.view.lookup(ctx, from, to-from, lookupRuns, &m); err != nil {
			return false, err
		}
		switch readsAs(m.typ) {
		case readsZero:
		case readsBacking:
			zero, err := w.backingZero(ctx, from, m.n)
			if !zero || err != nil {
				return false, err
			}
		default:
			return false, nil
		}
		from += m.n
	}
	return true, nil
}

// backingZero reports whether the backing file is known to read as zeros in a range, or has nothing there.
func (w *writer) backingZero(ctx context.Context, off, n int64) (bool, error) {
	b := w.im.backing.Load()
	if b == nil {
		return true, w.im.needBacking()
	}
	for end := min(off+n, b.Size()); off < end; {
		e, err := b.Extent(ctx, off, end-off, 0)
		if err != nil || !e.IsZero() {
			return false, nil // an answer is not needed: the copy will tell
		}
		off += e.Length
	}
	return true, nil
}
