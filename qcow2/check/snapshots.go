package check

import (
	"encoding/binary"
	"fmt"
	"slices"

	"byre/block"
	"byre/qcow2/layout"
)

// snapshot is an entry of the snapshot table.
type snapshot struct {
	layout.Snapshot
}

// label names a snapshot in findings: "ID (NAME)", without control characters.
func (s *snapshot) label() string { return printable(fmt.Sprintf("%s (%s)", s.ID, s.Name)) }

// readSnapshotTable reads and judges the table (§4.1, §11.2). A table that cannot be read ends the check: what its
// snapshots own would look like leaks.
func (c *checker) readSnapshotTable() error {
	off, n := int64(c.hdr.SnapshotsOffset), int64(c.hdr.NbSnapshots)
	if over := n - layout.MaxSnapshots; over > 0 {
		if c.opt.Repair != All {
			return c.badSnapshotTable(off, fmt.Sprintf("%d snapshots are above the limit of %d", n, layout.MaxSnapshots))
		}
		c.dropSnapshots(over, fmt.Sprintf("Discarding %d overhanging snapshots", over))
		n = layout.MaxSnapshots
	}
	if n == 0 {
		return nil
	}
	if !c.g.Aligned(layout.HostOffset(off)) || off <= 0 {
		return c.badSnapshotTable(off, "the table's offset is not valid")
	}
	r := &tableReader{c: c, at: off}
	for i := range n {
		start := r.at
		s, err := r.next()
		if err == nil && r.at-off > layout.MaxSnapshotTable {
			if c.opt.Repair != All {
				return c.badSnapshotTable(off, "the table is too long")
			}
			c.dropSnapshots(n-i, fmt.Sprintf("Discarding %d overhanging snapshots (snapshot table is too big)", n-i))
			r.at = start
			break
		}
		if err != nil {
			return err
		}
		if s.cut != 0 {
			if c.opt.Repair != All {
				return c.badSnapshotTable(off, fmt.Sprintf("too much extra metadata in snapshot table entry %d", i))
			}
			c.tableFinding(Finding{Kind: SnapshotTable, Index: i, Text: fmt.Sprintf(
				"Discarding too much extra metadata in snapshot table entry %d (%d > %d)", i, s.cut, layout.MaxSnapshotExtra)})
		}
		c.snaps = append(c.snaps, snapshot{s.Snapshot})
	}
	c.snapTable.bytes = r.at - off
	if c.hdr.Version >= 3 {
		for i := range c.snaps {
			if c.snaps[i].Incomplete() {
				c.tableFinding(Finding{Kind: SnapshotIncomplete, Index: int64(i)})
			}
		}
	}
	return nil
}

// tableFinding reports a defect that rewriting the table repairs.
func (c *checker) tableFinding(f Finding) {
	f.Class, f.Fixing = Corruption, c.opt.Repair == All
	c.snapTable.rewrite = c.snapTable.rewrite || f.Fixing
	if f.Fixing {
		// Counted when it is done.
		c.snapTable.corruptions++
		c.res.CorruptionsFixed--
	}
	c.report(&f)
}

func (c *checker) dropSnapshots(n int64, line string) {
	c.snapTable.corruptions += n - 1
	c.tableFinding(Finding{Kind: SnapshotTable, Index: n, Text: line})
}

func (c *checker) badSnapshotTable(off int64, why string) error {
	e := block.Errorf(block.KindCorrupt, "read snapshot table", c.dev.Path(), off, "%s", why)
	c.report(&Finding{Class: Failure, Kind: SnapshotTable, Offset: off, Text: "ERROR failed to read the snapshot table: " + why})
	return e
}

// tableReader walks the entries of the table through a window.
type tableReader struct {
	c   *checker
	at  int64 // file offset of the next entry
	buf []byte
	off int64 // file offset of buf
}

// tableEntry is an entry and how long its extra data was if that had to be cut.
type tableEntry struct {
	layout.Snapshot
	cut uint32
}

func (r *tableReader) next() (tableEntry, error) {
	fixed, err := r.window(40)
	if err != nil {
		return tableEntry{}, err
	}
	size, ok := layout.SnapshotEntrySize(fixed)
	if !ok {
		return tableEntry{}, r.c.badSnapshotTable(r.at, "the table is cut off by the end of the file")
	}
	extra := binary.BigEndian.Uint32(fixed[36:])
	if size > layout.MaxSnapshotTable {
		return tableEntry{}, r.c.badSnapshotTable(r.at, fmt.Sprintf("an entry of %d bytes", size))
	}
	b, err := r.window(size)
	if err != nil {
		return tableEntry{}, err
	}
	s, used, err := layout.DecodeSnapshot(b, layout.HostOffset(r.at), layout.SnapshotOptions{TruncateExtra: true})
	if err != nil {
		return tableEntry{}, r.c.badSnapshotTable(r.at, err.Error())
	}
	r.at += int64(used)
	e := tableEntry{Snapshot: s}
	if extra > layout.MaxSnapshotExtra {
		e.cut = extra
	}
	return e, nil
}

// window returns up to n bytes of the file from r.at on: fewer at its end.
func (r *tableReader) window(n int64) ([]byte, error) {
	avail := max(0, r.c.fileSize-r.at)
	n = min(n, avail)
	if r.at < r.off || r.at+n > r.off+int64(len(r.buf)) {
		want := min(max(n, 1<<16), avail)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf, r.off = r.buf[:want], r.at
		if err := r.c.read(r.buf, r.at); err != nil {
			return nil, r.c.failed(ReadError, "read snapshot table", r.at, err)
		}
	}
	return r.buf[r.at-r.off : r.at-r.off+n], nil
}

// countSnapshotTable counts the clusters of the table as it is in the file.
func (c *checker) countSnapshotTable() {
	c.addStructure("snapshot table", int64(c.hdr.SnapshotsOffset), c.snapTable.bytes)
}

// rewriteSnapshotTable replaces a defective table, at the very end of a repair: new clusters counted, table written, header
// switched, old clusters released, each durable before the next.
func (c *checker) rewriteSnapshotTable() error {
	if !c.snapTable.rewrite || c.opt.Repair != All || c.res.Errors > 0 {
		c.res.Corruptions += c.snapTable.corruptions
		return nil
	}
	list := make([]layout.Snapshot, len(c.snaps))
	for i := range c.snaps {
		list[i] = c.snaps[i].Snapshot
		if !list[i].HasDiskSize() {
			list[i].DiskSize = uint64(c.hdr.VirtualSize())
		}
	}
	table, err := layout.EncodeSnapshotTable(list)
	if err != nil {
		return c.failed(RepairFailed, "rewrite snapshot table", -1, err)
	}
	var off int64
	if len(list) > 0 {
		if off, err = c.place(table); err != nil {
			return err
		}
	}
	oldOff, oldBytes := int64(c.hdr.SnapshotsOffset), c.snapTable.bytes
	c.hdr.SnapshotsOffset, c.hdr.NbSnapshots = layout.HostOffset(off), uint32(len(list))
	if err := c.poke(layout.PokeSnapshots); err != nil {
		return err
	}
	if err := c.flush("switch snapshot tables"); err != nil {
		return err
	}
	c.res.CorruptionsFixed += c.snapTable.corruptions
	if oldBytes == 0 {
		return nil
	}
	return c.release(oldOff>>c.g.ClusterBits, (oldOff+oldBytes-1)>>c.g.ClusterBits)
}

// place writes data into new clusters that the refcounts, durably, say are in use, and returns their offset. The data is durable.
func (c *checker) place(data []byte) (int64, error) {
	n := c.g.Clusters(int64(len(data)))
	first, ok := c.findCounted(n)
	if ok {
		c.counts.add(first, n, 1, nil)
		for cl := first; cl < first+n; cl++ {
			if err := c.setStored(cl, 1); err != nil {
				return 0, err
			}
		}
	} else {
		// No block counts a free run that is long enough: new structures, made with the run in mind.
		p := &plan{c: c}
		var err error
		if first, err = p.allocate(n); err != nil {
			return 0, err
		}
		if err := c.rebuildKeeping(); err != nil {
			return 0, err
		}
	}
	if err := c.flush("write refcounts"); err != nil {
		return 0, err
	}
	whole := make([]byte, n<<c.g.ClusterBits)
	copy(whole, data)
	if err := c.dev.Write(c.ctx, whole, first<<c.g.ClusterBits, 0); err != nil {
		return 0, c.failed(RepairFailed, "write table", first<<c.g.ClusterBits, err)
	}
	c.fileSize = max(c.fileSize, (first+n)<<c.g.ClusterBits)
	c.res.ImageEnd = max(c.res.ImageEnd, (first+n)<<c.g.ClusterBits)
	return first << c.g.ClusterBits, c.flush("write table")
}

// findCounted finds n clusters in a row that are free and that existing blocks count.
func (c *checker) findCounted(n int64) (int64, bool) {
	per := int64(c.g.RefcountsPerBlock())
	for i := range c.table {
		if c.block(int64(i)) == 0 {
			continue
		}
		run := int64(0)
		for cl := int64(i) * per; cl < int64(i+1)*per; cl++ {
			stored, err := c.storedCount(cl)
			if err != nil {
				return 0, false
			}
			if stored != 0 || c.counts.get(cl) != 0 || c.dangling.get(cl) != 0 || cl == 0 {
				run = 0
				continue
			}
			if run++; run == n {
				return cl - n + 1, true
			}
		}
	}
	return 0, false
}

// rebuildKeeping replaces the refcount structures in the middle of another repair and releases the old ones.
func (c *checker) rebuildKeeping() error {
	oldTable := interval{start: int64(c.hdr.RefcountTableOffset) >> c.g.ClusterBits}
	oldTable.end = oldTable.start + int64(c.hdr.RefcountTableClusters)
	var blocks []int64
	for i := range c.table {
		if off := c.block(int64(i)); off != 0 {
			blocks = append(blocks, off>>c.g.ClusterBits)
		}
	}
	if err := c.rebuildRefcounts(); err != nil {
		return err
	}
	c.skipBlock = map[int64]bool{}
	if err := c.loadRefTable(); err != nil {
		return err
	}
	if oldTable.end > oldTable.start {
		if err := c.release(oldTable.start, oldTable.end-1); err != nil {
			return err
		}
	}
	slices.Sort(blocks)
	for _, cl := range slices.Compact(blocks) {
		if err := c.release(cl, cl); err != nil {
			return err
		}
	}
	return nil
}

// release takes one reference from clusters [first, last], whose removal is durable.
func (c *checker) release(first, last int64) error {
	for cl := first; cl <= last; cl++ {
		c.counts.sub(cl, 1, 1)
		stored, err := c.storedCount(cl)
		if err != nil {
			return err
		}
		if stored == 0 {
			continue
		}
		if err := c.setStored(cl, stored-1); err != nil {
			return err
		}
		if stored == 1 {
			c.free(cl)
		}
	}
	if err := c.flush("release clusters"); err != nil {
		return err
	}
	return c.discardFreed()
}
