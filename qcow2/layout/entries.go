package layout

import (
	"encoding/binary"
	"math/bits"
)

// Masks of table entries (qcow2-format Appendix B).
const (
	flagCopied     = uint64(1) << 63
	flagCompressed = uint64(1) << 62
	flagZero       = uint64(1) << 0

	tableOffsetMask = uint64(0x00fffffffffffe00)
	l1ReservedMask  = uint64(0x7f000000000001ff)
	l2ReservedMask  = uint64(0x3f000000000001fe)

	refTableOffsetMask   = uint64(0xfffffffffffffe00)
	refTableReservedMask = uint64(0x00000000000001ff)

	bitmapTableReservedMask = uint64(0xff000000000001fe)
)

// L1Entry is an entry of an L1 table (qcow2-format §3.2).
type L1Entry uint64

// MakeL1Entry composes an entry. off must be cluster aligned and below 2^56.
func MakeL1Entry(off HostOffset, copied bool) L1Entry {
	e := uint64(off) & tableOffsetMask
	if copied {
		e |= flagCopied
	}
	return L1Entry(e)
}

// Offset of the L2 table; 0 if there is none. It may be unaligned.
func (e L1Entry) Offset() HostOffset { return HostOffset(uint64(e) & tableOffsetMask) }

// Copied reports the COPIED flag: in the active L1, the L2 table's refcount is exactly 1.
func (e L1Entry) Copied() bool { return uint64(e)&flagCopied != 0 }

// WithCopied returns e with the COPIED flag set or cleared.
func (e L1Entry) WithCopied(copied bool) L1Entry {
	return L1Entry(setFlag(uint64(e), flagCopied, copied))
}

// Reserved returns the reserved bits that are set.
func (e L1Entry) Reserved() uint64 { return uint64(e) & l1ReservedMask }

// L2Entry is the first (or only) word of an L2 entry (qcow2-format §3.3).
type L2Entry uint64

// MakeL2Entry composes a standard descriptor of an allocated cluster. off must
// be cluster aligned and below 2^56.
func MakeL2Entry(off HostOffset, copied bool) L2Entry {
	return L2Entry(setFlag(uint64(off)&tableOffsetMask, flagCopied, copied))
}

// ZeroPlain is the standard (not extended) entry of a cluster that reads as zeros and owns nothing.
const ZeroPlain = L2Entry(flagZero)

// Compressed reports whether the entry is a compressed descriptor.
func (e L2Entry) Compressed() bool { return uint64(e)&flagCompressed != 0 }

// Offset of the host cluster of a standard descriptor; 0 if there is none. It may be unaligned.
func (e L2Entry) Offset() HostOffset { return HostOffset(uint64(e) & tableOffsetMask) }

// Copied reports the COPIED flag. Only meaningful in L2 tables reachable from the active L1.
func (e L2Entry) Copied() bool { return uint64(e)&flagCopied != 0 }

// WithCopied returns e with the COPIED flag set or cleared.
func (e L2Entry) WithCopied(copied bool) L2Entry {
	return L2Entry(setFlag(uint64(e), flagCopied, copied))
}

// Zero reports the "reads as zeros" flag; meaningless in compressed and extended entries.
func (e L2Entry) Zero() bool { return uint64(e)&flagZero != 0 }

// WithZero returns e with the "reads as zeros" flag set or cleared.
func (e L2Entry) WithZero(zero bool) L2Entry { return L2Entry(setFlag(uint64(e), flagZero, zero)) }

// Reserved returns the reserved bits that are set in a standard descriptor.
// With extended L2 entries bit 0 is not counted: readers ignore it there.
func (e L2Entry) Reserved() uint64 {
	if e.Compressed() {
		return 0
	}
	return uint64(e) & l2ReservedMask
}

func setFlag(v, flag uint64, on bool) uint64 {
	if on {
		return v | flag
	}
	return v &^ flag
}

// ClusterType says what a cluster or subcluster reads as and what it owns.
type ClusterType uint8

// The types of qcow2-format §3.3 and §3.7.
const (
	// TypeUnallocated: not present here; the backing file, else zeros, show through.
	TypeUnallocated ClusterType = iota
	// TypeUnallocatedAlloc: as TypeUnallocated, but a host cluster is owned (extended L2 only).
	TypeUnallocatedAlloc
	// TypeZeroPlain: zeros, nothing owned.
	TypeZeroPlain
	// TypeZeroAlloc: zeros, a host cluster is owned.
	TypeZeroAlloc
	// TypeNormal: data in the host cluster.
	TypeNormal
	// TypeCompressed: the whole cluster is one compressed stream.
	TypeCompressed
	// TypeInvalid: the entry contradicts the format; access is corruption.
	TypeInvalid
)

var typeNames = [...]string{"unallocated", "unallocated with a host cluster", "zero", "zero with a host cluster", "normal", "compressed", "invalid"}

func (t ClusterType) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "invalid"
}

// OwnsHost reports whether the type has a host cluster (TypeCompressed has a stream instead: false).
func (t ClusterType) OwnsHost() bool {
	return t == TypeNormal || t == TypeZeroAlloc || t == TypeUnallocatedAlloc
}

// ClusterType decodes a standard (not extended) entry. A zero flag in a version 2 image is TypeInvalid.
func (g Geometry) ClusterType(e L2Entry) ClusterType {
	switch off := e.Offset(); {
	case e.Compressed():
		return TypeCompressed
	case e.Zero() && g.Version == 2:
		return TypeInvalid
	case e.Zero() && off != 0:
		return TypeZeroAlloc
	case e.Zero():
		return TypeZeroPlain
	case off == 0 && !(g.DataFile && e.Copied()):
		return TypeUnallocated
	}
	return TypeNormal
}

// L2Bitmap is the second word of an extended L2 entry: bit i says that
// subcluster i is allocated, bit 32+i that it reads as zeros.
type L2Bitmap uint64

// Bitmaps of uniform clusters.
const (
	BitmapAllAlloc = L2Bitmap(0x00000000ffffffff)
	BitmapAllZero  = L2Bitmap(0xffffffff00000000)
)

// Alloc and Zero return the two halves.
func (b L2Bitmap) Alloc() uint32 { return uint32(b) }

// Zero returns the "reads as zeros" half.
func (b L2Bitmap) Zero() uint32 { return uint32(b >> 32) }

// WithAlloc marks subclusters [from, to) allocated (and not zero).
func (b L2Bitmap) WithAlloc(from, to int) L2Bitmap {
	m := L2Bitmap(subMask(from, to))
	return (b | m) &^ (m << 32)
}

// WithZero marks subclusters [from, to) as reading zeros (and not allocated).
func (b L2Bitmap) WithZero(from, to int) L2Bitmap {
	m := L2Bitmap(subMask(from, to))
	return (b | m<<32) &^ m
}

// WithNone marks subclusters [from, to) as neither allocated nor zero.
func (b L2Bitmap) WithNone(from, to int) L2Bitmap {
	m := L2Bitmap(subMask(from, to))
	return b &^ (m | m<<32)
}

// subMask has bits [from, to) set, 0 ≤ from ≤ to ≤ 32.
func subMask(from, to int) uint32 { return uint32((uint64(1)<<to - 1) &^ (uint64(1)<<from - 1)) }

// ValidExtended reports whether the two words of an extended entry agree
// (qcow2-format §3.7). Validity is judged on the whole bitmap. A bitmap beside
// a compressed descriptor is ignored by readers and not judged here.
func (g Geometry) ValidExtended(e L2Entry, b L2Bitmap) bool {
	switch {
	case e.Compressed():
		return true
	case b.Alloc()&b.Zero() != 0:
		return false
	case b.Alloc() != 0 && !g.hasHost(e):
		return false
	}
	return true
}

// hasHost reports whether a standard descriptor names a host cluster; offset 0
// does so in an external data file when COPIED is set.
func (g Geometry) hasHost(e L2Entry) bool {
	return e.Offset() != 0 || g.DataFile && e.Copied()
}

// SubclusterRun decodes subcluster sc (0…31) of an extended entry and returns
// how many subclusters from sc on share its type. Compressed and invalid
// entries make a run to the end of the cluster.
func (g Geometry) SubclusterRun(e L2Entry, b L2Bitmap, sc int) (t ClusterType, n int) {
	rest := Subclusters - sc
	if e.Compressed() {
		return TypeCompressed, rest
	}
	if !g.ValidExtended(e, b) {
		return TypeInvalid, rest
	}
	alloc, zero := b.Alloc()>>sc, b.Zero()>>sc
	host := g.hasHost(e)
	switch {
	case alloc&1 != 0:
		return TypeNormal, min(rest, bits.TrailingZeros32(^alloc))
	case zero&1 != 0:
		n = min(rest, bits.TrailingZeros32(^zero))
		if host {
			return TypeZeroAlloc, n
		}
		return TypeZeroPlain, n
	}
	n = min(rest, bits.TrailingZeros32(alloc|zero))
	if host {
		return TypeUnallocatedAlloc, n
	}
	return TypeUnallocated, n
}

// Compressed is a decoded compressed descriptor: the stream starts at Offset
// (any byte) and is at most Size bytes long; its last sector may lie partly
// beyond EOF (qcow2-format §3.6).
type Compressed struct {
	Offset HostOffset
	Size   int64
}

// End is the first byte behind the last sector of the stream.
func (c Compressed) End() HostOffset { return c.Offset + HostOffset(c.Size) }

// DecodeCompressed decodes a compressed descriptor. ok is false if offset bits
// from 56 up are set.
func (g Geometry) DecodeCompressed(e L2Entry) (c Compressed, ok bool) {
	x := g.compressedShift()
	off := uint64(e) & (uint64(1)<<x - 1)
	if x > 62 { // cannot happen with 9 ≤ ClusterBits
		return Compressed{}, false
	}
	n := int64(uint64(e) >> x & (uint64(1)<<(g.ClusterBits-8) - 1))
	return Compressed{Offset: HostOffset(off), Size: (n+1)*SectorSize - int64(off%SectorSize)}, off>>56 == 0
}

// MakeCompressed composes the descriptor of a stream of length bytes (1 ≤
// length) at off. ok is false if the descriptor cannot hold it.
func (g Geometry) MakeCompressed(off HostOffset, length int64) (e L2Entry, ok bool) {
	if off < 0 || off >= g.MaxCompressedOffset() || length < 1 || length > 2*g.ClusterSize() {
		return 0, false
	}
	n := (int64(off)+length-1)/SectorSize - int64(off)/SectorSize
	if n >= 1<<(g.ClusterBits-8) {
		return 0, false
	}
	return L2Entry(flagCompressed | uint64(n)<<g.compressedShift() | uint64(off)), true
}

// RefTableEntry is an entry of the refcount table (qcow2-format §2.1).
type RefTableEntry uint64

// MakeRefTableEntry composes an entry; off must be cluster aligned.
func MakeRefTableEntry(off HostOffset) RefTableEntry {
	return RefTableEntry(uint64(off) & refTableOffsetMask)
}

// Offset of the refcount block; 0 if there is none. It may be unaligned, or negative when above 2^63-1.
func (e RefTableEntry) Offset() HostOffset { return HostOffset(uint64(e) & refTableOffsetMask) }

// Reserved returns the reserved bits that are set.
func (e RefTableEntry) Reserved() uint64 { return uint64(e) & refTableReservedMask }

// Word reads entry i of a table of 8-byte entries. i must be inside.
func Word(table []byte, i int) uint64 { return binary.BigEndian.Uint64(table[i*8:]) }

// PutWord writes entry i of a table of 8-byte entries. i must be inside.
func PutWord(table []byte, i int, v uint64) { binary.BigEndian.PutUint64(table[i*8:], v) }

// ExtendedEntry reads entry i of a table of extended L2 entries. i must be inside.
func ExtendedEntry(table []byte, i int) (L2Entry, L2Bitmap) {
	b := table[i*16 : i*16+16]
	return L2Entry(binary.BigEndian.Uint64(b)), L2Bitmap(binary.BigEndian.Uint64(b[8:]))
}

// PutExtendedEntry writes entry i of a table of extended L2 entries. i must be inside.
func PutExtendedEntry(table []byte, i int, e L2Entry, m L2Bitmap) {
	b := table[i*16 : i*16+16]
	binary.BigEndian.PutUint64(b, uint64(e))
	binary.BigEndian.PutUint64(b[8:], uint64(m))
}
