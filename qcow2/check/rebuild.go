package check

import (
	"slices"

	"byre/block"
	"byre/qcow2/layout"
)

// rebuildAndRecount replaces the refcount structures by ones made from the references, counts again, and frees what the
// old structures took. before is the result without the comparison.
func (c *checker) rebuildAndRecount(before Result) error {
	old := c.res
	if err := c.extend(); err != nil {
		return err
	}
	c.report(&Finding{Class: Note, Kind: Rebuilding})
	if err := c.rebuildRefcounts(); err != nil {
		return err
	}
	// What the walk said was reported; the numbers are taken anew.
	c.quiet = true
	c.res = Result{TotalClusters: old.TotalClusters, Errors: old.Errors, CorruptionsFixed: old.CorruptionsFixed, LeaksFixed: old.LeaksFixed}
	level := c.opt.Repair
	c.opt.Repair = Nothing
	err := c.count()
	c.opt.Repair, c.quiet = level, false
	if err != nil {
		return err
	}
	counted := c.res
	if err := c.compare(Leaks); err != nil {
		return err
	}
	// The leaks fixed just now are the old structures: nobody saw them as leaks.
	unfixed, end := c.res.Leaks-counted.Leaks, c.res.ImageEnd
	if c.rebuild || c.res.Corruptions > counted.Corruptions {
		c.report(&Finding{Class: Failure, Kind: RepairFailed, Text: "ERROR rebuilt refcount structure is still broken"})
		counted.Errors++
	}
	c.res = counted
	c.res.ImageEnd = end
	c.res.CorruptionsFixed += max(0, old.Corruptions-counted.Corruptions)
	c.res.LeaksFixed += max(0, old.Leaks-counted.Leaks)
	c.res.Leaks += unfixed
	return nil
}

// rebuildRefcounts writes refcount blocks and a table for the references as counted, in clusters that nothing refers to,
// and switches to them by one poke. Until the poke the image is what it was; after it, the old structures are leaks.
func (c *checker) rebuildRefcounts() error {
	p, err := c.planRebuild()
	if err != nil {
		return err
	}
	if err := p.affordable(); err != nil {
		return err
	}
	if err := p.writeBlocks(); err != nil {
		return err
	}
	if err := c.flush("write refcount blocks"); err != nil {
		return err
	}
	table := make([]byte, p.tableClusters<<c.g.ClusterBits)
	for i, off := range p.blocks {
		layout.PutWord(table, int(i), uint64(layout.MakeRefTableEntry(layout.HostOffset(off))))
	}
	if err := c.dev.Write(c.ctx, table, p.tableOff, 0); err != nil {
		return c.failed(RepairFailed, "write refcount table", p.tableOff, err)
	}
	if err := c.flush("write refcount table"); err != nil {
		return err
	}
	c.hdr.RefcountTableOffset = layout.HostOffset(p.tableOff)
	c.hdr.RefcountTableClusters = uint32(p.tableClusters)
	if err := c.poke(layout.PokeRefcountTable); err != nil {
		return err
	}
	if err := c.flush("switch refcount tables"); err != nil {
		return err
	}
	c.fileSize = c.dev.Size()
	c.size = max(c.size, (c.fileSize+layout.SectorSize-1)&^(layout.SectorSize-1))
	return nil
}

// plan is where new refcount structures will lie.
type plan struct {
	c             *checker
	blocks        map[int64]int64 // table index → offset
	order         []int64         // the indices, ascending
	tableOff      int64
	tableClusters int64
	hint          int64 // no cluster below is free
	end           int64 // behind the last cluster taken
}

// planRebuild chooses clusters, and counts them: a block for every range with a reference, the plan's own among them.
func (c *checker) planRebuild() (*plan, error) {
	p := &plan{c: c, blocks: map[int64]int64{}}
	per := int64(c.g.RefcountsPerBlock())
	for _, page := range c.counts.pages() {
		p.order = c.referenced(p.order, page<<pageBits, per)
	}
	slices.Sort(p.order)
	p.order = slices.Compact(p.order)
	if n := len(p.order); n > 0 && c.g.Clusters((p.order[n-1]+1)*8) > c.g.MaxRefcountTableClusters() {
		return nil, c.tooFar()
	}
	for {
		// A new block may be the first reference into a range of its own: such ranges join the list while it is worked off.
		for k := 0; k < len(p.order); k++ {
			i := p.order[k]
			if _, ok := p.blocks[i]; ok {
				continue
			}
			cl, err := p.allocate(1)
			if err != nil {
				return nil, err
			}
			p.blocks[i] = cl << c.g.ClusterBits
			if pos := p.cover(cl, 1); pos >= 0 && pos <= k {
				k = pos - 1
			}
		}
		last := slices.Max(p.order)
		need := c.g.Clusters((last + 1) * 8)
		if need > c.g.MaxRefcountTableClusters() {
			return nil, c.tooFar()
		}
		if need <= p.tableClusters {
			if p.adopt() {
				continue
			}
			return p, nil
		}
		if p.tableClusters > 0 {
			c.counts.sub(p.tableOff>>c.g.ClusterBits, p.tableClusters, 1)
		}
		cl, err := p.allocate(need)
		if err != nil {
			return nil, err
		}
		p.tableOff, p.tableClusters = cl<<c.g.ClusterBits, need
		p.cover(cl, need)
	}
}

// affordable refuses structures that are out of all proportion to the file: a few entries that refer to scattered places in holes
// must not make a repair fill the disk.
func (p *plan) affordable() error {
	c := p.c
	limit := c.fileSize
	if a, ok := c.dev.Driver().(block.AllocatedSizer); ok {
		if n, err := a.AllocatedSize(c.ctx); err == nil && n >= 0 {
			limit = n
		}
	}
	if need := int64(len(p.order)) << c.g.ClusterBits; need > 256<<20 && need-256<<20 > limit {
		return c.failed(RepairFailed, "rebuild refcount structures", -1, block.Errorf(block.KindUnsupported, "", "", block.NoOffset,
			"references are so scattered that their counts would take %d MiB, in a file of %d MiB", need>>20, limit>>20))
	}
	return nil
}

func (c *checker) tooFar() error {
	return c.failed(RepairFailed, "rebuild refcount structures", -1, block.Errorf(block.KindUnsupported, "", "", block.NoOffset,
		"references reach so far into the file that no refcount table can count them"))
}

// referenced appends the table indices of the ranges in which the page that starts at a cluster has counters that are not 0.
func (c *checker) referenced(list []int64, cluster, per int64) []int64 {
	pg := c.counts.at(cluster)
	if len(pg.few) > 0 {
		for _, f := range pg.few {
			if f&0xffff != 0 {
				list = append(list, (cluster+int64(f>>16))/per)
			}
		}
		return list
	}
	var values [pageLen]uint64
	step := int(min(per, pageLen))
	for lo := 0; lo < pageLen; lo += step {
		if slices.ContainsFunc(pg.values(values[:], lo, lo+step), func(v uint64) bool { return v != 0 }) {
			list = append(list, (cluster+int64(lo))/per)
		}
	}
	return list
}

// allocate finds n clusters in a row that nothing refers to, and counts them. They may lie behind the end of the file.
func (p *plan) allocate(n int64) (int64, error) {
	c := p.c
	run := int64(0)
	for cl := p.hint; ; cl++ {
		if cl&1023 == 0 && c.ctx.Err() != nil {
			return 0, c.ctx.Err()
		}
		pg := c.counts.at(cl)
		switch {
		case c.dangling.get(cl) != 0:
			run = 0
			continue
		case pg != nil && pg.get(int(cl&(pageLen-1))) != 0:
			run = 0
			if pg.alike() {
				cl |= pageLen - 1
			}
			if n == 1 {
				p.hint = cl + 1
			}
			continue
		default:
			run++
		}
		if run < n {
			continue
		}
		first := cl - n + 1
		c.counts.add(first, n, 1, nil)
		if n == 1 {
			p.hint = cl + 1
		}
		c.clusters = max(c.clusters, first+n)
		p.end = max(p.end, first+n)
		return first, nil
	}
}

// adopt counts references to places behind the end of the file that the growth of the file makes real. It tells whether there were
// any.
func (p *plan) adopt() (any bool) {
	c := p.c
	for _, page := range c.dangling.pages() {
		for cl := page << pageBits; cl < min((page+1)<<pageBits, p.end); cl++ {
			if n := c.dangling.get(cl); n > 0 {
				c.counts.add(cl, 1, n, nil)
				c.dangling.sub(cl, 1, n)
				p.cover(cl, 1)
				any = true
			}
		}
	}
	return any
}

// cover makes sure that the ranges of new clusters get blocks. It returns the lowest place in the list where one was put in, or -1.
func (p *plan) cover(cluster, n int64) int {
	lowest := -1
	for i := p.c.g.RefcountTableIndex(cluster + n - 1); i >= p.c.g.RefcountTableIndex(cluster); i-- {
		if k, ok := slices.BinarySearch(p.order, i); !ok {
			p.order, lowest = slices.Insert(p.order, k, i), k
		}
	}
	return lowest
}

// writeBlocks writes all new blocks.
func (p *plan) writeBlocks() error {
	c := p.c
	per := int64(c.g.RefcountsPerBlock())
	buf := make([]byte, c.g.ClusterSize())
	var values [pageLen]uint64
	for _, i := range p.order {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		clear(buf)
		for k := int64(0); k < per; {
			cl := i*per + k
			lo := int(cl & (pageLen - 1))
			n := min(per-k, int64(pageLen-lo))
			if pg := c.counts.at(cl); pg != nil {
				for j, v := range pg.values(values[:], lo, lo+int(n)) {
					if v != 0 {
						layout.SetRefcount(buf, c.g.RefcountOrder, int(k)+j, v)
					}
				}
			}
			k += n
		}
		if err := c.dev.Write(c.ctx, buf, p.blocks[i], 0); err != nil {
			return c.failed(RepairFailed, "write refcount block", p.blocks[i], err)
		}
	}
	return nil
}
