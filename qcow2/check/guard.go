package check

import (
	"slices"

	"byre/qcow2/layout"
)

// guarded is a range of the file that holds a structure.
type guarded struct {
	start, end int64
	reach      int64 // largest end of this range and those before it
	name       string
}

// buildGuard lists what a repair must not write by accident: all structures but L2 tables, and the refcount blocks.
func (c *checker) buildGuard() {
	if c.guard != nil {
		return
	}
	for _, s := range c.structures {
		c.guard = append(c.guard, guarded{start: s.off, end: s.off + s.len, name: s.name})
	}
	for i := range c.table {
		if off := c.block(int64(i)); off != 0 {
			c.guard = append(c.guard, guarded{start: off, end: off + c.g.ClusterSize(), name: "refcount block"})
		}
	}
	slices.SortFunc(c.guard, func(a, b guarded) int { return cmp64(a.start, b.start) })
	reach := int64(0)
	for i := range c.guard {
		reach = max(reach, c.guard[i].end)
		c.guard[i].reach = reach
	}
}

// mayWrite tells whether [off, off+n) holds nothing but, perhaps, the structure called own. The reason not to is reported.
func (c *checker) mayWrite(off, n int64, own string) bool {
	c.buildGuard()
	i, _ := slices.BinarySearchFunc(c.guard, off, func(g guarded, off int64) int { return cmp64(g.reach, off+1) })
	for ; i < len(c.guard) && c.guard[i].start < off+n; i++ {
		if g := c.guard[i]; g.name != own && g.end > off {
			c.report(&Finding{Class: Failure, Kind: RepairFailed, Offset: off, Text: "ERROR: Overlap check failed"})
			return false
		}
	}
	return true
}

// writeEntry overwrites an entry of a table, if nothing else lies there. It tells whether that worked; if not, that is reported.
func (c *checker) writeEntry(off int64, entry []byte, own string) bool {
	if !c.mayWrite(off, int64(len(entry)), own) {
		return false
	}
	if err := c.dev.Write(c.ctx, entry, off, 0); err != nil {
		_ = c.failed(RepairFailed, "repair "+own, off, err)
		return false
	}
	return true
}

// zeroEntry makes entry i of an L2 table read as zeros and own nothing (§11.1).
func (c *checker) zeroEntry(r *l2Ref, i int) bool {
	size := c.g.L2EntrySize()
	entry := make([]byte, size)
	if c.g.ExtendedL2 {
		layout.PutExtendedEntry(entry, 0, 0, layout.BitmapAllZero)
	} else {
		layout.PutWord(entry, 0, uint64(layout.ZeroPlain))
	}
	return c.writeEntry(r.off+int64(i)*int64(size), entry, "L2 table")
}

// overlaps finds structures that share a cluster with something although the refcounts say so too: in-place writes to the
// one damage the other. What the counts do not say was reported before.
func (c *checker) overlaps() error {
	slices.SortFunc(c.structures, func(a, b structure) int { return cmp64(a.off, b.off) })
	next := int64(0) // every cluster once
	for _, s := range c.structures {
		last := (s.off + s.len - 1) >> c.g.ClusterBits
		for cl := max(next, s.off>>c.g.ClusterBits); cl <= last; cl++ {
			if p := c.counts.at(cl); p == nil || p.alike() && p.uniform <= 1 {
				cl |= pageLen - 1
				continue
			}
			if err := c.overlap(s, cl); err != nil {
				return err
			}
		}
		next = max(next, last+1)
	}
	return nil
}

func (c *checker) overlap(s structure, cl int64) error {
	n := c.counts.get(cl)
	if n <= 1 {
		return nil
	}
	stored, err := c.storedCount(cl)
	if err == nil && stored == n {
		c.report(&Finding{Class: Corruption, Kind: Overlap, Cluster: cl, Offset: cl << c.g.ClusterBits, Referenced: n, Text: s.name})
	}
	return err
}

// shared finds the first cluster of [off, off+n) that something else refers to as well; -1 if there is none.
func (c *checker) shared(off, n int64) int64 {
	for cl := off >> c.g.ClusterBits; n > 0 && cl <= (off+n-1)>>c.g.ClusterBits; cl++ {
		if c.counts.get(cl) > 1 {
			return cl
		}
	}
	return -1
}

// tableShared makes a full repair move the refcount structures away if something else lies in the refcount table.
func (c *checker) tableShared() error {
	cl := c.shared(int64(c.hdr.RefcountTableOffset), int64(len(c.table))*8)
	if c.opt.Repair != All || cl < 0 || c.rebuild {
		return nil
	}
	c.rebuild = true
	n := c.counts.get(cl)
	stored, err := c.storedCount(cl)
	if err == nil && stored == n { // else the comparison has told
		c.report(&Finding{Class: Corruption, Kind: Overlap, Cluster: cl, Offset: cl << c.g.ClusterBits, Referenced: n, Text: "refcount table", Fixing: true})
	}
	return err
}

// separateL1 gives the active L1 table clusters of its own if a full repair finds it in shared ones.
func (c *checker) separateL1() error {
	off, n := int64(c.hdr.L1TableOffset), int64(c.hdr.L1Size)*8
	cl := c.shared(off, n)
	if c.opt.Repair != All || cl < 0 || c.res.Errors > 0 {
		return nil
	}
	table := make([]byte, n)
	if err := c.read(table, off); err != nil {
		return c.failed(ReadError, "read L1 table", off, err)
	}
	to, err := c.place(table)
	if err != nil {
		return err
	}
	c.hdr.L1TableOffset = layout.HostOffset(to)
	if err := c.poke(layout.PokeL1); err != nil {
		return err
	}
	if err := c.flush("switch L1 tables"); err != nil {
		return err
	}
	c.report(&Finding{Class: Corruption, Kind: Overlap, Cluster: cl, Offset: cl << c.g.ClusterBits, Referenced: c.counts.get(cl), Text: "active L1 table", Fixing: true})
	for i := range c.structures {
		if s := &c.structures[i]; s.name == "active L1 table" {
			s.off = to
		}
	}
	c.guard = nil
	return c.release(off>>c.g.ClusterBits, (off+n-1)>>c.g.ClusterBits)
}
