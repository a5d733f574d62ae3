package block

import "context"

// Resize changes the length. It holds off all requests to the area that comes or goes.
func (d *Device) Resize(ctx context.Context, size int64, o ResizeOptions) error {
	check := func() error {
		g := d.geo.Load()
		switch {
		case size < 0:
			return d.err(KindInvalid, "resize", NoOffset, "negative size")
		case g.MaxSize > 0 && size > g.MaxSize:
			return d.err(KindOutOfBounds, "resize", NoOffset, "larger than this layer can be")
		case d.closed.Load():
			return d.err(KindInvalid, "resize", NoOffset, "device is closed")
		case g.ReadOnly:
			return d.err(KindInvalid, "resize", NoOffset, "opened read-only")
		}
		return nil
	}
	return d.changeSize(ctx, size, check, func() error { return d.drv.Resize(ctx, size, o) })
}

// changeSize runs do while it holds off all requests from the smaller of the old and the new length on. To infinity:
// a length that is set must not undo a write in flight that has not shown its own yet.
func (d *Device) changeSize(ctx context.Context, size int64, check, do func() error) error {
	if err := check(); err != nil {
		return err
	}
	r := d.request()
	defer r.release()
	from := min(size, d.Size())
	if err := r.enterSerialising(ctx, from, infinity, false); err != nil {
		return err
	}
	defer r.leave()
	for now := d.Size(); now < from; now = d.Size() {
		from = now
		if err := r.widen(ctx, from, infinity, false); err != nil {
			return err
		}
	}
	if err := check(); err != nil {
		return err
	}
	err := do()
	d.flush.note()
	return err
}

// GrowTo extends storage that implements [FreshSpace] to at least size bytes and returns the new length; KindUnsupported
// if the driver does not. It holds off requests behind the present end meanwhile.
func (d *Device) GrowTo(ctx context.Context, size int64) (now int64, err error) {
	f, err := d.fresh("grow")
	if err != nil || size <= d.Size() {
		return d.Size(), err
	}
	check := func() error { return d.check("grow", 0, size, true) }
	err = d.changeSize(ctx, size, check, func() (err error) {
		now, err = f.GrowTo(ctx, size)
		return err
	})
	return now, err
}

// CutTo gives back what GrowTo added behind size and nobody wrote.
func (d *Device) CutTo(ctx context.Context, size int64) error {
	f, err := d.fresh("cut")
	if err != nil {
		return err
	}
	check := func() error { return d.check("cut", size, 0, true) }
	return d.changeSize(ctx, size, check, func() error { return f.CutTo(ctx, size) })
}

func (d *Device) fresh(op string) (FreshSpace, error) {
	f, ok := d.drv.(FreshSpace)
	if !ok {
		return nil, d.err(KindUnsupported, op, NoOffset, "the storage does not grow ahead")
	}
	return f, nil
}

// Reopen changes how the driver is open, with nothing in flight; KindUnsupported if it cannot. Going read-only flushes
// first.
func (d *Device) Reopen(ctx context.Context, o ReopenOptions) error {
	ro, ok := d.drv.(Reopener)
	if !ok {
		return d.err(KindUnsupported, "reopen", NoOffset, "the driver cannot change how it is open")
	}
	resume, err := d.Quiesce(ctx)
	if err != nil {
		return err
	}
	defer resume()
	if d.closed.Load() {
		return d.err(KindInvalid, "reopen", NoOffset, "device is closed")
	}
	if o.ReadOnly && !d.geo.Load().ReadOnly {
		if err := d.flushOnce(ctx); err != nil {
			return err
		}
	}
	err = ro.Reopen(ctx, o)
	geo := d.drv.Geometry()
	d.geo.Store(&geo)
	d.flush.note()
	return err
}
