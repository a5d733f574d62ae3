package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// pokeHeader implements spaceHost: it changes a few fields that lie in one sector, in the file and then in memory. It
// does not flush. When the write fails nobody knows which state the file has: if the fields name tables, nothing more may be
// changed, because what goes to one table might be missing in the other.
func (w *writer) pokeHeader(ctx context.Context, p layout.Poke, change func(h *layout.Header)) error {
	im := w.im
	h := im.Header()
	change(&h)
	if err := w.checkOverlap(ctx, p.Offset, int64(p.Length), metaHeader); err != nil {
		return err
	}
	if err := im.file.Write(ctx, h.EncodePoke(p), int64(p.Offset), 0); err != nil {
		if p != layout.PokeSize && p != layout.PokeIncompatible && p != pokeAutoclear {
			w.fail(block.Errorf(block.KindIO, "write header", im.path, int64(p.Offset),
				"an earlier change of the header failed, its state is not known: %w", err))
		}
		return err
	}
	im.mu.Lock()
	im.mu.header = &h
	im.mu.Unlock()
	w.order.image.note()
	return nil
}

// pokeAutoclear is the field of autoclear feature bits: one sector, like the others.
var pokeAutoclear = layout.Poke{Offset: 88, Length: 8}

// clearAutoclear drops, before the first change of a session, the autoclear bits of what is not kept up to date here
// (qcow2-format §1.7), and looks where metadata lies.
func (w *writer) clearAutoclear(ctx context.Context) error {
	h := w.im.Header()
	if keep := h.Autoclear & layout.AutoclearRawData; h.Version >= 3 && keep != h.Autoclear {
		if err := w.pokeHeader(ctx, pokeAutoclear, func(h *layout.Header) { h.Autoclear = keep }); err != nil {
			return err
		}
		if err := w.order.image.flush(ctx); err != nil {
			return err
		}
	}
	return w.over.build(ctx)
}

// markCorrupt sets the corrupt bit, once, and refuses further changes with err (qcow2-format §8.7).
func (w *writer) markCorrupt(ctx context.Context, err error) {
	if !w.fail(err) || w.im.geo.Version < 3 {
		return
	}
	h := w.im.Header()
	h.Incompatible |= layout.IncompatCorrupt
	// Best effort: the error is reported either way.
	if w.im.file.Write(ctx, h.EncodePoke(layout.PokeIncompatible), int64(layout.PokeIncompatible.Offset), 0) == nil {
		w.im.mu.Lock()
		w.im.mu.header = &h
		w.im.mu.Unlock()
		_ = w.im.file.Flush(ctx)
	}
}

// lazyRefcounts says whether counts may stay unwritten under the dirty bit.
func (w *writer) lazyRefcounts() bool {
	if w.im.geo.Version < 3 {
		return false
	}
	if o := w.opts.LazyRefcounts; o != nil {
		return *o
	}
	h := w.im.Header()
	return h.HasCompatible(layout.CompatLazyRefcounts)
}

// dirtyForLink makes the dirty bit durable before the first link of a session with lazy refcounts (qcow2-format §8.6).
func (w *writer) dirtyForLink(ctx context.Context) error {
	if w.lazy.Load() || !w.lazyRefcounts() {
		return nil
	}
	w.start.Lock()
	defer w.start.Unlock()
	if w.lazy.Load() {
		return nil
	}
	if err := w.setDirty(ctx, true); err != nil {
		return err
	}
	w.lazy.Store(true)
	return nil
}

func (w *writer) setDirty(ctx context.Context, dirty bool) error {
	err := w.pokeHeader(ctx, layout.PokeIncompatible, func(h *layout.Header) {
		h.Incompatible &^= layout.IncompatDirty
		if dirty {
			h.Incompatible |= layout.IncompatDirty
		}
	})
	if err != nil {
		return err
	}
	return w.order.image.flush(ctx)
}

// clean ends lazy mode: all counts are written, then the dirty bit goes. The gate is held exclusively.
func (w *writer) clean(ctx context.Context) error {
	if err := w.commit(ctx, true); err != nil {
		return err
	}
	if !w.lazy.Load() {
		return nil
	}
	if _, err := w.space.writeRefs(ctx, true); err != nil {
		return err
	}
	if err := w.order.all(ctx); err != nil {
		return err
	}
	if err := w.setDirty(ctx, false); err != nil {
		return err
	}
	w.lazy.Store(false)
	return nil
}
