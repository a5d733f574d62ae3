package job

import (
	"context"

	"byre/block"
)

type regionKind uint8

const (
	regionData regionKind = iota
	regionZero
	regionSkip // shows through from the target's backing file
)

// region is a range of the source of one kind.
type region struct {
	kind     regionKind
	from, to int64
	host     hostRange // of data that lies as it is in a host file
	step     int64     // what progress counts at once: a cluster of compressed data, else 0 for all
}

// walk names the regions of the source in order.
func (c *converter) walk(ctx context.Context, visit func(region) error) error {
	q := block.WantZero
	if c.o.KeepBacking {
		q |= block.TopOnly
	}
	for off := int64(0); off < c.src.size; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, dev, err := c.src.extent(ctx, off, c.src.size-off, q)
		if err != nil {
			if c.o.Salvage == nil || ctx.Err() != nil {
				return err
			}
			// What cannot be named may still be readable; if not, reading it will tell.
			e = block.Extent{Start: off, Length: min(salvageStep-off%salvageStep, c.src.size-off), Flags: block.Data | block.Allocated}
		}
		r := region{from: off, to: e.End()}
		switch {
		case c.o.KeepBacking && e.Flags&block.Allocated == 0:
			r.kind = regionSkip
			if off >= c.o.BackingSize {
				r.kind = regionZero
			} else {
				r.to = min(r.to, c.o.BackingSize)
			}
		case empty(e):
			r.kind = regionZero
		case e.Flags&block.CompressedData != 0:
			r.step = dev.Geometry().ClusterSize
		case c.copier:
			r.host = hostOf(dev, e)
		}
		if err := visit(r); err != nil {
			return err
		}
		off = r.to
	}
	return nil
}

// salvageStep is how far the walk goes on behind an extent that cannot be named: the least cluster that is common.
const salvageStep = 64 << 10

type unitKind uint8

const (
	unitCopy  unitKind = iota // through memory, at most converter.unit long
	unitZero                  // zeros to be written, of any length
	unitShare                 // to be shared with the source
)

// unit is a piece of work.
type unit struct {
	number int64
	kind   unitKind
	off, n int64
	host   hostRange // of unitShare, and of unitCopy that may be offloaded
	// pieces are the lengths of the counted regions in the unit, in order: progress names each, so that it does not
	// depend on how units are cut.
	pieces []int64
}

// planner cuts regions into units.
type planner struct {
	c       *converter
	ctx     context.Context
	units   chan<- unit
	number  int64
	cur     unit  // data being collected; empty if n is 0
	covered int64 // the end of the data units so far: widened ones reach beyond their regions
}

// plan sends the units of the whole source.
func (c *converter) plan(ctx context.Context, units chan<- unit) error {
	p := &planner{c: c, ctx: ctx, units: units}
	if err := c.walk(ctx, p.region); err != nil {
		return err
	}
	return p.flush()
}

func (p *planner) region(r region) error {
	switch r.kind {
	case regionZero:
		return p.zeros(r)
	case regionData:
		if shared, err := p.share(r); shared || err != nil {
			return err
		}
		if r.step > 0 {
			return p.steps(r)
		}
		return p.data(r.from, r.to, r.host, true)
	}
	return nil
}

// steps plans a region that progress counts in steps.
func (p *planner) steps(r region) error {
	for at := r.from; at < r.to; {
		next := min((at/r.step+1)*r.step, r.to)
		if err := p.data(at, next, hostRange{}, true); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// zeros plans a region of zeros. Where the target allocates in larger units, a region's ends go with the data beside
// them.
func (p *planner) zeros(r region) error {
	if p.c.targetZero {
		return nil
	}
	from, to := p.c.up(r.from), p.c.down(r.to)
	counted := p.c.counts(regionZero)
	if from >= to {
		return p.data(r.from, r.to, hostRange{}, counted)
	}
	if r.from < from {
		if err := p.data(r.from, from, hostRange{}, counted); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	step := min(max(p.c.src.size/256/p.c.align*p.c.align, defaultUnit, p.c.align), zeroUnit)
	for at := from; at < to; {
		n := min(to-at, step)
		u := unit{kind: unitZero, off: at, n: n}
		if counted {
			u.pieces = []int64{n}
		}
		if err := p.send(u); err != nil {
			return err
		}
		at += n
	}
	p.covered = max(p.covered, to)
	if to < r.to {
		return p.data(to, r.to, hostRange{}, counted)
	}
	return nil
}

// zeroUnit bounds a unit of zeros, so that an interrupt is heard.
const zeroUnit = 1 << 30

// up and down round to what the target allocates; its end counts as round.
func (c *converter) up(off int64) int64 {
	return min((off+c.align-1)/c.align*c.align, c.src.size)
}

func (c *converter) down(off int64) int64 {
	if off == c.src.size {
		return off
	}
	return off / c.align * c.align
}

// data collects a range that is to be copied.
func (p *planner) data(from, to int64, host hostRange, counted bool) error {
	for from < to {
		start := max(p.c.down(from), p.covered)
		// Units end at multiples of their size, so that their number and cut do not depend on the regions.
		stop := min((from/p.c.unit+1)*p.c.unit, to)
		end := p.c.up(stop)
		if start < end {
			if err := p.extend(start, end, host.from(start-from)); err != nil {
				return err
			}
		}
		if counted {
			p.cur.pieces = append(p.cur.pieces, stop-from)
		}
		host = host.from(stop - from)
		from = stop
	}
	return nil
}

// extend adds [from, to) to the unit being collected, or begins another.
func (p *planner) extend(from, to int64, host hostRange) error {
	p.covered = to
	cur := &p.cur
	fits := cur.n > 0 && cur.off+cur.n == from && from%p.c.unit != 0
	if fits && p.c.o.Offload == OffloadCopy {
		fits = cur.host.from(cur.n) == host
	}
	if fits {
		cur.n = to - cur.off
		if cur.host.from(from-cur.off) != host {
			cur.host = hostRange{}
		}
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.cur = unit{kind: unitCopy, off: from, n: to - from, host: host, pieces: p.cur.pieces}
	return nil
}

// flush sends the unit being collected.
func (p *planner) flush() error {
	if p.cur.n == 0 {
		return nil
	}
	u := p.cur
	p.cur = unit{}
	return p.send(u)
}

func (p *planner) send(u unit) error {
	u.number = p.number
	p.number++
	select {
	case p.units <- u:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
