package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// newBlockLocked makes the refcount block of range idx, which has none, at the next cluster of the end of the file,
// which lies in that range: the block counts itself. m.end moves behind it. Order: qcow2-format §2.4.
func (s *space) newBlockLocked(ctx context.Context, idx int64) error {
	m := &s.mu
	if idx >= m.refs.table.n {
		return s.growTableLocked(ctx, idx)
	}
	if err := s.file.Event(ctx, block.EventRefblockAlloc); err != nil {
		return err
	}
	at := m.end
	if _, err := s.growLocked(ctx, at, 1); err != nil {
		return err
	}
	buf := make([]byte, s.geo.ClusterSize())
	layout.SetRefcount(buf, s.geo.RefcountOrder, s.geo.RefcountBlockIndex(at), 1)
	if err := s.writeTable(ctx, block.EventRefblockAllocWrite, buf, at); err != nil {
		return err
	}
	if err := s.order.image.barrier(ctx, s.order.image.note()); err != nil {
		return err
	}
	if err := s.file.Event(ctx, block.EventRefblockAllocHookup); err != nil {
		return err
	}
	off := s.geo.ClusterOffset(at)
	if err := m.refs.table.store(ctx, idx, uint64(layout.MakeRefTableEntry(off))); err != nil {
		return err
	}
	s.order.image.note()
	s.host.newRefBlock(off)
	m.end = at + 1
	return nil
}

// writeTable writes a new metadata structure at cluster at. Stale pieces of the place leave the cache first.
func (s *space) writeTable(ctx context.Context, e block.Event, buf []byte, at int64) error {
	off := s.geo.ClusterOffset(at)
	n := s.geo.Clusters(int64(len(buf)))
	s.host.dropCached(clusters{at, n}, true)
	if err := s.file.Event(ctx, e); err != nil {
		return err
	}
	if err := s.host.checkOverlap(ctx, off, int64(len(buf)), metaNone); err != nil {
		return err
	}
	return s.file.Write(ctx, buf, int64(off), 0)
}

// tablePlan is where a larger refcount table goes: blocks for the ranges from first on, behind them the table, all
// counted by these blocks, so that one write to the header switches over (qcow2-format §2.5).
type tablePlan struct {
	at     int64 // first cluster
	first  int64 // refcount block index of the first new block
	blocks int64
	table  int64 // clusters
}

func (s *space) planTable(at int64) (tablePlan, error) {
	g := s.geo
	per, perTable := int64(g.RefcountsPerBlock()), g.ClusterSize()/8
	p := tablePlan{at: at, first: g.RefcountTableIndex(at), blocks: 1, table: 1}
	for {
		last := (at + p.blocks + p.table - 1) / per
		entries := last + 1
		if entries*8 > layout.MaxRefTableBytes {
			return p, block.Errorf(block.KindNoSpace, "grow refcount table", s.file.Path(), int64(g.ClusterOffset(at)), "the refcount table cannot become larger than %d bytes", layout.MaxRefTableBytes)
		}
		table := min((entries+entries/2+perTable-1)/perTable, g.MaxRefcountTableClusters())
		blocks := last - p.first + 1
		if blocks <= p.blocks && table <= p.table {
			return p, nil
		}
		p.blocks, p.table = max(blocks, p.blocks), max(table, p.table)
	}
}

// growTableLocked replaces the refcount table by a larger one that has a block for range idx. m.end moves behind the
// new structures.
func (s *space) growTableLocked(ctx context.Context, idx int64) error {
	m := &s.mu
	if err := s.file.Event(ctx, block.EventReftableGrow); err != nil {
		return err
	}
	p, err := s.planTable(m.end)
	if err != nil {
		return err
	}
	n := p.blocks + p.table
	if got, err := s.growLocked(ctx, p.at, n); err != nil || got < n {
		if err == nil {
			err = block.Errorf(block.KindNoSpace, "grow refcount table", s.file.Path(), int64(s.geo.ClusterOffset(p.at)), "%d clusters are needed", n)
		}
		return err
	}
	if err := s.writeNewBlocks(ctx, p); err != nil {
		return err
	}
	t, err := s.writeNewTable(ctx, p)
	if err != nil {
		return err
	}
	if err := s.order.image.barrier(ctx, s.order.image.note()); err != nil {
		t.close()
		return err
	}
	if err := s.file.Event(ctx, block.EventRefblockAllocSwitchTable); err != nil {
		t.close()
		return err
	}
	old := m.refs.table
	err = s.host.pokeHeader(ctx, layout.PokeRefcountTable, func(h *layout.Header) {
		h.RefcountTableOffset = t.off
		h.RefcountTableClusters = uint32(p.table)
	})
	if err != nil {
		t.close()
		return err
	}
	s.order.image.note()
	m.refs.table = t
	m.end = p.at + n
	for i := range p.blocks {
		s.host.newRefBlock(s.geo.ClusterOffset(p.at + i))
	}
	s.host.movedRefTable(clusters{s.geo.Cluster(old.off), s.geo.Clusters(old.n * 8)})
	old.close()
	return nil
}

// writeNewBlocks writes the refcount blocks of a plan: they count the plan's own clusters.
func (s *space) writeNewBlocks(ctx context.Context, p tablePlan) error {
	per := int64(s.geo.RefcountsPerBlock())
	buf := make([]byte, s.geo.ClusterSize())
	for i := range p.blocks {
		first := (p.first + i) * per
		from := max(p.at, first) - first
		to := min(p.at+p.blocks+p.table, first+per) - first
		clear(buf)
		if from < to {
			setRefcounts(buf, s.geo.RefcountOrder, int(from), int(to), 1)
		}
		if err := s.writeTable(ctx, block.EventRefblockAllocWriteBlocks, buf, p.at+i); err != nil {
			return err
		}
	}
	return nil
}

// writeNewTable writes the table of a plan: the old entries and the new blocks. Returns the table for use in memory.
func (s *space) writeNewTable(ctx context.Context, p tablePlan) (*table, error) {
	old := s.mu.refs.table
	at := p.at + p.blocks
	n := p.table * s.geo.ClusterSize() / 8
	buf := make([]byte, p.table*s.geo.ClusterSize())
	for i := range old.n {
		w, err := old.get(ctx, i)
		if err != nil {
			return nil, err
		}
		layout.PutWord(buf, int(i), w)
	}
	for i := range p.blocks {
		layout.PutWord(buf, int(p.first+i), uint64(layout.MakeRefTableEntry(s.geo.ClusterOffset(p.at+i))))
	}
	if err := s.writeTable(ctx, block.EventRefblockAllocWriteTable, buf, at); err != nil {
		return nil, err
	}
	return newTable(old.name, s.file, s.geo.ClusterOffset(at), n, old.load, old.budget)
}

// dropEmptyBlocks removes refcount blocks that count nothing but themselves, from the end of the table downwards until
// one is in use, so that a shrunken file can be cut.
func (s *space) dropEmptyBlocks(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	per := int64(s.geo.RefcountsPerBlock())
	for idx := m.refs.table.n - 1; idx > 0; idx-- {
		off, err := m.refs.block(ctx, idx)
		if err != nil {
			return err
		}
		if off == 0 {
			continue
		}
		self := s.geo.Cluster(off)
		if self/per != idx {
			return nil
		}
		used, err := m.refs.usedEnd(ctx, idx*per, (idx+1)*per)
		if err != nil {
			return err
		}
		if used != self+1 {
			return nil
		}
		before, err := m.refs.usedEnd(ctx, idx*per, self)
		if err != nil {
			return err
		}
		if before != idx*per {
			return nil
		}
		if err := m.refs.table.store(ctx, idx, 0); err != nil {
			return err
		}
		if err := s.order.image.barrier(ctx, s.order.image.note()); err != nil {
			return err
		}
		s.host.dropCached(clusters{self, 1}, true)
		m.free.remove(idx*per, per)
	}
	return nil
}

// cut says that the file ends at cluster end now; nothing behind it is in use or claimed.
func (s *space) cut(end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	m.free.removeFrom(end)
	m.end, m.fileEnd = end, end
	m.opened = min(m.opened, end)
	m.batch = firstClaim
}
