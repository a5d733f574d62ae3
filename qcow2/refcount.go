package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// refcounts reads and changes the counters of host clusters through a write-back cache of pieces of refcount blocks.
//
// What the cache holds is at any time safe to be on disk: an increment goes in before anything can point to the cluster
// (and is written before the pointer, see ordering), a decrement goes in only after the removal of the pointer is
// durable (see quarantine). So pieces may be written at any moment and in any order, torn at sectors too.
//
// Not safe for concurrent use: the space that owns it holds its lock, over I/O too, which is rare here.
type refcounts struct {
	file  *block.Device
	geo   layout.Geometry
	table *table // refcount table; replaced when it grows
	cache *cache // pieces of blocks

	hard bool // increments were made since the cache was last written
	soft int  // decrements were made since then
}

// refSlotSize is the piece of a refcount block that is cached and written.
func refSlotSize(g layout.Geometry) int64 { return min(16<<10, g.ClusterSize()) }

const opRefcount = "read refcount block"

// block gives the offset of refcount block idx, 0 if there is none.
func (r *refcounts) block(ctx context.Context, idx int64) (layout.HostOffset, error) {
	if idx >= r.table.n {
		return 0, nil
	}
	w, err := r.table.get(ctx, idx)
	if err != nil {
		return 0, err
	}
	e := layout.RefTableEntry(w)
	off := e.Offset()
	switch {
	case e.Reserved() != 0:
		return 0, r.corrupt(r.table.off+layout.HostOffset(idx*8), "refcount table entry %d has reserved bits set: %#x", idx, w)
	case off < 0 || !r.geo.Aligned(off):
		return 0, r.corrupt(off, "refcount block %d is not aligned to clusters", idx)
	case off > 0 && int64(off) > r.file.Size()-r.geo.ClusterSize():
		return 0, r.corrupt(off, "refcount block %d does not lie wholly within the file of %d bytes", idx, r.file.Size())
	}
	return off, nil
}

func (r *refcounts) corrupt(off layout.HostOffset, format string, args ...any) error {
	return block.Errorf(block.KindCorrupt, opRefcount, r.file.Path(), int64(off), format, args...)
}

// countersPerSlot is the number of counters in a cached piece.
func (r *refcounts) countersPerSlot() int64 { return r.cache.slotSize << 3 >> r.geo.RefcountOrder }

// piece gives the pinned slot that counts cluster c, the index of c in it, and how many clusters from c on it counts.
// The slot is nil where there is no block: counts are 0.
func (r *refcounts) piece(ctx context.Context, c int64) (s *slot, i int, n int64, err error) {
	per := r.countersPerSlot()
	in := c & (per - 1)
	off, err := r.block(ctx, r.geo.RefcountTableIndex(c))
	if err != nil {
		return nil, 0, 0, err
	}
	if off == 0 {
		return nil, 0, int64(r.geo.RefcountsPerBlock() - r.geo.RefcountBlockIndex(c)), nil
	}
	at := int64(r.geo.RefcountBlockIndex(c)) << r.geo.RefcountOrder >> 3 &^ (r.cache.slotSize - 1)
	s, err = r.cache.get(ctx, off+layout.HostOffset(at))
	return s, int(in), per - in, err
}

// get is the count of cluster c.
func (r *refcounts) get(ctx context.Context, c int64) (uint64, error) {
	s, i, _, err := r.piece(ctx, c)
	if s == nil || err != nil {
		return 0, err
	}
	defer s.release()
	s.RLock()
	defer s.RUnlock()
	return layout.Refcount(s.data, r.geo.RefcountOrder, i), nil
}

// zeros is the number of clusters from c on whose count is 0, at most limit.
func (r *refcounts) zeros(ctx context.Context, c, limit int64) (n int64, err error) {
	for n < limit {
		s, i, m, err := r.piece(ctx, c+n)
		if err != nil {
			return n, err
		}
		m = min(m, limit-n)
		if s != nil {
			got := r.zerosIn(s, i, int(m))
			s.release()
			if n += int64(got); int64(got) < m {
				return n, nil
			}
			continue
		}
		n += m
	}
	return n, nil
}

func (r *refcounts) zerosIn(s *slot, i, n int) int {
	s.RLock()
	defer s.RUnlock()
	for k := range n {
		if layout.Refcount(s.data, r.geo.RefcountOrder, i+k) != 0 {
			return k
		}
	}
	return n
}

// increment raises the counts of clusters [c, c+n) by one, all or none. Every cluster must lie in a range that has a
// block. A count that is at its maximum is KindUnsupported.
func (r *refcounts) increment(ctx context.Context, c, n int64) error {
	top := r.geo.MaxRefcount()
	err := r.each(ctx, c, n, func(s *slot, at int64, i, m int) error {
		s.RLock()
		defer s.RUnlock()
		for k := range m {
			if layout.Refcount(s.data, r.geo.RefcountOrder, i+k) == top {
				return block.Errorf(block.KindUnsupported, "raise refcount", r.file.Path(), (at+int64(k))<<r.geo.ClusterBits,
					"the cluster has the largest count that %d bits can hold", r.geo.RefcountBits())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.each(ctx, c, n, func(s *slot, _ int64, i, m int) error {
		s.Lock()
		defer s.Unlock()
		for k := range m {
			layout.SetRefcount(s.data, r.geo.RefcountOrder, i+k, layout.Refcount(s.data, r.geo.RefcountOrder, i+k)+1)
		}
		r.cache.markDirty(s)
		r.hard = true
		return nil
	})
}

// decrement lowers the counts of clusters [c, c+n) by one and tells the runs of clusters that came to 0. On an error
// some counts may stay too high: a leak.
func (r *refcounts) decrement(ctx context.Context, c, n int64, zero func(c, n int64)) error {
	return r.each(ctx, c, n, func(s *slot, at int64, i, m int) error {
		s.Lock()
		defer s.Unlock()
		run := int64(0)
		tell := func(k int) {
			if run > 0 {
				zero(at+int64(k)-run, run)
			}
			run = 0
		}
		for k := range m {
			v := layout.Refcount(s.data, r.geo.RefcountOrder, i+k)
			if v == 0 {
				tell(k)
				return r.corrupt(s.off, "the count of cluster %#x is already 0 and cannot be lowered", at+int64(k))
			}
			layout.SetRefcount(s.data, r.geo.RefcountOrder, i+k, v-1)
			r.cache.markDirty(s)
			r.soft++
			if v == 1 {
				run++
			} else {
				tell(k)
			}
		}
		tell(m)
		return nil
	})
}

// each visits the pieces that count clusters [c, c+n): at is the first cluster of the piece's share, i its counter.
func (r *refcounts) each(ctx context.Context, c, n int64, f func(s *slot, at int64, i, m int) error) error {
	for n > 0 {
		s, i, m, err := r.piece(ctx, c)
		if err != nil {
			return err
		}
		if s == nil {
			return r.corrupt(r.table.off, "no refcount block counts cluster %#x, which is in use", c)
		}
		m = min(m, n)
		err = f(s, c, i, int(m))
		s.release()
		if err != nil {
			return err
		}
		c, n = c+m, n-m
	}
	return nil
}

// freeRuns tells the runs of clusters in [c, c+n) whose count is 0 and which a block counts.
func (r *refcounts) freeRuns(ctx context.Context, c, n int64, tell func(c, n int64)) error {
	for n > 0 {
		s, i, m, err := r.piece(ctx, c)
		if err != nil {
			return err
		}
		m = min(m, n)
		if s != nil {
			r.freeRunsIn(s, c, i, int(m), tell)
			s.release()
		}
		c, n = c+m, n-m
	}
	return nil
}

func (r *refcounts) freeRunsIn(s *slot, c int64, i, n int, tell func(c, n int64)) {
	s.RLock()
	defer s.RUnlock()
	run := 0
	for k := range n {
		if layout.Refcount(s.data, r.geo.RefcountOrder, i+k) == 0 {
			run++
			continue
		}
		if run > 0 {
			tell(c+int64(k-run), int64(run))
		}
		run = 0
	}
	if run > 0 {
		tell(c+int64(n-run), int64(run))
	}
}

// ones is the number of clusters from c on whose count is 1, at most limit.
func (r *refcounts) ones(ctx context.Context, c, limit int64) (n int64, err error) {
	for n < limit {
		s, i, m, err := r.piece(ctx, c+n)
		if s == nil || err != nil {
			return n, err
		}
		m = min(m, limit-n)
		s.RLock()
		k := int64(0)
		for k < m && layout.Refcount(s.data, r.geo.RefcountOrder, i+int(k)) == 1 {
			k++
		}
		s.RUnlock()
		s.release()
		if n += k; k < m {
			break
		}
	}
	return n, nil
}

// usedEnd looks downwards from end for the last cluster whose count is not 0 and returns the one behind it, or floor.
func (r *refcounts) usedEnd(ctx context.Context, floor, end int64) (int64, error) {
	step := r.countersPerSlot()
	for end > floor {
		first := max(floor, (end-1)&^(step-1))
		s, i, _, err := r.piece(ctx, first)
		if err != nil {
			return end, err
		}
		if s != nil {
			s.RLock()
			k := end - first
			for k > 0 && layout.Refcount(s.data, r.geo.RefcountOrder, i+int(k-1)) == 0 {
				k--
			}
			s.RUnlock()
			s.release()
			if k > 0 {
				return first + k, nil
			}
		}
		end = first
	}
	return floor, nil
}
