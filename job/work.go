package job

import (
	"context"

	"byre/block"
	"byre/internal/iobuf"
)

// worker is the memory of one goroutine that moves units.
type worker struct {
	c   *converter
	buf []byte // nil until it is needed
	compressed
}

func (w *worker) free() {
	if w.buf != nil {
		iobuf.Put(w.buf)
	}
}

// work takes units until there are none.
func (c *converter) work(ctx context.Context, units <-chan unit) error {
	w := &worker{c: c}
	defer w.free()
	for u := range units {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if w.buf == nil && u.kind != unitZero {
			w.buf = iobuf.Get(int(c.unit))
		}
		if err := c.do(ctx, &u, w); err != nil {
			return err
		}
		c.seq.end(u.number, func() { c.report(&u) })
	}
	return nil
}

// report counts what a unit has copied. It runs in sequence.
func (c *converter) report(u *unit) {
	switch {
	case c.o.Progress == nil:
		return
	case c.o.ByOffset:
		c.o.Progress(u.off+u.n, c.total)
		return
	}
	for _, n := range u.pieces {
		c.done += n
		c.o.Progress(min(c.done, c.total), c.total)
	}
}

func (c *converter) do(ctx context.Context, u *unit, w *worker) error {
	switch u.kind {
	case unitZero:
		return c.inTurn(ctx, u, func() error {
			if c.o.Sparse == 0 {
				return c.zero(ctx, u.off, u.n, 0)
			}
			return c.zero(ctx, u.off, u.n, block.MayUnmap)
		})
	case unitShare:
		return c.shareOrCopy(ctx, u, w)
	}
	if c.o.Offload == OffloadCopy {
		if done, err := c.offload(ctx, u, false); done || err != nil {
			return err
		}
	}
	return c.copy(ctx, u, w)
}

// inTurn runs write at once, or when all units before u have ended if the target is written in order.
func (c *converter) inTurn(ctx context.Context, u *unit, write func() error) error {
	if c.o.InOrder {
		if err := c.seq.turn(ctx, u.number); err != nil {
			return err
		}
	}
	return write()
}

// copy moves a unit through memory.
func (c *converter) copy(ctx context.Context, u *unit, w *worker) error {
	if err := c.limit.take(ctx, u.n); err != nil {
		return err
	}
	p := w.buf[:u.n]
	if err := c.read(ctx, p, u.off); err != nil {
		return err
	}
	if c.o.Compress {
		if err := w.compress(p, u.off); err != nil {
			return err
		}
		return c.inTurn(ctx, u, func() error { return w.store(ctx, p, u.off) })
	}
	return c.inTurn(ctx, u, func() error { return c.write(ctx, p, u.off) })
}

// read fills p from the source; what is unreadable becomes zeros if the caller salvages.
func (c *converter) read(ctx context.Context, p []byte, off int64) error {
	err := c.src.read(ctx, p, off)
	if err == nil || c.o.Salvage == nil || ctx.Err() != nil {
		return err
	}
	s := salvage{c: c, ctx: ctx}
	if err := s.halves(p, off, err); err != nil {
		return err
	}
	s.report()
	return nil
}

// salvage reads around unreadable sectors.
type salvage struct {
	c      *converter
	ctx    context.Context
	off, n int64 // the run of bad sectors found last
	err    error
}

// halves reads a range whose reading as a whole failed, in two halves, and these likewise, down to a sector.
func (s *salvage) halves(p []byte, off int64, err error) error {
	if len(p) <= 512 {
		clear(p)
		s.bad(off, int64(len(p)), err)
		return nil
	}
	half := (len(p)/2 + 511) &^ 511
	for _, part := range []struct{ from, to int }{{0, half}, {half, len(p)}} {
		q, at := p[part.from:part.to], off+int64(part.from)
		err := s.c.src.read(s.ctx, q, at)
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err == nil {
			continue
		}
		if err := s.halves(q, at, err); err != nil {
			return err
		}
	}
	return nil
}

// bad notes an unreadable range; ranges that touch are reported as one.
func (s *salvage) bad(off, n int64, err error) {
	if s.n > 0 && s.off+s.n == off {
		s.n += n
		return
	}
	s.report()
	s.off, s.n, s.err = off, n, err
}

func (s *salvage) report() {
	if s.n > 0 {
		s.c.o.Salvage(s.off, s.n, s.err)
	}
	s.n = 0
}

// write puts data into the target, without the zeros in it where they can be left out.
func (c *converter) write(ctx context.Context, p []byte, off int64) error {
	if c.o.Sparse == 0 {
		return c.dst.Write(ctx, p, off, 0)
	}
	return zeroRuns(p, off, c.grain, c.o.Sparse, func(from, to int64, zero bool) error {
		if !zero {
			return c.dst.Write(ctx, p[from:to], off+from, 0)
		}
		return c.leaveOut(ctx, off+from, to-from)
	})
}

// leaveOut makes a range of the target read as zeros as cheaply as that goes.
func (c *converter) leaveOut(ctx context.Context, off, n int64) error {
	if c.targetZero {
		return nil
	}
	return c.zero(ctx, off, n, block.MayUnmap)
}
