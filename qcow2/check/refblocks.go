package check

import (
	"byre/block"
	"byre/qcow2/layout"
)

// loadRefTable reads the refcount table, at most 8 MiB. What the file does not hold reads as "no block".
func (c *checker) loadRefTable() error {
	n := int64(c.hdr.RefcountTableClusters) << c.g.ClusterBits / 8
	c.table = make([]layout.RefTableEntry, n)
	off := int64(c.hdr.RefcountTableOffset)
	err := c.words([]interval{{off / 8, off/8 + n, 1}}, func(index, _ int64, w uint64) {
		c.table[index-off/8] = layout.RefTableEntry(w)
	})
	if err != nil {
		return c.failed(ReadError, "read refcount table", off, err)
	}
	c.stored.reset()
	return nil
}

// countRefBlocks counts the refcount blocks and judges where they lie (§11.1). Everything else has been counted before, so
// that a block which something else uses too shows.
func (c *checker) countRefBlocks() {
	c.skipBlock = map[int64]bool{}
	seen := map[int64]bool{}
	bad := func(i int64, f Finding) {
		f.Class, f.Index = Corruption, i
		c.report(&f)
		c.rebuild = true
		c.skipBlock[i] = true
	}
	for i, e := range c.table {
		if e == 0 {
			continue
		}
		i, off := int64(i), int64(e.Offset())
		switch {
		case e.Reserved() != 0:
			bad(i, Finding{Kind: RefTableReserved, Entry: uint64(e)})
		case !c.g.Aligned(e.Offset()):
			bad(i, Finding{Kind: RefBlockUnaligned, Offset: off})
		case off < 0 || off >= c.size:
			bad(i, Finding{Kind: RefBlockOutside, Offset: off})
		case seen[off]:
			c.add(off>>c.g.ClusterBits, 1, 1)
			bad(i, Finding{Kind: RefBlockShared, Offset: off, Referenced: c.counts.get(off >> c.g.ClusterBits)})
		default:
			seen[off] = true
			c.add(off>>c.g.ClusterBits, 1, 1)
			if off+c.g.ClusterSize() > c.fileSize {
				c.report(&Finding{Class: Corruption, Kind: CutByEOF, Offset: off, Text: "refcount block"})
				c.rebuild = true
			}
			if n := c.counts.get(off >> c.g.ClusterBits); n != 1 {
				c.report(&Finding{Class: Corruption, Kind: RefBlockShared, Index: i, Offset: off, Referenced: n})
				c.rebuild = true
			}
		}
	}
}

// block returns the offset of the block that counts table index i, 0 if there is none that can be used.
func (c *checker) block(i int64) int64 {
	if i < 0 || i >= int64(len(c.table)) || c.skipBlock[i] {
		return 0
	}
	return int64(c.table[i].Offset())
}

// refBlockBytes is how much of the refcount blocks there is to read.
func (c *checker) refBlockBytes() int64 {
	var n int64
	for _, e := range c.table {
		if e != 0 {
			n++
		}
	}
	return n * c.g.ClusterSize()
}

// storedCache answers single questions for stored refcounts, with a few pieces of blocks kept.
type storedCache struct {
	pieces map[int64][]byte
}

const storedPiece = 4096

func (s *storedCache) reset() { s.pieces = nil }

// storedCount reads the refcount that the image has for a cluster.
func (c *checker) storedCount(cluster int64) (uint64, error) {
	off := c.block(c.g.RefcountTableIndex(cluster))
	if off == 0 {
		return 0, nil
	}
	i := c.g.RefcountBlockIndex(cluster)
	at := off + int64(i)<<c.g.RefcountOrder/8
	start := at &^ (storedPiece - 1)
	b, ok := c.stored.pieces[start]
	if !ok {
		b = make([]byte, storedPiece)
		if err := c.read(b, start); err != nil {
			return 0, c.failed(ReadError, "read refcount block", off, err)
		}
		if c.stored.pieces == nil || len(c.stored.pieces) >= 256 {
			c.stored.pieces = map[int64][]byte{}
		}
		c.stored.pieces[start] = b
	}
	if c.g.RefcountOrder < 3 { // several share the byte
		i &= 8>>c.g.RefcountOrder - 1
	} else {
		i = 0
	}
	return layout.Refcount(b[at-start:], c.g.RefcountOrder, i), nil
}

// setStored writes refcounts of single clusters, all covered by usable blocks. The values are not durable before a flush.
func (c *checker) setStored(cluster int64, v uint64) error {
	off := c.block(c.g.RefcountTableIndex(cluster))
	if off == 0 {
		return block.Errorf(block.KindCorrupt, "write refcount", c.dev.Path(), block.NoOffset, "no refcount block counts cluster %d", cluster)
	}
	i := c.g.RefcountBlockIndex(cluster)
	at := (off + int64(i)<<c.g.RefcountOrder/8) &^ (layout.SectorSize - 1)
	first := int((at - off) * 8 >> c.g.RefcountOrder)
	var sector [layout.SectorSize]byte
	if err := c.read(sector[:], at); err != nil {
		return c.failed(ReadError, "read refcount block", off, err)
	}
	layout.SetRefcount(sector[:], c.g.RefcountOrder, i-first, v)
	if err := c.dev.Write(c.ctx, sector[:], at, 0); err != nil {
		return c.failed(RepairFailed, "write refcount block", off, err)
	}
	c.stored.reset()
	if p := c.counts.at(cluster); p != nil && p.one != nil {
		p.setOne(int(cluster&(pageLen-1)), v == 1)
	}
	return nil
}
