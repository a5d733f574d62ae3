package check

import (
	"slices"

	"byre/block"
	"byre/qcow2/layout"
)

// structure is something that must have its clusters for itself.
type structure struct {
	name     string
	off, len int64
}

// l2Ref is an L2 table with how often L1 tables refer to it.
type l2Ref struct {
	off     int64
	weight  int64 // all references
	active  int64 // of these, from the active L1
	l1Index int64 // of an active reference
}

// count walks everything that refers to host clusters, in the order of §11.1.
func (c *checker) count() error {
	c.clusters = c.g.Clusters(c.size)
	c.counts = newCounts(c.g.MaxRefcount(), c.clusters)
	c.dangling = newCounts(1<<16-1, int64(layout.MaxTableOffset)>>c.g.ClusterBits)
	c.l2s, c.structures, c.guard, c.rebuild, c.extendTo = nil, nil, nil, false, 0
	c.addStructure("header", 0, c.g.ClusterSize())
	if err := c.loadRefTable(); err != nil {
		return err
	}
	if err := c.collectL1(); err != nil {
		return err
	}
	c.countSnapshotTable()
	c.addStructure("refcount table", int64(c.hdr.RefcountTableOffset), int64(len(c.table))*8)
	c.countEncryption()
	if err := c.countBitmaps(); err != nil {
		return err
	}
	if err := c.walkL2(); err != nil {
		return err
	}
	c.countRefBlocks()
	return nil
}

// addStructure counts one reference to each cluster of [off, off+n), and remembers that it must stand alone.
func (c *checker) addStructure(name string, off, n int64) {
	if n <= 0 {
		return
	}
	c.cut(name, off, n)
	if first, k, ok := c.region(off, n); ok {
		c.add(first, k, 1)
		c.structures = append(c.structures, structure{name, off, n})
	}
}

// cut reports a structure that the file does not hold whole. Readers refuse it (§0).
func (c *checker) cut(name string, off, n int64) {
	if off < 0 || off+n <= c.fileSize || off+n-c.size >= c.g.ClusterSize() {
		return // whole, or reported by region
	}
	if name == "refcount table" {
		c.rebuild = true
	}
	if name == "header" {
		return // only its fixed part has to be there, and is
	}
	c.extendTo = max(c.extendTo, off+n)
	c.report(&Finding{Class: Corruption, Kind: CutByEOF, Offset: off, Length: n, Text: name, Fixing: c.opt.Repair == All})
}

// region turns a range of bytes that something refers to into clusters. A reference that reaches a whole cluster or more
// beyond the end of the file is reported and not counted.
func (c *checker) region(off, n int64) (first, k int64, ok bool) {
	if n <= 0 {
		return 0, 0, false
	}
	if off < 0 || off > 1<<62 || n > 1<<62 || off+n-c.size >= c.g.ClusterSize() {
		c.report(&Finding{Class: Corruption, Kind: BeyondEOF, Offset: off, Length: n})
		return 0, 0, false
	}
	first = off >> c.g.ClusterBits
	return first, (off+n-1)>>c.g.ClusterBits - first + 1, true
}

// add counts w references to each of k clusters.
func (c *checker) add(first, k, w int64) {
	c.clusters = max(c.clusters, first+k)
	c.counts.add(first, k, uint64(w), c.overflow)
}

func (c *checker) overflow(cluster int64) {
	c.report(&Finding{Class: Corruption, Kind: RefcountOverflow, Offset: cluster << c.g.ClusterBits, Cluster: cluster})
}

// collectL1 counts all L1 tables and lists the L2 tables that they refer to, each once.
func (c *checker) collectL1() error {
	active := int64(c.hdr.L1TableOffset)
	c.addStructure("active L1 table", active, int64(c.hdr.L1Size)*8)
	ranges := []interval{{active / 8, active/8 + int64(c.hdr.L1Size), 1}}
	refs := &l2List{c: c}
	err := c.words(ranges, func(index, weight int64, w uint64) {
		refs.add(layout.L1Entry(w), index-active/8, 1, 1)
	})
	if err != nil {
		return c.failed(ReadError, "read L1 table", active, err)
	}
	ranges, clusters := c.snapshotL1s()
	for _, r := range sweep(clusters) {
		c.add(r.start, r.end-r.start, r.weight)
	}
	err = c.words(sweep(ranges), func(index, weight int64, w uint64) {
		refs.add(layout.L1Entry(w), index, weight, 0)
	})
	if err != nil {
		return c.failed(ReadError, "read snapshot L1 table", -1, err)
	}
	if refs.odd > maxOddTables {
		return c.failed(ReadError, "follow L1 tables", -1, errOddTables)
	}
	refs.compact()
	c.l2s = refs.list
	for i := range c.l2s {
		r := &c.l2s[i]
		c.cut("L2 table", r.off, c.g.ClusterSize())
		if first, k, ok := c.region(r.off, c.g.ClusterSize()); ok {
			c.add(first, k, r.weight)
		}
	}
	// Tables that lie in holes say nothing.
	h := &holes{c: c}
	c.l2s = slices.DeleteFunc(c.l2s, func(r l2Ref) bool {
		return r.off >= c.fileSize || h.isZero(r.off, c.g.ClusterSize())
	})
	return nil
}

// snapshotL1s gives the L1 tables of the snapshots as ranges of words and as ranges of clusters.
func (c *checker) snapshotL1s() (words, clusters []interval) {
	if len(c.snaps) > 0 && c.g.DataFile {
		c.report(&Finding{Class: Corruption, Kind: SnapshotsDataFile, Index: int64(len(c.snaps))})
	}
	for i := range c.snaps {
		s := &c.snaps[i]
		off, n := int64(s.L1TableOffset), int64(s.L1Size)*8
		switch {
		case !c.g.Aligned(s.L1TableOffset):
			c.report(&Finding{Class: Corruption, Kind: SnapshotL1Unaligned, Offset: off, Name: s.label()})
			continue
		case s.L1Size > layout.MaxL1Entries:
			c.report(&Finding{Class: Corruption, Kind: SnapshotL1TooLarge, Length: int64(s.L1Size), Name: s.label()})
			continue
		case n == 0:
			continue
		}
		c.cut("L1 table of snapshot "+s.label(), off, n)
		first, k, ok := c.region(off, n)
		if !ok {
			continue
		}
		clusters = append(clusters, interval{first, first + k, 1})
		words = append(words, interval{off / 8, off/8 + int64(s.L1Size), 1})
		c.structures = append(c.structures, structure{"L1 table of snapshot " + s.label(), off, n})
	}
	return words, clusters
}

// l2List gathers references to L2 tables; it stays as long as there are different tables.
type l2List struct {
	c      *checker
	list   []l2Ref
	merged int // entries that the last compaction left
	odd    int // tables that lie across clusters
}

// maxOddTables bounds how many L2 tables at unaligned offsets are followed: each cluster could hold thousands.
const maxOddTables = 4096

var errOddTables = &block.Error{Kind: block.KindCorrupt, Offset: block.NoOffset, Msg: "too many L2 tables at unaligned offsets to follow"}

func (l *l2List) add(e layout.L1Entry, index, weight, active int64) {
	c := l.c
	if e.Reserved() != 0 {
		c.report(&Finding{Class: Corruption, Kind: L1Reserved, Entry: uint64(e), Index: index})
	}
	off := e.Offset()
	if off == 0 {
		if active > 0 && e.Reserved() == 0 {
			c.report(&Finding{Class: Corruption, Kind: L1Empty, Entry: uint64(e), Index: index, Fixing: c.opt.Repair == All && c.clearL1(index)})
		}
		return
	}
	if !c.g.Aligned(off) {
		c.report(&Finding{Class: Corruption, Kind: L2TableUnaligned, Offset: int64(off)})
		if l.odd++; l.odd > maxOddTables {
			return // collectL1 ends the run
		}
	}
	l.list = append(l.list, l2Ref{int64(off), weight, active, index * active})
	if len(l.list) > 2*l.merged+1<<16 {
		l.compact()
	}
}

// compact sorts by offset, so that tables are read in the order of the file, and merges equal ones.
func (l *l2List) compact() {
	slices.SortFunc(l.list, func(a, b l2Ref) int {
		if a.off != b.off {
			return cmp64(a.off, b.off)
		}
		return cmp64(a.l1Index, b.l1Index)
	})
	out := l.list[:0]
	for _, r := range l.list {
		n := len(out)
		if n == 0 || out[n-1].off != r.off {
			out = append(out, r)
			continue
		}
		p := &out[n-1]
		if p.active == 0 {
			p.l1Index = r.l1Index
		}
		p.weight += r.weight
		p.active += r.active
	}
	l.list, l.merged = out, len(out)
}

// clearL1 removes an entry of the active L1 that refers to nothing.
func (c *checker) clearL1(index int64) bool {
	return c.writeEntry(int64(c.hdr.L1TableOffset)+index*8, make([]byte, 8), "active L1 table")
}

// countEncryption counts the area of the LUKS header.
func (c *checker) countEncryption() {
	p := c.hdr.Crypto
	if p == nil || p.Length == 0 {
		return
	}
	// Eight key slots of the largest cipher take 2 MiB; nothing legal comes near this.
	const limit = 64 << 20
	if p.Length > limit {
		c.report(&Finding{Class: Corruption, Kind: Encryption, Text: "ERROR the encryption header is longer than any can be"})
		return
	}
	c.addStructure("encryption header", int64(p.Offset), p.Length)
}
