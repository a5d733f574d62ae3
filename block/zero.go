package block

import (
	"context"
	"sync"

	"byre/internal/iobuf"
)

// Zero makes [off, off+n) read as zeros. Flags: FUA, MayUnmap, NoFallback, Serialising, NoWait. With NoFallback the error
// is of KindUnsupported if the driver has no quick way, or the range is not of whole units. A zero that ends beyond the
// end of the layer extends it, and holds off everything from its start to infinity: file systems have cut off direct
// writes that were in flight behind a fallocate that extended the file.
func (d *Device) Zero(ctx context.Context, off, n int64, flags Flags) error {
	if err := d.check("write zeroes", off, n, true); err != nil || n == 0 {
		return err
	}
	if p := d.policy.Load(); p != nil {
		flags = p.flags(flags)
	}
	g := d.geo.Load()
	if flags&NoFallback != 0 && d.zeroCuts(g, off, off+n) {
		return d.err(KindUnsupported, "write zeroes", off, "not whole units")
	}
	r := d.request()
	defer r.release()
	if err := d.enterZero(ctx, r, off, n, flags); err != nil {
		return err
	}
	err := d.zeroEntered(ctx, r, off, n, flags)
	r.leave()
	if err == nil && flags&FUA != 0 && g.NoFUA {
		err = d.Flush(ctx)
	}
	return err
}

// zeroCuts tells whether zeroing [off, end) must keep other data in a unit that it touches.
func (d *Device) zeroCuts(g *Geometry, off, end int64) bool {
	return off&(g.RequestAlign-1) != 0 || end&(g.RequestAlign-1) != 0 && end < d.Size()
}

// enterZero starts a zero request. What it must hold off depends on the length of the layer, which is looked at again
// once the record is in place, since until then others may have changed it.
func (d *Device) enterZero(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	g := d.geo.Load()
	unit, end, nowait := g.RequestAlign, off+n, flags&NoWait != 0
	start := off &^ (unit - 1)
	extends := func() bool { return g.Growable && end > d.Size() }
	if extends() {
		return r.enterSerialising(ctx, start, infinity, nowait)
	}
	cuts := d.zeroCuts(g, off, end)
	if err := d.enterWrite(ctx, r, off, n, flags, cuts); err != nil {
		return err
	}
	var err error
	switch {
	case extends():
		err = r.widen(ctx, start, infinity, nowait)
	case !cuts && d.zeroCuts(g, off, end):
		err = r.widen(ctx, start, roundUp(end, unit), nowait)
	}
	if err != nil {
		r.leave()
	}
	return err
}

func (d *Device) zeroEntered(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	if r.waited {
		if err := d.check("write zeroes", off, n, true); err != nil {
			return err
		}
	}
	align := d.geo.Load().RequestAlign
	start, end := off, off+n
	if end >= d.Size() {
		end = roundUp(end, align) // nothing but zeros can lie behind it
	}
	// [start, first) and [last, end) are parts of units that hold other data; with both in one unit there is no body.
	first, last := roundUp(start, align), end&^(align-1)
	if first > last {
		return d.zeroPart(ctx, r, start, end, flags)
	}
	if start < first {
		if err := d.zeroPart(ctx, r, start, first, flags); err != nil {
			return err
		}
	}
	if err := d.zeroUnits(ctx, r, first, last-first, flags); err != nil {
		return err
	}
	if last < end {
		return d.zeroPart(ctx, r, last, end, flags)
	}
	return nil
}

// zeroPart zeroes a part of one unit by read-modify-write.
func (d *Device) zeroPart(ctx context.Context, r *Request, off, end int64, flags Flags) error {
	p := padTo(d.geo.Load().RequestAlign, off, end-off)
	defer p.free()
	if err := d.fillPadding(ctx, r, &p); err != nil {
		return err
	}
	clear(p.buf[off-p.start : end-p.start])
	v := append(r.vec[:0], p.buf[:p.end-p.start])
	r.vec = v
	return d.transfer(ctx, r, v, p.start, p.end-p.start, opWrite, flags&FUA)
}

// zeroUnits zeroes whole units: what is before the first and behind the last multiple of ZeroAlign by itself, so that
// the rest is quick.
func (d *Device) zeroUnits(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	g := d.geo.Load()
	unit := max(g.ZeroAlign, g.RequestAlign)
	longest := int64(infinity)
	if g.MaxZero > 0 {
		longest = max(g.MaxZero/unit*unit, g.RequestAlign)
	}
	for n > 0 {
		k := min(n, longest)
		if head := off % unit; head != 0 {
			k = min(k, unit-head)
		} else if tail := (off + k) % unit; tail < k {
			k -= tail
		}
		if err := d.zeroCall(ctx, r, off, k, flags); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

func (d *Device) zeroCall(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	if err := d.Event(ctx, EventPwritevZero); err != nil {
		return err
	}
	var err error
	if down := flags & (FUA | MayUnmap | NoFallback); d.widener != nil {
		err = d.widener.ZeroRequest(ctx, r, off, n, down)
	} else {
		err = d.drv.ZeroAt(ctx, off, n, down)
	}
	d.flush.note()
	if err != nil && flags&NoFallback == 0 && KindOf(err) == KindUnsupported {
		err = d.writeZeros(ctx, r, off, n, flags&FUA)
	}
	if e := d.Event(ctx, EventPwritevDone); err == nil {
		err = e
	}
	return err
}

const zeroBufSize = 64 << 10

// zeroBuf is never written to.
var zeroBuf = sync.OnceValue(func() []byte {
	b := iobuf.Get(zeroBufSize)
	clear(b)
	return b
})

// writeZeros writes zeros, all from one small buffer.
func (d *Device) writeZeros(ctx context.Context, r *Request, off, n int64, flags Flags) error {
	const most = 32 * zeroBufSize
	for n > 0 {
		k := min(n, most)
		v := r.vec[:0]
		for left := k; left > 0; left -= zeroBufSize {
			v = append(v, zeroBuf()[:min(left, zeroBufSize)])
		}
		r.vec = v
		if err := d.transfer(ctx, r, v, off, k, opWrite, flags); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// Discard says that [off, off+n) is no longer needed. Only whole units in it are given up.
func (d *Device) Discard(ctx context.Context, off, n int64) error {
	if err := d.check("discard", off, n, true); err != nil || n == 0 {
		return err
	}
	if p := d.policy.Load(); p != nil && p.IgnoreDiscard {
		return nil
	}
	r := d.request()
	defer r.release()
	if err := r.enter(ctx, off, off+n); err != nil {
		return err
	}
	defer r.leave()
	if r.waited {
		if err := d.check("discard", off, n, true); err != nil {
			return err
		}
	}
	size := d.Size()
	if n = min(n, size-off); n <= 0 {
		return nil // behind the end: nothing is stored there
	}
	g := d.geo.Load()
	end := off + n
	if end == size {
		end = roundUp(end, g.RequestAlign)
	}
	off, end = roundUp(off, g.RequestAlign), end&^(g.RequestAlign-1)
	unit := max(g.DiscardAlign, g.RequestAlign)
	for off < end {
		k := end - off
		if g.MaxDiscard > 0 && k > g.MaxDiscard {
			k = max(g.MaxDiscard/unit*unit-off%unit, g.RequestAlign)
		}
		err := d.drv.DiscardAt(ctx, off, k)
		d.flush.note()
		if err != nil && KindOf(err) != KindUnsupported {
			return err
		}
		off += k
	}
	return nil
}
