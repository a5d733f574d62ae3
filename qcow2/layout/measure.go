package layout

// RefcountMetadata is the number of bytes that refcount blocks and table take
// for n counted clusters, themselves included (qcow2-format §14.1).
func (g Geometry) RefcountMetadata(n int64) int64 {
	perBlock, perTable := int64(g.RefcountsPerBlock()), g.ClusterSize()/8
	var blocks, table int64
	for {
		b := ceilDiv(n+table+blocks, perBlock)
		t := ceilDiv(b, perTable)
		if b == blocks && t == table {
			return (blocks + table) << g.ClusterBits
		}
		blocks, table = b, t
	}
}

func ceilDiv(a, b int64) int64 { return a/b + b2i(a%b != 0) }

func roundUp(n, unit int64) int64 { return ceilDiv(n, unit) * unit }

// MeasureInput describes a new image for Measure.
type MeasureInput struct {
	VirtualSize int64 // bytes
	Data        int64 // bytes of data that will be stored, rounded to clusters; at most the rounded virtual size
	FullData    bool  // count the whole disk as stored: preallocation falloc/full
	LUKS        int64 // bytes of the LUKS area, 0 without
}

// Measure returns the file sizes that a new image needs: for the data at hand,
// and when every cluster is allocated (qcow2-format §14.1). The error is of
// kind Unsupported when the disk is too large for the geometry.
func (g Geometry) Measure(in MeasureInput) (required, fullyAllocated int64, err error) {
	if in.VirtualSize < 0 || in.VirtualSize > g.MaxDiskSize() {
		return 0, 0, unsupportedf(-1, "virtual size", "%d bytes are above the limit of %d for this cluster size", in.VirtualSize, g.MaxDiskSize())
	}
	cs, entry := g.ClusterSize(), int64(g.L2EntrySize())
	v := roundUp(in.VirtualSize, cs)
	n2 := roundUp(v/cs, cs/entry)
	n1 := roundUp(n2*entry/cs, cs/8)
	meta := cs + n2*entry + n1*8
	refs := g.RefcountMetadata((meta + v) / cs)
	fullyAllocated = roundUp(in.LUKS, cs) + meta + refs + v
	data := in.Data
	if in.FullData {
		data = v
	}
	return fullyAllocated - v + data, fullyAllocated, nil
}

// MeasureBitmap names a bitmap for MeasureBitmaps.
type MeasureBitmap struct {
	NameLen         int
	GranularityBits uint8
}

// MeasureBitmaps returns the bytes that copies of persistent bitmaps take in
// an image of that size; 0 for none.
func (g Geometry) MeasureBitmaps(virtualSize int64, bitmaps []MeasureBitmap) int64 {
	cs := g.ClusterSize()
	var total, dir int64
	for _, b := range bitmaps {
		k := BitmapTableEntries(g, virtualSize, b.GranularityBits)
		total += k*cs + roundUp(8*k, cs)
		dir += roundUp(int64(bitmapFixed+b.NameLen), 8)
	}
	return total + roundUp(dir, cs)
}
