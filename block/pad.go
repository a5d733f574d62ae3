package block

import (
	"context"

	"byre/internal/iobuf"
)

// padding is what surrounds an unaligned request up to whole units: buf holds the first unit, and behind it the last
// one if that is another.
type padding struct {
	unit       int64
	start, end int64 // of the padded request
	head, tail int64 // bytes before and behind the request
	buf        []byte
	merged     bool // the units are all there is between start and end: one read brings them
}

func padTo(unit, off, n int64) padding {
	p := padding{unit: unit, start: off &^ (unit - 1), end: (off + n + unit - 1) &^ (unit - 1)}
	p.head, p.tail = off-p.start, p.end-(off+n)
	size := unit
	if p.head > 0 && p.tail > 0 && p.end-p.start > unit {
		size = 2 * unit
	}
	p.buf = iobuf.Get(int(size))
	p.merged = p.end-p.start == size
	return p
}

func (p *padding) free() { iobuf.Put(p.buf) }

// wrap gives iov with the padding around it, in the scratch of r.
func (p *padding) wrap(r *Request, iov [][]byte) [][]byte {
	v := r.vec[:0]
	if p.head > 0 {
		v = append(v, p.buf[:p.head])
	}
	v = append(v, iov...)
	if p.tail > 0 {
		v = append(v, p.buf[int64(len(p.buf))-p.tail:])
	}
	r.vec = v
	return v
}

// fillPadding reads the units that a write covers in part. What lies behind the end is zeros.
func (d *Device) fillPadding(ctx context.Context, r *Request, p *padding) error {
	if p.head > 0 || p.merged {
		n := p.unit
		if p.merged {
			n = p.end - p.start
		}
		both := p.merged && p.tail > 0
		if err := d.eventIf(ctx, p.head > 0, EventPwritevRMWHead); err != nil {
			return err
		}
		if err := d.eventIf(ctx, both, EventPwritevRMWTail); err != nil {
			return err
		}
		if err := d.readUnits(ctx, r, p.buf[:n], p.start); err != nil {
			return err
		}
		if err := d.eventIf(ctx, p.head > 0, EventPwritevRMWAfterHead); err != nil {
			return err
		}
		if err := d.eventIf(ctx, both, EventPwritevRMWAfterTail); err != nil {
			return err
		}
	}
	if p.tail == 0 || p.merged {
		return nil
	}
	if err := d.Event(ctx, EventPwritevRMWTail); err != nil {
		return err
	}
	if err := d.readUnits(ctx, r, p.buf[int64(len(p.buf))-p.unit:], p.end-p.unit); err != nil {
		return err
	}
	return d.Event(ctx, EventPwritevRMWAfterTail)
}

func (d *Device) eventIf(ctx context.Context, yes bool, e Event) error {
	if !yes {
		return nil
	}
	return d.Event(ctx, e)
}

// readUnits reads whole units at off, of which some may lie behind the end.
func (d *Device) readUnits(ctx context.Context, r *Request, b []byte, off int64) error {
	unit := d.geo.Load().RequestAlign
	inside := min(roundUp(max(d.Size()-off, 0), unit), int64(len(b)))
	clear(b[inside:])
	if inside == 0 {
		return nil
	}
	v := append(r.vec[:0], b[:inside])
	r.vec = v
	return d.transfer(ctx, r, v, off, inside, opRead, 0)
}
