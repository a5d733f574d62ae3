package job

import (
	"context"

	"byre/block"
)

// hostRange is where data lies as it is in a host file. The zero value is nowhere.
type hostRange struct {
	drv block.Driver
	off int64
}

// from is the place n bytes further on.
func (h hostRange) from(n int64) hostRange {
	if h.drv == nil {
		return h
	}
	return hostRange{h.drv, h.off + n}
}

// hostOf finds the storage that holds an extent.
func hostOf(dev *block.Device, e block.Extent) hostRange {
	if e.Flags&block.HasHost == 0 {
		return hostRange{}
	}
	for range e.Depth {
		c, ok := dev.Driver().(block.Chained)
		if !ok || c.Backing() == nil {
			return hostRange{}
		}
		dev = c.Backing()
	}
	c, ok := dev.Driver().(block.Chained)
	if !ok {
		return hostRange{}
	}
	below := c.File()
	if e.FileExtra {
		below = c.DataFile()
	}
	if below == nil || below.Path() != e.File {
		return hostRange{}
	}
	return hostRange{below.Driver(), e.Host}
}

// offload has the host copy (or share) a unit. done is false if it cannot.
func (c *converter) offload(ctx context.Context, u *unit, share bool) (done bool, err error) {
	if u.host.drv == nil || !c.copier {
		return false, nil
	}
	if err := c.limit.take(ctx, u.n); err != nil {
		return false, err
	}
	err = c.inTurn(ctx, u, func() error {
		return c.dst.CopyRange(ctx, u.off, u.host.drv, u.host.off, u.n, share)
	})
	switch {
	case err == nil:
		return true, nil
	case block.KindOf(err) == block.KindUnsupported, c.o.Salvage != nil && ctx.Err() == nil:
		return false, nil // copying tells what is wrong, if anything is
	}
	return false, err
}

// shareState is what is known about sharing between source and target.
type shareState uint8

const (
	shareUntried shareState = iota
	shareWorks
	shareFails
)

// share plans a region as shared if the hosts can do that. The first region that is suitable is tried.
func (p *planner) share(r region) (shared bool, err error) {
	c := p.c
	if !c.copier || c.o.Offload != OffloadShare || c.share == shareFails || c.o.Sparse == 0 || r.host.drv == nil {
		return false, nil
	}
	from := (r.from + blockSize - 1) / blockSize * blockSize
	to := r.to / blockSize * blockSize
	if to-from < minShare || (r.host.off+from-r.from)%blockSize != 0 {
		return false, nil
	}
	if c.share == shareUntried {
		try := unit{off: from, n: blockSize, host: r.host.from(from - r.from)}
		c.share = shareFails
		if c.dst.CopyRange(p.ctx, try.off, try.host.drv, try.host.off, try.n, true) != nil {
			return false, nil // copying tells if anything is wrong
		}
		c.share = shareWorks
	}
	if err := p.data(r.from, from, r.host, true); err != nil {
		return false, err
	}
	if err := p.flush(); err != nil {
		return false, err
	}
	for at := from; at < to; {
		n := min(to-at, shareUnit)
		if err := p.send(unit{kind: unitShare, off: at, n: n, host: r.host.from(at - r.from), pieces: []int64{n}}); err != nil {
			return false, err
		}
		at += n
	}
	p.covered = to
	return true, p.data(to, r.to, r.host.from(to-r.from), true)
}

// minShare is the least range for which sharing is worth a call.
const minShare = 64 << 10

// shareOrCopy shares a unit, or copies it if it cannot be shared after all.
func (c *converter) shareOrCopy(ctx context.Context, u *unit, w *worker) error {
	if done, err := c.offload(ctx, u, true); done || err != nil {
		return err
	}
	for at := int64(0); at < u.n; {
		part := *u
		part.off, part.n = u.off+at, min(u.n-at, c.unit)
		if err := c.copy(ctx, &part, w); err != nil {
			return err
		}
		at += part.n
	}
	return nil
}
