package qcow2

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"byre/block"
	"byre/qcow2/layout"
)

// DefaultClusterSize is what images get whose creator does not say.
const DefaultClusterSize = 64 << 10

// CreateOptions describe a new image. The zero value, with a Size, is what `create -f qcow2` makes: version 3, clusters
// of 64 KiB, refcounts of 16 bits, deflate, nothing preallocated.
type CreateOptions struct {
	Size        int64 // virtual size, bytes; rounded up to whole sectors
	Version     int   // 2 or 3; 0 = 3
	ClusterSize int64 // bytes, power of two in 512…2 MiB; 0 = DefaultClusterSize

	BackingFile   string // name as stored, "" = none; it is not opened
	BackingFormat string // needs BackingFile

	Prealloc        block.PreallocMode
	LazyRefcounts   bool
	RefcountBits    int // 1, 2, 4 … 64; 0 = 16
	ExtendedL2      bool
	CompressionType uint8 // layout.CompressionDeflate or CompressionZstd

	// DataFile is the name as stored of an external data file, and Data the open device, which is emptied and grown to
	// the virtual size. Both or neither.
	DataFile    string
	Data        *block.Device
	DataFileRaw bool // the data file alone is a valid raw image: implies metadata preallocation

	// Progress, if not nil, hears bytes done and the total of a long preallocation.
	Progress func(done, total int64)
}

// LayoutGeometry checks the options and returns the geometry of the image that they describe.
func (o CreateOptions) LayoutGeometry() (layout.Geometry, error) { return o.normalise() }

// normalise fills in defaults and refuses what the format cannot have (qcow2-format §1.9).
func (o *CreateOptions) normalise() (g layout.Geometry, err error) {
	invalid := func(format string, args ...any) error {
		return &block.Error{Kind: block.KindInvalid, Op: "create qcow2", Offset: block.NoOffset, Msg: fmt.Sprintf(format, args...)}
	}
	if o.Version == 0 {
		o.Version = 3
	}
	if o.ClusterSize == 0 {
		o.ClusterSize = DefaultClusterSize
	}
	if o.RefcountBits == 0 {
		o.RefcountBits = 16
	}
	switch {
	case o.Size < 0 || o.Size > 1<<63-layout.SectorSize:
		return g, invalid("a virtual size of %d bytes is not possible", o.Size)
	case o.Version != 2 && o.Version != 3:
		return g, invalid("version %d is not 2 or 3", o.Version)
	case o.ClusterSize < 1<<layout.MinClusterBits || o.ClusterSize > 1<<layout.MaxClusterBits || o.ClusterSize&(o.ClusterSize-1) != 0:
		return g, invalid("the cluster size must be a power of two between 512 bytes and 2 MiB, not %d", o.ClusterSize)
	case o.RefcountBits < 1 || o.RefcountBits > 64 || o.RefcountBits&(o.RefcountBits-1) != 0:
		return g, invalid("refcounts must have 1, 2, 4, 8, 16, 32 or 64 bits, not %d", o.RefcountBits)
	case o.BackingFormat != "" && o.BackingFile == "":
		return g, invalid("a backing format needs a backing file")
	case o.Prealloc != block.PreallocOff && o.BackingFile != "" && !o.ExtendedL2:
		return g, invalid("preallocation together with a backing file needs extended L2 entries")
	case o.CompressionType > layout.CompressionZstd:
		return g, invalid("unknown compression type %d", o.CompressionType)
	case (o.DataFile != "") != (o.Data != nil):
		return g, invalid("a data file needs both a name and an open device")
	case o.DataFileRaw && o.DataFile == "":
		return g, invalid("data_file_raw needs a data file")
	case o.DataFileRaw && o.BackingFile != "":
		return g, invalid("a backing file and data_file_raw exclude each other")
	}
	if o.Version == 2 {
		for _, f := range []struct {
			on   bool
			name string
		}{
			{o.LazyRefcounts, "lazy refcounts"}, {o.RefcountBits != 16, "a refcount width other than 16 bits"},
			{o.ExtendedL2, "extended L2 entries"}, {o.DataFile != "", "an external data file"},
			{o.CompressionType != layout.CompressionDeflate, "a compression type other than zlib"},
		} {
			if f.on {
				return g, invalid("%s needs version 3 (compat=1.1)", f.name)
			}
		}
	}
	g = layout.Geometry{
		ClusterBits:   uint8(bits.TrailingZeros64(uint64(o.ClusterSize))),
		RefcountOrder: uint8(bits.TrailingZeros(uint(o.RefcountBits))),
		Version:       uint8(o.Version),
		ExtendedL2:    o.ExtendedL2,
		DataFile:      o.DataFile != "",
	}
	if err := g.Validate(); err != nil {
		return g, invalid("%v", err)
	}
	o.Size = (o.Size + layout.SectorSize - 1) &^ (layout.SectorSize - 1)
	if o.Size > g.MaxDiskSize() {
		return g, invalid("a virtual size of %d bytes is above the limit of %d for clusters of %d bytes", o.Size, g.MaxDiskSize(), o.ClusterSize)
	}
	if o.DataFileRaw && o.Prealloc == block.PreallocOff {
		o.Prealloc = block.PreallocMetadata
	}
	return g, nil
}

// createPlan is where everything of a new image goes: header, refcount table, refcount blocks, L1 table, L2 tables,
// data, in this order and without gaps. Units are clusters.
type createPlan struct {
	g                                layout.Geometry
	table, blocks, l1, l2, data, end int64 // first cluster of each part; the header is cluster 0
	l1Entries, guest                 int64 // guest: clusters that are mapped
}

func planCreate(g layout.Geometry, o *CreateOptions) createPlan {
	p := createPlan{g: g, l1Entries: g.L1Needed(o.Size)}
	l1 := g.Clusters(p.l1Entries * 8)
	var l2, data int64
	if o.Prealloc != block.PreallocOff {
		p.guest = g.Clusters(o.Size)
		l2 = p.l1Entries
		if o.Data == nil {
			data = p.guest
		}
	}
	perBlock, perTable := int64(g.RefcountsPerBlock()), g.ClusterSize()/8
	table, blocks := int64(1), int64(1)
	for {
		n := 1 + table + blocks + l1 + l2 + data
		b := max(1, (n+perBlock-1)/perBlock)
		t := max(1, (b+perTable-1)/perTable)
		if b == blocks && t == table {
			break
		}
		blocks, table = b, t
	}
	p.table = 1
	p.blocks = p.table + table
	p.l1 = p.blocks + blocks
	p.l2 = p.l1 + l1
	p.data = p.l2 + l2
	p.end = p.data + data
	return p
}

// length is the length of the file: up to the last byte that means something.
func (p *createPlan) length() int64 {
	if p.l2 == p.end && p.l1 < p.l2 {
		return p.l1<<p.g.ClusterBits + p.l1Entries*8
	}
	return p.end << p.g.ClusterBits
}

// Create makes a new image on file: whatever the file holds is lost. The result is durable when Create returns; an
// interrupted or failed Create leaves no valid header behind. Neither file nor o.Data is closed.
//
// Options that contradict each other or the format are KindInvalid.
func Create(ctx context.Context, file *block.Device, o CreateOptions) error {
	g, err := o.normalise()
	if err != nil {
		return err
	}
	p := planCreate(g, &o)
	if o.Prealloc != block.PreallocOff && (p.end > g.MaxHostSize()>>g.ClusterBits || g.ClusterOffset(p.end) > layout.MaxTableOffset) {
		return block.Errorf(block.KindInvalid, "create qcow2", file.Path(), block.NoOffset,
			"preallocating %d bytes needs more host clusters than refcounts can describe", o.Size)
	}
	h := newHeader(g, &o, &p)
	cluster0, err := h.Encode()
	if err != nil {
		if errors.Is(err, layout.ErrNoRoom) {
			return block.Errorf(block.KindInvalid, "create qcow2", file.Path(), 0, "%w", err)
		}
		return &block.Error{Kind: block.KindInvalid, Op: "create qcow2", Path: file.Path(), Offset: block.NoOffset, Err: err}
	}
	c := &creator{ctx: ctx, file: file, o: &o, p: p, fresh: file.Geometry().ZeroInit && file.Geometry().Growable}
	for _, step := range []func() error{c.prepareData, c.space, c.tables} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := file.Flush(ctx); err != nil {
		return err
	}
	if err := file.Write(ctx, cluster0, 0, 0); err != nil {
		return err
	}
	return file.Flush(ctx)
}

func newHeader(g layout.Geometry, o *CreateOptions, p *createPlan) *layout.Header {
	h := &layout.Header{
		Version:               uint32(o.Version),
		ClusterBits:           uint32(g.ClusterBits),
		Size:                  uint64(o.Size),
		L1Size:                uint32(p.l1Entries),
		RefcountTableOffset:   g.ClusterOffset(p.table),
		RefcountTableClusters: uint32(p.blocks - p.table),
		RefcountOrder:         uint32(g.RefcountOrder),
		CompressionType:       o.CompressionType,
		BackingFile:           o.BackingFile,
	}
	if p.l1Entries > 0 {
		h.L1TableOffset = g.ClusterOffset(p.l1)
	}
	h.BackingFormat, h.DataFile = o.BackingFormat, o.DataFile
	h.FeatureNames = layout.StandardFeatureNames(h.Version, g.ClusterSize())
	set := func(on bool, field *uint64, bit uint64) {
		if on {
			*field |= bit
		}
	}
	set(o.DataFile != "", &h.Incompatible, layout.IncompatDataFile)
	set(o.CompressionType != layout.CompressionDeflate, &h.Incompatible, layout.IncompatCompression)
	set(o.ExtendedL2, &h.Incompatible, layout.IncompatExtendedL2)
	set(o.LazyRefcounts, &h.Compatible, layout.CompatLazyRefcounts)
	set(o.DataFileRaw, &h.Autoclear, layout.AutoclearRawData)
	return h
}
