package qcow2

import (
	"context"
	"sync/atomic"

	"byre/block"
)

// barrier knows of one file what must be durable before a later write may be issued, and what already is. A write that
// others depend on is noted after it completed; the mark that note returns can be waited for. One flush serves all
// marks that were given out before it.
type barrier struct {
	flushFile func(ctx context.Context) error
	written   atomic.Uint64
	durable   atomic.Uint64
}

// note says that a write which something else will depend on has completed, and returns its mark.
func (b *barrier) note() uint64 { return b.written.Add(1) }

// pending reports whether something noted is not durable.
func (b *barrier) pending() bool { return b.durable.Load() < b.written.Load() }

// barrier returns when everything up to mark is durable.
func (b *barrier) barrier(ctx context.Context, mark uint64) error {
	if b.durable.Load() >= mark {
		return nil
	}
	return b.flush(ctx)
}

// flush makes everything that completed before the call durable.
func (b *barrier) flush(ctx context.Context) error {
	upTo := b.written.Load()
	if err := b.flushFile(ctx); err != nil {
		return err
	}
	for {
		d := b.durable.Load()
		if d >= upTo || b.durable.CompareAndSwap(d, upTo) {
			return nil
		}
	}
}

// ordering is the one place that knows in which order things become durable (qcow2-format §8).
//
// The rules, and how they hold here:
//
//   - Count before reference (I1). Counts are raised in the refcount cache when clusters are handed out, before anybody
//     can link them. commit writes refcount pieces before L2 slices and flushes in between. With the dirty bit on disk
//     (lazy refcounts) the counts need not be there: a repair at the next open makes them.
//   - Target before pointer (I2). Data that a cluster held before (copy-on-write, zeros, compressed streams, growth of
//     the file) is noted at the barrier of its file when it is linked; commit flushes before L2 slices. A new L2 table
//     is written, with the entries it has by then, in the first half of a commit and its L1 entry in the second. New
//     refcount blocks and tables flush for themselves: they are rare.
//   - Unreference before decrement (I3), no reuse before (I4), discard last (I5). What loses a reference goes on the
//     list of unlinked clusters together with the edit of the entry. commit takes the list before it copies slices, so
//     the copies lack the references, and hands it to the quarantine after its second flush; only then do counts fall.
//   - COPIED (I6): snapshot operations, see there.
//   - Flush is everything (I7): commit ends with a flush of the data file and the image file.
type ordering struct {
	image barrier
	data  barrier // external data file; never noted without one
}

func newOrdering(im *Image) *ordering {
	o := new(ordering)
	o.image.flushFile = im.file.Flush
	o.data.flushFile = func(ctx context.Context) error {
		if d := im.DataFile(); d != nil {
			return d.Flush(ctx)
		}
		return nil
	}
	return o
}

// before makes durable what L2 entries that are linked now may depend on.
func (o *ordering) before(ctx context.Context) error {
	if o.data.pending() {
		if err := o.data.flush(ctx); err != nil {
			return err
		}
	}
	if o.image.pending() {
		return o.image.flush(ctx)
	}
	return nil
}

// all makes everything durable.
func (o *ordering) all(ctx context.Context) error {
	if err := o.data.flush(ctx); err != nil {
		return err
	}
	return o.image.flush(ctx)
}

// metaClass names kinds of metadata for the overlap checks (qcow2-format §11.5).
type metaClass uint16

const (
	metaHeader metaClass = 1 << iota
	metaActiveL1
	metaActiveL2
	metaRefBlock
	metaRefTable
	metaSnapshotTable
	metaInactiveL1
	metaInactiveL2
	metaBitmapDir

	metaNone metaClass = 0
)

var _ = block.EventNone
