package check

import (
	"byre/block"
	"byre/qcow2/layout"
)

// copied judges the COPIED flags of the active tables: set exactly where the stored refcount is 1 (§3.4, §11.2).
func (c *checker) copied() error {
	repair := c.opt.Repair == All || c.opt.Repair == Leaks && c.res.Clean()
	if c.opt.Repair != Nothing {
		if err := c.extend(); err != nil {
			return err
		}
	}
	if err := c.copiedL1(repair); err != nil {
		return err
	}
	var refs []l2Ref
	for _, r := range c.l2s {
		if r.active > 0 {
			refs = append(refs, r)
		}
	}
	work := c.batches(refs)
	return ordered(c.ctx, len(work), c.workers, func(i int) *copiedBatch {
		b := &copiedBatch{bytes: int64(len(work[i])) * c.g.ClusterSize()}
		b.errOff, b.err = c.readTables(work[i], func(r *l2Ref, table []byte) {
			if t := c.copiedTable(r, table); len(t.suspects) > 0 {
				b.tables = append(b.tables, t)
			}
		})
		return b
	}, func(b *copiedBatch) error {
		if b.err != nil {
			return c.failed(ReadError, "read L2 table", b.errOff, b.err)
		}
		c.progress(b.bytes)
		for _, t := range b.tables {
			if err := c.settleCopied(t, repair); err != nil {
				return err
			}
		}
		return nil
	})
}

// extend makes the file hold the structures whole that its end cuts off.
func (c *checker) extend() error {
	if c.opt.Repair != All || c.extendTo <= c.fileSize {
		return nil
	}
	if err := c.dev.Resize(c.ctx, c.extendTo, block.ResizeOptions{}); err != nil {
		return c.failed(RepairFailed, "extend the file", c.extendTo, err)
	}
	c.fileSize = c.dev.Size()
	c.size = max(c.size, (c.fileSize+layout.SectorSize-1)&^(layout.SectorSize-1))
	return nil
}

// copiedBatch is what a worker found.
type copiedBatch struct {
	tables []copiedTable
	bytes  int64
	err    error
	errOff int64
}

// copiedTable lists the entries of a table whose flag does not agree with what the worker knows of the refcount.
type copiedTable struct {
	ref      *l2Ref
	suspects []suspect
}

type suspect struct {
	entry int
	word  layout.L2Entry
}

func (c *checker) copiedTable(r *l2Ref, table []byte) copiedTable {
	t := copiedTable{ref: r}
	size, cs := c.g.L2EntrySize(), uint64(c.g.ClusterSize())
	for i := 0; i*size < len(table); {
		w := word(table[i*size:])
		e := layout.L2Entry(w)
		switch {
		case w == 0 || e.Compressed() || e.Offset() == 0:
			i++
			continue
		case c.g.DataFile:
			if !e.Copied() {
				t.suspects = append(t.suspects, suspect{i, e})
			}
			i++
			continue
		}
		n := 1
		if !c.g.ExtendedL2 {
			n = runLength(table[i*size:], w, cs, int64((1<<56-1-uint64(e.Offset()))/cs)+1)
		}
		first := int64(e.Offset()) >> c.g.ClusterBits
		for k := 0; k < n; {
			p := c.counts.at(first + int64(k))
			lo := int((first + int64(k)) & (pageLen - 1))
			m := min(n-k, pageLen-lo)
			k += m
			if e.Copied() && p.allOnes(lo, m) {
				continue
			}
			unknown := p == nil || p.one == nil
			for j := range m {
				if unknown || p.isOne(lo+j) != e.Copied() {
					at := i + k - m + j
					t.suspects = append(t.suspects, suspect{at, layout.L2Entry(word(table[at*size:]))})
				}
			}
		}
		i += n
	}
	return t
}

// settleCopied reports the wrong flags of one table, and repairs them in one write.
func (c *checker) settleCopied(t copiedTable, repair bool) error {
	var change []suspect
	for _, s := range t.suspects {
		stored := uint64(1)
		if !c.g.DataFile {
			var err error
			if stored, err = c.storedCount(int64(s.word.Offset()) >> c.g.ClusterBits); err != nil {
				return err
			}
		}
		if (stored == 1) == s.word.Copied() {
			continue // on a page without the bits
		}
		change = append(change, suspect{s.entry, s.word.WithCopied(stored == 1)})
		if !repair {
			c.report(&Finding{Class: Corruption, Kind: CopiedData, Entry: uint64(s.word), Stored: stored, Offset: t.ref.off})
		}
	}
	if len(change) == 0 || !repair {
		return nil
	}
	done := c.writeFlags(t.ref, change)
	for _, s := range change {
		was := s.word.WithCopied(!s.word.Copied())
		stored := uint64(1)
		if !c.g.DataFile {
			stored, _ = c.storedCount(int64(s.word.Offset()) >> c.g.ClusterBits)
		}
		c.report(&Finding{Class: Corruption, Kind: CopiedData, Entry: uint64(was), Stored: stored, Offset: t.ref.off, Fixing: done})
	}
	return nil
}

// writeFlags stores entries of an L2 table.
func (c *checker) writeFlags(r *l2Ref, change []suspect) bool {
	size := int64(c.g.L2EntrySize())
	start := int64(change[0].entry) * size &^ (layout.SectorSize - 1)
	end := int64(change[len(change)-1].entry)*size&^(layout.SectorSize-1) + layout.SectorSize
	end = min(end, c.fileSize-r.off)
	buf := make([]byte, end-start)
	if err := c.read(buf, r.off+start); err != nil {
		_ = c.failed(ReadError, "read L2 table", r.off, err)
		return false
	}
	for _, s := range change {
		layout.PutWord(buf[int64(s.entry)*size-start:], 0, uint64(s.word))
	}
	return c.writeEntry(r.off+start, buf, "L2 table")
}

// copiedL1 judges the flags of the active L1 table.
func (c *checker) copiedL1(repair bool) error {
	off := int64(c.hdr.L1TableOffset)
	var first error
	err := c.words([]interval{{off / 8, off/8 + int64(c.hdr.L1Size), 1}}, func(index, _ int64, w uint64) {
		e := layout.L1Entry(w)
		if e.Offset() == 0 || first != nil {
			return
		}
		stored, err := c.storedCount(int64(e.Offset()) >> c.g.ClusterBits)
		if err != nil {
			first = err
			return
		}
		if (stored == 1) == e.Copied() {
			return
		}
		f := Finding{Class: Corruption, Kind: CopiedL2Table, Index: index - off/8, Entry: w, Stored: stored, Fixing: repair}
		if repair {
			var b [8]byte
			layout.PutWord(b[:], 0, uint64(e.WithCopied(stored == 1)))
			f.Fixing = c.writeEntry(index*8, b[:], "active L1 table")
		}
		c.report(&f)
	})
	if first != nil {
		return first
	}
	if err != nil {
		return c.failed(ReadError, "read L1 table", off, err)
	}
	return nil
}
