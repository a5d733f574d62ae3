package block

import "context"

// Read fills p from off; all of [off, off+len(p)) must lie inside.
func (d *Device) Read(ctx context.Context, p []byte, off int64) error {
	r := d.request()
	r.one[0] = p
	err := d.read(ctx, r, r.one[:], off)
	r.release()
	return err
}

// Readv fills the buffers of iov in order from off. An empty request is a successful no-op.
func (d *Device) Readv(ctx context.Context, iov [][]byte, off int64) error {
	r := d.request()
	err := d.read(ctx, r, iov, off)
	r.release()
	return err
}

// Write writes p at off. Flags as for Writev.
func (d *Device) Write(ctx context.Context, p []byte, off int64, flags Flags) error {
	r := d.request()
	r.one[0] = p
	err := d.write(ctx, r, r.one[:], off, flags)
	r.release()
	return err
}

// Writev writes the buffers of iov in order at off. Flags: FUA, Compressed, Serialising, NoWait. A write that is no
// multiple of the unit of the driver reads what surrounds it first, and holds off its neighbours meanwhile.
func (d *Device) Writev(ctx context.Context, iov [][]byte, off int64, flags Flags) error {
	r := d.request()
	err := d.write(ctx, r, iov, off, flags)
	r.release()
	return err
}

func (d *Device) read(ctx context.Context, r *Request, iov [][]byte, off int64) error {
	n := iovLen(iov)
	if err := d.check("read", off, n, false); err != nil || n == 0 {
		return err
	}
	if err := r.enter(ctx, off, off+n); err != nil {
		return err
	}
	defer r.leave()
	if r.waited {
		if err := d.check("read", off, n, false); err != nil {
			return err
		}
	}
	align := d.geo.Load().RequestAlign
	if (off|n)&(align-1) == 0 {
		return d.transfer(ctx, r, iov, off, n, opRead, 0)
	}
	p := padTo(align, off, n)
	defer p.free()
	return d.transfer(ctx, r, p.wrap(r, iov), p.start, p.end-p.start, opRead, 0)
}

func (d *Device) write(ctx context.Context, r *Request, iov [][]byte, off int64, flags Flags) error {
	n := iovLen(iov)
	if err := d.check("write", off, n, true); err != nil || n == 0 {
		return err
	}
	if p := d.policy.Load(); p != nil {
		if done, err := p.zeroWrite(ctx, d, iov, off, n, flags); done {
			return err
		}
		flags = p.flags(flags)
	}
	align := d.geo.Load().RequestAlign
	aligned := (off|n)&(align-1) == 0
	if err := d.enterWrite(ctx, r, off, n, flags, !aligned); err != nil {
		return err
	}
	err := d.writeEntered(ctx, r, iov, off, n, flags, aligned)
	r.leave()
	if err == nil && flags&FUA != 0 && d.geo.Load().NoFUA {
		err = d.Flush(ctx)
	}
	return err
}

// enterWrite starts a request that changes [off, off+n): serialising if asked for or rmw.
func (d *Device) enterWrite(ctx context.Context, r *Request, off, n int64, flags Flags, rmw bool) error {
	g := d.geo.Load()
	unit := g.RequestAlign
	switch {
	case flags&Serialising != 0:
		unit = max(unit, g.ClusterSize)
	case !rmw:
		return r.enter(ctx, off, off+n)
	}
	end := int64(infinity)
	if off+n <= infinity-unit {
		end = roundUp(off+n, unit)
	}
	return r.enterSerialising(ctx, off/unit*unit, end, flags&NoWait != 0)
}

func (d *Device) writeEntered(ctx context.Context, r *Request, iov [][]byte, off, n int64, flags Flags, aligned bool) error {
	if r.waited {
		if err := d.check("write", off, n, true); err != nil {
			return err
		}
	}
	if !aligned {
		p := padTo(d.geo.Load().RequestAlign, off, n)
		defer p.free()
		if err := d.fillPadding(ctx, r, &p); err != nil {
			return err
		}
		iov, off, n = p.wrap(r, iov), p.start, p.end-p.start
	}
	if d.sink == nil {
		return d.transfer(ctx, r, iov, off, n, opWrite, flags)
	}
	if err := d.Event(ctx, EventPwritev); err != nil {
		return err
	}
	err := d.transfer(ctx, r, iov, off, n, opWrite, flags)
	if e := d.Event(ctx, EventPwritevDone); err == nil {
		err = e
	}
	return err
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
