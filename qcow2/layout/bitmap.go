package layout

import "encoding/binary"

const bitmapFixed = 24 // bytes of a directory entry before extra data and name

// Flags of bitmap directory entries (qcow2-format §5.1).
const (
	BitmapInUse           = uint32(1) << 0
	BitmapAuto            = uint32(1) << 1
	BitmapExtraCompatible = uint32(1) << 2

	BitmapTypeDirty = 1
)

// BitmapDirEntry is an entry of the bitmap directory (qcow2-format §5.1).
type BitmapDirEntry struct {
	TableOffset     HostOffset
	TableSize       uint32 // entries
	Flags           uint32
	Type            uint8
	GranularityBits uint8
	Extra           []byte
	Name            string
}

// Granularity in bytes.
func (e *BitmapDirEntry) Granularity() int64 { return 1 << (e.GranularityBits & 63) }

// InUse reports whether somebody has or had the only current copy in memory.
func (e *BitmapDirEntry) InUse() bool { return e.Flags&BitmapInUse != 0 }

// Auto reports whether the bitmap records writes.
func (e *BitmapDirEntry) Auto() bool { return e.Flags&BitmapAuto != 0 }

// DecodeBitmapDirEntry decodes the entry at the start of b, without judging
// its fields, and returns the bytes up to the next entry. at is the file
// offset of b, for errors. The result shares no memory with b.
func DecodeBitmapDirEntry(b []byte, at HostOffset) (e BitmapDirEntry, n int, err error) {
	const what = "bitmap directory entry"
	if len(b) < bitmapFixed {
		return e, 0, corruptf(at, what, "cut off after %d bytes", len(b))
	}
	be := binary.BigEndian
	nameLen, extraLen := int64(be.Uint16(b[18:])), int64(be.Uint32(b[20:]))
	size := bitmapFixed + nameLen + extraLen
	if padded := (size + 7) &^ 7; padded > int64(len(b)) {
		return e, 0, corruptf(at, what, "an entry of %d bytes is cut off after %d", padded, len(b))
	}
	e = BitmapDirEntry{
		TableOffset:     HostOffset(be.Uint64(b)),
		TableSize:       be.Uint32(b[8:]),
		Flags:           be.Uint32(b[12:]),
		Type:            b[16],
		GranularityBits: b[17],
		Name:            string(b[bitmapFixed+extraLen : size]),
	}
	if extraLen > 0 {
		e.Extra = append([]byte(nil), b[bitmapFixed:bitmapFixed+extraLen]...)
	}
	return e, int((size + 7) &^ 7), nil
}

// Validate checks the fields of an entry. virtualSize is the disk's; at is the
// entry's file offset.
func (e *BitmapDirEntry) Validate(g Geometry, virtualSize int64, at HostOffset) error {
	const what = "bitmap directory entry"
	bytes := int64(e.TableSize) << g.ClusterBits // at most 2^32·2^21
	_, ok := RangeEnd(e.TableOffset, int64(e.TableSize)*8)
	switch {
	case e.Name == "" || len(e.Name) > MaxBitmapName:
		return corruptf(at, what, "a name of %d bytes is outside 1…%d", len(e.Name), MaxBitmapName)
	case e.TableOffset == 0 || !ok || !g.Aligned(e.TableOffset):
		return corruptf(at, what, "the table's offset %v is not valid", e.TableOffset)
	case e.TableSize == 0 || e.TableSize > MaxBitmapTable || bytes > MaxBitmapBytes:
		return corruptf(at, what, "a table of %d entries is outside the limits", e.TableSize)
	case e.Type != BitmapTypeDirty:
		return unsupportedf(at, what, "unknown bitmap type %d", e.Type)
	case e.GranularityBits < MinBitmapGranBits || e.GranularityBits > MaxBitmapGranBits:
		return corruptf(at, what, "a granularity of 2^%d is outside 2^%d…2^%d", e.GranularityBits, MinBitmapGranBits, MaxBitmapGranBits)
	case e.Flags&^(BitmapInUse|BitmapAuto) != 0:
		return unsupportedf(at, what, "unknown flags %#x", e.Flags&^(BitmapInUse|BitmapAuto))
	case len(e.Extra) > 0:
		return unsupportedf(at, what, "has %d bytes of unknown extra data", len(e.Extra))
	case !e.InUse() && BitmapTableEntries(g, virtualSize, e.GranularityBits) > int64(e.TableSize):
		return corruptf(at, what, "a table of %d entries is too short for a disk of %d bytes", e.TableSize, virtualSize)
	}
	return nil
}

// BitmapBytes is the length in bytes of the data of a bitmap for a disk of
// size bytes (size ≥ 0, granularity bits 9…31).
func BitmapBytes(size int64, granularityBits uint8) int64 {
	granules := size>>granularityBits + b2i(size&(1<<granularityBits-1) != 0)
	return granules/8 + b2i(granules%8 != 0)
}

// BitmapTableEntries is the number of table entries (clusters of data) of such a bitmap.
func BitmapTableEntries(g Geometry, size int64, granularityBits uint8) int64 {
	return g.Clusters(BitmapBytes(size, granularityBits))
}

// BitmapDirFixed is how many bytes of an entry tell its length.
const BitmapDirFixed = bitmapFixed

// maxBitmapEntry bounds what a decoder asks for: more than any legal entry has.
const maxBitmapEntry = 128 << 10

// BitmapDirDecoder decodes a directory entry by entry.
type BitmapDirDecoder struct {
	At    HostOffset // of the directory, for errors
	pos   int64
	names map[string]bool
}

// Need returns how many bytes Decode wants for the entry that starts with
// fixed (at least BitmapDirFixed bytes of the directory, or what is left).
func (d *BitmapDirDecoder) Need(fixed []byte) int64 {
	if len(fixed) < bitmapFixed {
		return int64(len(fixed))
	}
	be := binary.BigEndian
	n := bitmapFixed + int64(be.Uint16(fixed[18:])) + int64(be.Uint32(fixed[20:]))
	return min((n+7)&^7, maxBitmapEntry)
}

// Decode decodes the next entry, which is at the start of b, without judging
// its fields apart from a name that occurred before.
func (d *BitmapDirDecoder) Decode(b []byte) (BitmapDirEntry, error) {
	at := d.At + HostOffset(d.pos)
	e, n, err := DecodeBitmapDirEntry(b, at)
	if err != nil {
		return e, err
	}
	if d.names[e.Name] {
		return e, corruptf(at, "bitmap directory entry", "the name %q appears twice", e.Name)
	}
	if d.names == nil {
		d.names = map[string]bool{}
	}
	d.names[e.Name] = true
	d.pos += int64(n)
	return e, nil
}

// Finish checks that the entries decoded so far take exactly size bytes.
func (d *BitmapDirDecoder) Finish(size int64) error {
	if d.pos != size {
		return corruptf(d.At, "bitmap directory", "the entries have %d bytes, but the header says %d", d.pos, size)
	}
	return nil
}

// DecodeBitmapDirectory decodes exactly count entries from exactly the bytes
// of b, without judging the fields apart from duplicate names. at is the
// directory's file offset.
func DecodeBitmapDirectory(b []byte, at HostOffset, count int) ([]BitmapDirEntry, error) {
	d := BitmapDirDecoder{At: at}
	var dir []BitmapDirEntry
	for range count {
		e, err := d.Decode(b[d.pos:])
		if err != nil {
			return dir, err
		}
		dir = append(dir, e)
	}
	return dir, d.Finish(int64(len(b)))
}

// AppendBitmapDirEntry appends the encoded entry, padded to a multiple of 8.
func AppendBitmapDirEntry(b []byte, e *BitmapDirEntry) []byte {
	be := binary.BigEndian
	name := cut(e.Name, 65535)
	b = be.AppendUint64(b, uint64(e.TableOffset))
	b = be.AppendUint32(b, e.TableSize)
	b = be.AppendUint32(b, e.Flags)
	b = append(b, e.Type, e.GranularityBits)
	b = be.AppendUint16(b, uint16(len(name)))
	b = be.AppendUint32(b, uint32(len(e.Extra)))
	b = append(b, e.Extra...)
	b = append(b, name...)
	return append(b, make([]byte, -(bitmapFixed+len(e.Extra)+len(name))&7)...)
}

// EncodeBitmapDirectory composes the whole directory.
func EncodeBitmapDirectory(dir []BitmapDirEntry) []byte {
	var b []byte
	for i := range dir {
		b = AppendBitmapDirEntry(b, &dir[i])
	}
	return b
}

// BitmapTableEntry is an entry of a bitmap table (qcow2-format §5.2).
type BitmapTableEntry uint64

// BitmapAllOnes is the entry of a cluster of bitmap data that is all ones and not stored.
const BitmapAllOnes = BitmapTableEntry(1)

// MakeBitmapTableEntry composes an entry for data at off.
func MakeBitmapTableEntry(off HostOffset) BitmapTableEntry {
	return BitmapTableEntry(uint64(off) & tableOffsetMask)
}

// Offset of the data cluster; 0 if none is stored.
func (e BitmapTableEntry) Offset() HostOffset { return HostOffset(uint64(e) & tableOffsetMask) }

// AllOnes reports whether an entry without data stands for ones instead of zeros.
func (e BitmapTableEntry) AllOnes() bool { return e.Offset() == 0 && e&1 != 0 }

// Valid reports whether reserved bits are clear and the offset is aligned.
func (e BitmapTableEntry) Valid(g Geometry) bool {
	if uint64(e)&bitmapTableReservedMask != 0 || !g.Aligned(e.Offset()) {
		return false
	}
	return e.Offset() == 0 || e&1 == 0
}
