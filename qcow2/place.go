package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// place finds host clusters for the flight of r, unless it reuses its own. If fewer adjacent ones are to be had than
// wanted, flight and part are shortened.
func (w *writer) place(ctx context.Context, r *writeReq) error {
	f := &r.f
	if f.reuse {
		return nil
	}
	if w.im.geo.DataFile {
		f.host = layout.HostOffset(f.guest)
		return nil
	}
	if err := w.im.file.Event(ctx, block.EventClusterAlloc); err != nil {
		return err
	}
	a, err := w.space.alloc(ctx, f.n, r.at)
	if err == nil && a.n == 0 {
		a, err = w.space.alloc(ctx, f.n, -1)
	}
	if block.KindOf(err) == block.KindNoSpace && w.makeSpace(ctx) {
		a, err = w.space.alloc(ctx, f.n, -1)
	}
	if err != nil {
		return w.corruption(ctx, err)
	}
	r.at = a.end()
	if a.n < f.n {
		w.shorten(r, a.n)
	}
	f.host, f.fresh = w.im.geo.ClusterOffset(a.at), a.fresh
	return nil
}

// shorten makes the flight of r one of n clusters. What is cut off ends at a cluster boundary that the write covers.
func (w *writer) shorten(r *writeReq, n int64) {
	f := &r.f
	w.mu.Lock()
	defer w.mu.Unlock()
	f.n = n
	f.w1 = f.end(w.im.geo.ClusterSize())
	f.h1 = f.w1
	r.part = f.w1 - f.w0
	if f.over != nil {
		f.over = f.over[:n]
	}
	// Who waits for the rest need not.
	if f.done != nil {
		close(f.done)
		f.done = nil
	}
}
