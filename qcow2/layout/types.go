package layout

import "fmt"

// HostOffset is a byte offset in the image file, or, for guest data of images
// with an external data file, in that data file. A HostOffset that was read
// from an image may be negative (it was ≥ 2^63 on disk) until validated.
type HostOffset int64

// GuestOffset is a byte offset in the virtual disk. The VM state lies beyond
// the disk's end in the same space (qcow2-format §4.2).
type GuestOffset int64

func (o HostOffset) String() string  { return fmt.Sprintf("0x%x", uint64(o)) }
func (o GuestOffset) String() string { return fmt.Sprintf("0x%x", uint64(o)) }

// SectorSize is the unit of sizes and of compressed extents in the format.
const SectorSize = 512

// Format constants (qcow2-format §1, Appendix B).
const (
	Magic = 0x514649fb // "QFI\xfb"

	HeaderSizeV2    = 72  // bytes of the fixed header of version 2
	HeaderSizeV3Min = 104 // smallest header_length of version 3
	HeaderSizeV3    = 112 // header_length that is written: up to and with compression_type and its padding

	MinClusterBits    = 9
	MaxClusterBits    = 21
	MaxRefcountOrder  = 6
	DefaultRefcounts  = 4 // refcount_order of version 2, and the default of version 3
	MaxBackingName    = 1023
	MaxBackingFormat  = 15
	MaxL1Bytes        = 32 << 20
	MaxL1Entries      = MaxL1Bytes / 8
	MaxRefTableBytes  = 8 << 20
	MaxSnapshots      = 65536
	MaxSnapshotTable  = 64 << 20 // bytes
	MaxSnapshotExtra  = 1024     // bytes of extra data per snapshot
	MaxBitmaps        = 65535
	MaxBitmapDir      = 1024 * MaxBitmaps // bytes
	MaxBitmapTable    = 0x8000000         // entries
	MaxBitmapBytes    = 512 << 20         // bytes of bitmap data of one bitmap
	MaxBitmapName     = 1023
	MinBitmapGranBits = 9
	MaxBitmapGranBits = 31

	// MaxTableOffset bounds host offsets that fit L1, L2 and bitmap table entries: 2^56 (exclusive).
	MaxTableOffset = HostOffset(1) << 56

	Subclusters = 32 // per cluster, with extended L2 entries
)

// Encryption methods of the header.
const (
	CryptNone = 0
	CryptAES  = 1
	CryptLUKS = 2
)

// Compression types of the header.
const (
	CompressionDeflate = 0
	CompressionZstd    = 1
)

// CompressionName is the name of a compression type as options and info spell it.
func CompressionName(t uint8) string {
	switch t {
	case CompressionDeflate:
		return "zlib"
	case CompressionZstd:
		return "zstd"
	}
	return fmt.Sprintf("unknown (%d)", t)
}

// Feature bits (qcow2-format §1.3).
const (
	IncompatDirty       = uint64(1) << 0
	IncompatCorrupt     = uint64(1) << 1
	IncompatDataFile    = uint64(1) << 2
	IncompatCompression = uint64(1) << 3
	IncompatExtendedL2  = uint64(1) << 4
	IncompatKnown       = IncompatDirty | IncompatCorrupt | IncompatDataFile | IncompatCompression | IncompatExtendedL2

	CompatLazyRefcounts = uint64(1) << 0
	CompatKnown         = CompatLazyRefcounts

	AutoclearBitmaps = uint64(1) << 0
	AutoclearRawData = uint64(1) << 1
	AutoclearKnown   = AutoclearBitmaps | AutoclearRawData
)

// Kind says what an Error means for the image.
type Kind uint8

const (
	// Corrupt: the bytes contradict the format.
	Corrupt Kind = iota
	// Unsupported: the bytes may be right, but use something this codec does not know or exceed its limits.
	Unsupported
	// NotQcow2: no qcow2 magic.
	NotQcow2
)

// Error is what decoding and validation return: what is wrong, and where.
type Error struct {
	Kind   Kind
	Offset HostOffset // of the offending field in the image file (in the decoded buffer, where a function says so); -1 if unknown
	What   string     // the structure or field, e.g. "header field l1_size"
	Msg    string     // what is wrong with it
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.What + ": " + e.Msg
	}
	return fmt.Sprintf("%s at offset %d: %s", e.What, int64(e.Offset), e.Msg)
}

func corruptf(off HostOffset, what, format string, args ...any) *Error {
	return &Error{Kind: Corrupt, Offset: off, What: what, Msg: fmt.Sprintf(format, args...)}
}

func unsupportedf(off HostOffset, what, format string, args ...any) *Error {
	return &Error{Kind: Unsupported, Offset: off, What: what, Msg: fmt.Sprintf(format, args...)}
}
