package block

import (
	"context"

	"byre/internal/invariants"
	"byre/internal/iobuf"
)

type op uint8

const (
	opRead op = iota
	opWrite
)

// call hands one request, within all limits, to the driver.
func (d *Device) call(ctx context.Context, r *Request, iov [][]byte, off int64, o op, flags Flags) error {
	if invariants.Enabled {
		d.checkCall(iov, off)
	}
	if o == opRead {
		return d.drv.ReadvAt(ctx, iov, off)
	}
	flags &= FUA | Compressed
	var err error
	if d.widener != nil {
		err = d.widener.WritevRequest(ctx, r, iov, off, flags)
	} else {
		err = d.drv.WritevAt(ctx, iov, off, flags)
	}
	d.flush.note()
	return err
}

func (d *Device) checkCall(iov [][]byte, off int64) {
	g, n := d.geo.Load(), iovLen(iov)
	invariants.Check((off|n)&(g.RequestAlign-1) == 0 && n > 0, "%s: request of %d bytes at %#x is unaligned", g.Path, n, off)
	invariants.Check(g.MaxTransfer == 0 || n <= max(g.MaxTransfer, g.RequestAlign), "%s: request of %d bytes is too long", g.Path, n)
	invariants.Check(g.MaxIovec == 0 || len(iov) <= g.MaxIovec, "%s: request has %d buffers", g.Path, len(iov))
}

// transfer moves n bytes, whole units, in as few calls of the driver as its limits allow. A compressed write stays one.
func (d *Device) transfer(ctx context.Context, r *Request, iov [][]byte, off, n int64, o op, flags Flags) error {
	g := d.geo.Load()
	if (g.MaxTransfer == 0 || n <= g.MaxTransfer) && (g.MaxIovec == 0 || len(iov) <= g.MaxIovec) || flags&Compressed != 0 {
		return d.call(ctx, r, iov, off, o, flags)
	}
	longest := n
	if g.MaxTransfer > 0 {
		longest = max(g.MaxTransfer&^(g.RequestAlign-1), g.RequestAlign)
	}
	c := cursor{iov: iov}
	var piece [][]byte
	for n > 0 {
		var k int64
		piece, k = c.peek(piece[:0], min(n, longest), g.MaxIovec)
		var err error
		if whole := k &^ (g.RequestAlign - 1); whole > 0 {
			piece, k = cut(piece, k-whole), whole
			c.advance(k)
			err = d.call(ctx, r, piece, off, o, flags)
		} else {
			k = min(n, longest, max(1<<18, g.RequestAlign))
			err = d.bounce(ctx, r, &c, off, k, o, flags)
		}
		if err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// bounce moves n bytes through one buffer: the buffers of the caller are too small to make up a unit between them.
func (d *Device) bounce(ctx context.Context, r *Request, c *cursor, off, n int64, o op, flags Flags) error {
	b := iobuf.Get(int(n))
	defer iobuf.Put(b)
	if o == opWrite {
		c.copy(b, true)
	}
	one := [1][]byte{b}
	if err := d.call(ctx, r, one[:], off, o, flags); err != nil {
		return err
	}
	if o == opRead {
		c.copy(b, false)
	}
	return nil
}

// cursor walks through the buffers of a request.
type cursor struct {
	iov [][]byte
	at  int // bytes of iov[0] that are done
}

// peek appends to piece the next buffers, at most limit bytes and count of them (0: any number).
func (c *cursor) peek(piece [][]byte, limit int64, count int) ([][]byte, int64) {
	var n int64
	at := c.at
	for _, b := range c.iov {
		if n == limit || count > 0 && len(piece) == count {
			break
		}
		b = b[at:]
		at = 0
		if len(b) == 0 {
			continue
		}
		b = b[:min(int64(len(b)), limit-n)]
		piece = append(piece, b)
		n += int64(len(b))
	}
	return piece, n
}

func (c *cursor) advance(n int64) {
	for n > 0 {
		k := min(n, int64(len(c.iov[0])-c.at))
		n -= k
		c.at += int(k)
		if c.at == len(c.iov[0]) {
			c.iov, c.at = c.iov[1:], 0
		}
	}
}

// copy moves len(b) bytes from the buffers to b (gather) or back, and goes on behind them.
func (c *cursor) copy(b []byte, gather bool) {
	for len(b) > 0 {
		p := c.iov[0][c.at:]
		var k int
		if gather {
			k = copy(b, p)
		} else {
			k = copy(p, b)
		}
		b = b[k:]
		c.at += k
		if c.at == len(c.iov[0]) {
			c.iov, c.at = c.iov[1:], 0
		}
	}
}

// cut removes the last n bytes.
func cut(iov [][]byte, n int64) [][]byte {
	for n > 0 {
		last := len(iov) - 1
		if k := int64(len(iov[last])); k > n {
			iov[last] = iov[last][:k-n]
			return iov
		} else {
			iov, n = iov[:last], n-k
		}
	}
	return iov
}
