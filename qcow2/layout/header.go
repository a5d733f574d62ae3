package layout

import (
	"encoding/binary"
	"fmt"
)

// Header is the content of host cluster 0: the fixed fields, the extensions
// and the backing file name (qcow2-format §1). Fields are as stored; nothing
// is normalised, so that what is not understood survives a rewrite.
type Header struct {
	Version               uint32
	BackingFileOffset     HostOffset
	BackingFileSize       uint32
	ClusterBits           uint32
	Size                  uint64 // virtual size as stored; see VirtualSize
	CryptMethod           uint32
	L1Size                uint32 // entries
	L1TableOffset         HostOffset
	RefcountTableOffset   HostOffset
	RefcountTableClusters uint32
	NbSnapshots           uint32
	SnapshotsOffset       HostOffset

	// Version 3 only; a decoded version 2 header has zeros and RefcountOrder 4.
	Incompatible    uint64
	Compatible      uint64
	Autoclear       uint64
	RefcountOrder   uint32
	HeaderLength    uint32 // 72 in version 2
	CompressionType uint8
	Padding         [7]byte // bytes 105…111, kept as they are
	UnknownFields   []byte  // bytes from 112 up to HeaderLength, kept as they are

	Extensions
	BackingFile string // name, "" if BackingFileOffset is 0
}

// ClusterSize in bytes; valid after DecodeHeader succeeded.
func (h *Header) ClusterSize() int64 { return 1 << h.ClusterBits }

// VirtualSize is Size rounded down to whole sectors.
func (h *Header) VirtualSize() int64 { return int64(h.Size &^ (SectorSize - 1)) }

// Geometry of the image; valid after Validate succeeded.
func (h *Header) Geometry() Geometry {
	return Geometry{
		ClusterBits:   uint8(h.ClusterBits),
		RefcountOrder: uint8(h.RefcountOrder),
		Version:       uint8(h.Version),
		ExtendedL2:    h.Incompatible&IncompatExtendedL2 != 0,
		DataFile:      h.Incompatible&IncompatDataFile != 0,
	}
}

// HasIncompatible, HasCompatible and HasAutoclear test feature bits.
func (h *Header) HasIncompatible(bit uint64) bool { return h.Incompatible&bit != 0 }

// HasCompatible tests a compatible feature bit.
func (h *Header) HasCompatible(bit uint64) bool { return h.Compatible&bit != 0 }

// HasAutoclear tests an autoclear feature bit.
func (h *Header) HasAutoclear(bit uint64) bool { return h.Autoclear&bit != 0 }

// Cluster0Size tells from the first bytes of a file (at least 24, if the file
// has them) how many bytes cluster 0 has, so that a caller knows how much to
// read for ParseHeader. It checks magic, version and cluster_bits.
func Cluster0Size(first []byte) (int, error) {
	if len(first) < 4 || binary.BigEndian.Uint32(first) != Magic {
		return 0, &Error{Kind: NotQcow2, Offset: 0, What: "header field magic", Msg: "not a qcow2 image"}
	}
	if len(first) < 24 {
		return 0, corruptf(0, "header", "the file ends after %d bytes, inside the header", len(first))
	}
	if v := binary.BigEndian.Uint32(first[4:]); v != 2 && v != 3 {
		return 0, unsupportedf(4, "header field version", "unsupported qcow2 version %d", v)
	}
	c := binary.BigEndian.Uint32(first[20:])
	if c < MinClusterBits || c > MaxClusterBits {
		return 0, unsupportedf(20, "header field cluster_bits", "cluster size 2^%d is outside 2^%d…2^%d", c, MinClusterBits, MaxClusterBits)
	}
	return 1 << c, nil
}

// DecodeFixed decodes the fixed fields and nothing else. cluster0 holds the
// file from offset 0 on, up to the cluster size or EOF. Only what decoding
// needs is checked: magic, version, cluster_bits, header_length, and that the
// file holds the whole fixed header.
func DecodeFixed(cluster0 []byte) (*Header, error) {
	cs, err := Cluster0Size(cluster0)
	if err != nil {
		return nil, err
	}
	if len(cluster0) > cs {
		cluster0 = cluster0[:cs]
	}
	if len(cluster0) < HeaderSizeV2 {
		return nil, corruptf(0, "header", "the file ends after %d bytes, inside the header", len(cluster0))
	}
	be := binary.BigEndian
	b := cluster0
	h := &Header{
		Version:               be.Uint32(b[4:]),
		BackingFileOffset:     HostOffset(be.Uint64(b[8:])),
		BackingFileSize:       be.Uint32(b[16:]),
		ClusterBits:           be.Uint32(b[20:]),
		Size:                  be.Uint64(b[24:]),
		CryptMethod:           be.Uint32(b[32:]),
		L1Size:                be.Uint32(b[36:]),
		L1TableOffset:         HostOffset(be.Uint64(b[40:])),
		RefcountTableOffset:   HostOffset(be.Uint64(b[48:])),
		RefcountTableClusters: be.Uint32(b[56:]),
		NbSnapshots:           be.Uint32(b[60:]),
		SnapshotsOffset:       HostOffset(be.Uint64(b[64:])),
		RefcountOrder:         DefaultRefcounts,
		HeaderLength:          HeaderSizeV2,
	}
	if h.Version == 2 {
		return h, nil
	}
	return h, h.decodeV3(b, cs)
}

// decodeV3 decodes the fields that version 3 added.
func (h *Header) decodeV3(b []byte, clusterSize int) error {
	be := binary.BigEndian
	if len(b) < HeaderSizeV3Min {
		return corruptf(0, "header", "the file ends after %d bytes, inside the header", len(b))
	}
	h.Incompatible = be.Uint64(b[72:])
	h.Compatible = be.Uint64(b[80:])
	h.Autoclear = be.Uint64(b[88:])
	h.RefcountOrder = be.Uint32(b[96:])
	h.HeaderLength = be.Uint32(b[100:])
	switch n := h.HeaderLength; {
	case n < HeaderSizeV3Min:
		return corruptf(100, "header field header_length", "%d is too short for version 3", n)
	case int64(n) > int64(clusterSize):
		return corruptf(100, "header field header_length", "%d exceeds the cluster size %d", n, clusterSize)
	case n%8 != 0:
		return corruptf(100, "header field header_length", "%d is no multiple of 8", n)
	case int64(n) > int64(len(b)):
		return corruptf(0, "header", "the file ends after %d bytes, inside the header", len(b))
	}
	if h.HeaderLength > HeaderSizeV3Min {
		h.CompressionType = b[104]
		copy(h.Padding[:], b[105:112])
		h.UnknownFields = append([]byte(nil), b[112:h.HeaderLength]...)
	}
	return nil
}

// Mode tells how forgiving validation is.
type Mode uint8

const (
	// Strict is for every ordinary open.
	Strict Mode = iota
	// CheckMode tolerates a missing refcount table and a broken snapshot
	// table, so that check can repair them (qcow2-format §1.2).
	CheckMode
)

// ParseHeader decodes and validates cluster 0: fixed fields, extensions and
// backing file name. cluster0 holds the file from offset 0 on, up to the
// cluster size (see Cluster0Size) or EOF, whichever comes first; what lies
// past EOF counts as absent. The result shares no memory with the argument.
//
// Errors are *Error. Unknown incompatible feature bits are refused by name.
func ParseHeader(cluster0 []byte, mode Mode) (*Header, error) {
	h, err := DecodeFixed(cluster0)
	if err != nil {
		return nil, err
	}
	if int64(len(cluster0)) > h.ClusterSize() {
		cluster0 = cluster0[:h.ClusterSize()]
	}
	if err := h.validateFeatures(cluster0); err != nil {
		return nil, err
	}
	if err := h.Validate(mode); err != nil {
		return nil, err
	}
	if h.Extensions, err = parseExtensions(h, cluster0); err != nil {
		return nil, err
	}
	if h.BackingFileOffset == 0 {
		return h, nil
	}
	if h.BackingFile, err = backingName(h, cluster0); err != nil {
		return nil, err
	}
	return h, nil
}

// backingName extracts the backing file name.
func backingName(h *Header, cluster0 []byte) (string, error) {
	start, n := int64(h.BackingFileOffset), int64(h.BackingFileSize)
	switch {
	case n > MaxBackingName || start+n > h.ClusterSize():
		return "", corruptf(16, "header field backing_file_size", "a backing file name of %d bytes at offset %d is too long", n, start)
	case start+n > int64(len(cluster0)):
		return "", corruptf(h.BackingFileOffset, "backing file name", "cut off by the end of the file")
	}
	return string(cluster0[start : start+n]), nil
}

// validateFeatures checks the backing file offset (it bounds the extensions)
// and the feature bits that forbid to go on.
func (h *Header) validateFeatures(cluster0 []byte) error {
	if h.BackingFileOffset < 0 || int64(h.BackingFileOffset) > h.ClusterSize() {
		return corruptf(8, "header field backing_file_offset", "%v lies outside the header cluster", h.BackingFileOffset)
	}
	if h.BackingFileOffset != 0 && int64(h.BackingFileOffset) < int64(h.HeaderLength) {
		return corruptf(8, "header field backing_file_offset", "%v lies inside the header", h.BackingFileOffset)
	}
	if unknown := h.Incompatible &^ IncompatKnown; unknown != 0 {
		// The names come from a table that may itself be damaged: then do without.
		ext, _ := parseExtensions(h, cluster0)
		return unsupportedf(72, "header field incompatible_features", "unsupported feature(s): %s", ext.describe(FeatureIncompatible, unknown))
	}
	if h.CompressionType > CompressionZstd {
		return unsupportedf(104, "header field compression_type", "unknown compression type %d", h.CompressionType)
	}
	if (h.CompressionType != CompressionDeflate) != h.HasIncompatible(IncompatCompression) {
		return corruptf(104, "header field compression_type", "type %d contradicts the compression type feature bit", h.CompressionType)
	}
	return nil
}

// Validate checks the fixed fields against the limits of qcow2-format §1.2,
// apart from what DecodeFixed and ParseHeader check themselves.
func (h *Header) Validate(mode Mode) error {
	if h.HasIncompatible(IncompatExtendedL2) && h.ClusterSize()/Subclusters < SectorSize {
		return corruptf(20, "header field cluster_bits", "extended L2 entries need clusters of at least %d bytes", SectorSize*Subclusters)
	}
	if h.RefcountOrder > MaxRefcountOrder {
		return unsupportedf(96, "header field refcount_order", "%d is above %d", h.RefcountOrder, MaxRefcountOrder)
	}
	if h.CryptMethod > CryptLUKS {
		return unsupportedf(32, "header field crypt_method", "unknown encryption method %d", h.CryptMethod)
	}
	if h.HasAutoclear(AutoclearRawData) && !h.HasIncompatible(IncompatDataFile) && h.Version >= 3 {
		return corruptf(88, "header field autoclear_features", "raw external data is set without an external data file")
	}
	if err := h.validateRefcountTable(mode); err != nil {
		return err
	}
	if mode == Strict {
		if err := h.validateSnapshots(); err != nil {
			return err
		}
	}
	return h.validateL1()
}

func (h *Header) validateRefcountTable(mode Mode) error {
	g := h.Geometry()
	switch n := int64(h.RefcountTableClusters); {
	case n == 0 && mode == Strict:
		return corruptf(56, "header field refcount_table_clusters", "the image has no refcount table")
	case n > g.MaxRefcountTableClusters():
		return unsupportedf(56, "header field refcount_table_clusters", "a refcount table of %d clusters is above the limit of %d bytes", n, MaxRefTableBytes)
	}
	return h.checkTableOffset(48, "refcount_table_offset", h.RefcountTableOffset, int64(h.RefcountTableClusters)<<h.ClusterBits)
}

func (h *Header) validateSnapshots() error {
	if h.NbSnapshots > MaxSnapshots {
		return unsupportedf(60, "header field nb_snapshots", "%d snapshots are above the limit of %d", h.NbSnapshots, MaxSnapshots)
	}
	return h.checkTableOffset(64, "snapshots_offset", h.SnapshotsOffset, int64(h.NbSnapshots)*snapshotFixed)
}

func (h *Header) validateL1() error {
	if h.L1Size > MaxL1Entries {
		return unsupportedf(36, "header field l1_size", "an L1 table of %d entries is above the limit of %d", h.L1Size, MaxL1Entries)
	}
	g := h.Geometry()
	if h.Size > 1<<63-1 || h.VirtualSize() > g.MaxDiskSize() {
		return unsupportedf(24, "header field size", "a virtual size of %d bytes is above the limit of %d for this cluster size", h.Size, g.MaxDiskSize())
	}
	if need := g.L1Needed(h.VirtualSize()); int64(h.L1Size) < need {
		return corruptf(36, "header field l1_size", "an L1 table of %d entries is too small for the virtual size, which needs %d", h.L1Size, need)
	}
	if err := h.checkTableOffset(40, "l1_table_offset", h.L1TableOffset, int64(h.L1Size)*8); err != nil {
		return err
	}
	if h.L1Size > 0 && h.L1TableOffset == 0 {
		return corruptf(40, "header field l1_table_offset", "the L1 table lies in the header")
	}
	return nil
}

func (h *Header) checkTableOffset(at HostOffset, name string, off HostOffset, length int64) error {
	if int64(off)&(h.ClusterSize()-1) != 0 {
		return corruptf(at, "header field "+name, "%v is not aligned to clusters", off)
	}
	if _, ok := RangeEnd(off, length); !ok {
		return corruptf(at, "header field "+name, "%v is out of range", off)
	}
	return nil
}

// Region is a piece of the image file that a header field points to.
type Region struct {
	Name   string // e.g. "active L1 table"
	Offset HostOffset
	Length int64
}

// Overlaps reports whether the region intersects [off, off+length); empty ranges never do.
func (r Region) Overlaps(off HostOffset, length int64) bool {
	return r.Length > 0 && length > 0 && off < r.Offset+HostOffset(r.Length) && r.Offset < off+HostOffset(length)
}

// Regions lists what the fixed header occupies or points to with a known
// length: header cluster, active L1 table, refcount table, and the LUKS area
// and bitmap directory if there are any. The snapshot table has no length in
// the header. h must be valid.
func (h *Header) Regions() []Region {
	r := []Region{
		{"header", 0, h.ClusterSize()},
		{"active L1 table", h.L1TableOffset, int64(h.L1Size) * 8},
		{"refcount table", h.RefcountTableOffset, int64(h.RefcountTableClusters) << h.ClusterBits},
	}
	if h.Crypto != nil {
		r = append(r, Region{"encryption header", h.Crypto.Offset, h.Crypto.Length})
	}
	if h.Bitmaps != nil && h.HasAutoclear(AutoclearBitmaps) {
		r = append(r, Region{"bitmap directory", h.Bitmaps.DirectoryOffset, h.Bitmaps.DirectorySize})
	}
	return r
}

// OverlapError returns an error for the first two regions of the header that
// lie in one another, or nil. Reading such an image may still be possible;
// writing it is not. h must be valid.
func (h *Header) OverlapError() error {
	regions := h.Regions()
	for i, a := range regions {
		for _, b := range regions[:i] {
			if b.Overlaps(a.Offset, a.Length) {
				return corruptf(a.Offset, a.Name, "overlaps the %s at offset %d", b.Name, int64(b.Offset))
			}
		}
	}
	return nil
}

func (h *Header) String() string {
	return fmt.Sprintf("qcow2 v%d, %d bytes, cluster size %d", h.Version, h.Size, h.ClusterSize())
}
