package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// writeReq is a guest write on its way. It is pooled; a write that finds its clusters allocated, or allocates from
// what was claimed, takes no memory.
type writeReq struct {
	c      cursor
	off, n int64 // what is left

	// The part in hand, set by gather.
	part   int64             // guest bytes
	host   layout.HostOffset // in place: where they go
	pin    pin
	pinned bool
	f      flight // otherwise
	flying bool
	at     int64 // where the next new cluster would be adjacent to the last part; -1 = nowhere

	ticket ticket
	vec    [][]byte
	cow    cowBuffers
}

func (im *Image) readOnly(op string, off int64) error {
	return block.Errorf(block.KindInvalid, op, im.path, off, "the image is open for reading only")
}

// WritevAt implements block.Driver. Flags: FUA, Compressed.
func (im *Image) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	w := im.w
	if w == nil {
		return im.readOnly("write", off)
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if flags&block.Compressed != 0 {
		if err := w.writeCompressed(ctx, iov, off); err != nil {
			return err
		}
	} else if err := w.writev(ctx, iov, off, iovBytes(iov)); err != nil {
		return err
	}
	if flags&block.FUA != 0 {
		return w.commit(ctx, true)
	}
	return w.relieve(ctx)
}

// writev writes n bytes of iov at guest offset off. The gate is held.
func (w *writer) writev(ctx context.Context, iov [][]byte, off, n int64) error {
	r := w.reqs.Get().(*writeReq)
	r.c = cursor{iov: iov}
	r.off, r.n, r.at = off, n, -1
	err := w.run(ctx, r)
	w.unqueue(&r.ticket)
	r.c = cursor{}
	clear(r.vec[:cap(r.vec)])
	w.reqs.Put(r)
	return err
}

// run is a write in its five steps, part by part.
func (w *writer) run(ctx context.Context, r *writeReq) error {
	for r.n > 0 {
		wait, err := w.gather(ctx, r)
		if err != nil {
			return w.corruption(ctx, err)
		}
		if wait != nil {
			if err := await(ctx, wait); err != nil {
				return err
			}
			continue
		}
		if r.flying {
			err = w.runFlight(ctx, r)
		} else {
			err = w.writeInPlace(ctx, r)
		}
		w.unqueue(&r.ticket)
		if err != nil {
			return err
		}
		r.off += r.part
		r.n -= r.part
	}
	return nil
}

// runFlight takes a part that changes entries through its remaining steps.
func (w *writer) runFlight(ctx context.Context, r *writeReq) error {
	defer r.land(w)
	err := w.place(ctx, r)
	if err == nil {
		err = w.move(ctx, r)
	}
	if err == nil {
		err = w.dirtyForLink(ctx)
	}
	if err != nil {
		w.abort(&r.f)
		return err
	}
	return w.corruption(ctx, w.link(&r.f))
}

// land lets go of what a flight held, after it was linked or aborted.
func (r *writeReq) land(w *writer) {
	r.flying = false
	r.f.over = nil
	if r.pinned {
		w.quar.exit(r.pin)
		r.pinned = false
	}
}

// writeInPlace writes a part whose clusters are owned and hold data: no entry changes.
func (w *writer) writeInPlace(ctx context.Context, r *writeReq) error {
	defer w.quar.exit(r.pin)
	dev, _ := w.dataDevice()
	r.vec = r.c.take(r.vec[:0], r.part)
	if err := w.im.file.Event(ctx, block.EventWriteAIO); err != nil {
		return err
	}
	if err := w.checkData(ctx, r.host, r.part); err != nil {
		return err
	}
	return dev.Writev(ctx, r.vec, int64(r.host), 0)
}

// relieve writes metadata out when much of it has piled up.
func (w *writer) relieve(ctx context.Context) error {
	if w.im.l2.dirtyBytes() > w.im.budget.Limit()/4 || w.space.dirtyBytes() > w.im.budget.Limit()/8 {
		return w.commit(ctx, false)
	}
	w.mu.Lock()
	full := w.mu.count > maxUnlinked
	w.mu.Unlock()
	if full {
		return w.commit(ctx, true)
	}
	return nil
}

// maxUnlinked is how many freed clusters may wait for a guest flush.
const maxUnlinked = 64 << 10
