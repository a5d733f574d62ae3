package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// createChunk is how much of a table is composed before it is written.
const createChunk = 1 << 20

// creator carries out a createPlan.
type creator struct {
	ctx   context.Context
	file  *block.Device
	o     *CreateOptions
	p     createPlan
	fresh bool // what is not written reads as zeros
}

// prepareData empties the external data file and brings it to its size.
func (c *creator) prepareData() error {
	d := c.o.Data
	if d == nil {
		return nil
	}
	if !d.Geometry().Growable {
		return c.needSize(d, c.o.Size)
	}
	if err := d.Resize(c.ctx, 0, block.ResizeOptions{}); err != nil {
		return err
	}
	mode := c.o.Prealloc
	if mode == block.PreallocMetadata {
		mode = block.PreallocOff
	}
	if err := d.Resize(c.ctx, c.o.Size, block.ResizeOptions{Prealloc: mode, Progress: c.o.Progress}); err != nil {
		return err
	}
	return d.Flush(c.ctx)
}

func (c *creator) needSize(d *block.Device, size int64) error {
	if d.Size() >= size {
		return nil
	}
	return block.Errorf(block.KindNoSpace, "create qcow2", d.Path(), block.NoOffset,
		"%d bytes are needed and the device has %d", size, d.Size())
}

// space brings the image file to its length, the data area preallocated as asked, and destroys an old header.
func (c *creator) space() error {
	g := c.p.g
	length, data := c.p.length(), int64(g.ClusterOffset(c.p.data))
	if !c.file.Geometry().Growable {
		if err := c.needSize(c.file, length); err != nil {
			return err
		}
		if err := c.file.Zero(c.ctx, 0, g.ClusterSize(), 0); err != nil {
			return err
		}
		return c.zeroDevice(data, length)
	}
	if err := c.file.Resize(c.ctx, 0, block.ResizeOptions{}); err != nil {
		return err
	}
	if c.p.data == c.p.end {
		return c.file.Resize(c.ctx, length, block.ResizeOptions{})
	}
	if err := c.file.Resize(c.ctx, data, block.ResizeOptions{}); err != nil {
		return err
	}
	mode := c.o.Prealloc
	if mode == block.PreallocMetadata {
		mode = block.PreallocOff
	}
	return c.file.Resize(c.ctx, length, block.ResizeOptions{Prealloc: mode, Progress: c.o.Progress})
}

// zeroDevice writes the zeros that preallocated clusters need on storage that does not start out as zeros, unless their
// entries can say so (version 3).
func (c *creator) zeroDevice(from, to int64) error {
	if c.o.Prealloc != block.PreallocFull && c.o.Version >= 3 {
		return nil
	}
	const step = 64 << 20
	for at := from; at < to; at += step {
		if err := c.file.Zero(c.ctx, at, min(step, to-at), 0); err != nil {
			return err
		}
		if c.o.Progress != nil {
			c.o.Progress(min(at+step, to)-from, to-from)
		}
	}
	return nil
}

// tables writes refcount table, refcount blocks, L1 and L2 tables.
func (c *creator) tables() error {
	g, p := c.p.g, &c.p
	n := (p.blocks - p.table) * g.ClusterSize() / 8
	err := c.words(p.table, n, func(i int64) uint64 {
		if i < p.l1-p.blocks {
			return uint64(layout.MakeRefTableEntry(g.ClusterOffset(p.blocks + i)))
		}
		return 0
	})
	if err != nil {
		return err
	}
	if err := c.refcountBlocks(); err != nil {
		return err
	}
	if p.guest == 0 {
		return c.zeroTable(int64(g.ClusterOffset(p.l1)), int64(g.ClusterOffset(p.l2)))
	}
	err = c.words(p.l1, p.l1Entries, func(i int64) uint64 {
		return uint64(layout.MakeL1Entry(g.ClusterOffset(p.l2+i), true))
	})
	if err != nil {
		return err
	}
	return c.l2Tables()
}

// zeroTable makes [from, to) read as zeros where the file does not already.
func (c *creator) zeroTable(from, to int64) error {
	if c.fresh || from == to {
		return nil
	}
	return c.file.Zero(c.ctx, from, to-from, 0)
}

// words writes n 8-byte entries from cluster at on.
func (c *creator) words(at, n int64, entry func(i int64) uint64) error {
	buf := make([]byte, 0, min(createChunk, n*8))
	off := int64(c.p.g.ClusterOffset(at))
	for i := int64(0); i < n; {
		buf = buf[:min(int64(cap(buf)), (n-i)*8)]
		for j := range len(buf) / 8 {
			layout.PutWord(buf, j, entry(i))
			i++
		}
		if err := c.file.Write(c.ctx, buf, off, 0); err != nil {
			return err
		}
		off += int64(len(buf))
	}
	return nil
}

// refcountBlocks gives every cluster of the plan the count 1.
func (c *creator) refcountBlocks() error {
	g, p := c.p.g, &c.p
	buf := make([]byte, g.ClusterSize())
	per := int64(g.RefcountsPerBlock())
	for i := p.blocks; i < p.l1; i++ {
		left := p.end - (i-p.blocks)*per
		switch {
		case left < per: // the last block
			clear(buf)
			setRefcounts(buf, g.RefcountOrder, 0, int(left), 1)
		case i == p.blocks:
			setRefcounts(buf, g.RefcountOrder, 0, int(per), 1)
		}
		if err := c.file.Write(c.ctx, buf, int64(g.ClusterOffset(i)), 0); err != nil {
			return err
		}
	}
	return nil
}

// l2Tables maps every guest cluster to its place. With extended L2 entries no subcluster is marked allocated, so that
// a backing file shows through (qcow2-format §10.4).
func (c *creator) l2Tables() error {
	g, p := c.p.g, &c.p
	zero := !c.fresh && c.o.Prealloc != block.PreallocFull && g.Version >= 3 && c.o.Data == nil
	entry := func(i int64) uint64 {
		switch {
		case i >= p.guest:
			return 0
		case c.o.Data != nil:
			return uint64(layout.MakeL2Entry(layout.HostOffset(i<<g.ClusterBits), true))
		}
		return uint64(layout.MakeL2Entry(g.ClusterOffset(p.data+i), true).WithZero(zero && !g.ExtendedL2))
	}
	n := p.l1Entries * int64(g.L2Entries())
	if !g.ExtendedL2 {
		return c.words(p.l2, n, entry)
	}
	bitmap := uint64(0)
	if zero && c.o.BackingFile == "" || c.o.DataFileRaw {
		bitmap = uint64(layout.BitmapAllZero)
	}
	if c.o.DataFileRaw {
		bitmap = uint64(layout.BitmapAllAlloc)
	}
	return c.words(p.l2, 2*n, func(i int64) uint64 {
		if i&1 == 0 {
			return entry(i / 2)
		}
		if i/2 >= p.guest {
			return 0
		}
		return bitmap
	})
}

// setRefcounts sets counters [from, to) of a block to v.
func setRefcounts(blk []byte, order uint8, from, to int, v uint64) {
	for ; from < to && from<<order&7 != 0; from++ {
		layout.SetRefcount(blk, order, from, v)
	}
	if per := max(1, 8>>order); order <= 3 && to-from >= per {
		layout.SetRefcount(blk, order, from, v)
		for i := 1; i < per; i++ {
			layout.SetRefcount(blk, order, from+i, v)
		}
		b := blk[from<<order>>3]
		n := (to - from) / per
		part := blk[from<<order>>3:][:n]
		for i := range part {
			part[i] = b
		}
		from += n * per
	}
	for ; from < to; from++ {
		layout.SetRefcount(blk, order, from, v)
	}
}
