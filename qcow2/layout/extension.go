package layout

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Types of header extensions (qcow2-format §1.4).
const (
	ExtEnd           = 0x00000000
	ExtBackingFormat = 0xe2792aca
	ExtFeatureNames  = 0x6803f857
	ExtBitmaps       = 0x23852875
	ExtCrypto        = 0x0537be77
	ExtDataFile      = 0x44415441
)

// Extensions are the header extensions, the known ones decoded. The empty
// string stands for an absent name.
type Extensions struct {
	BackingFormat     string
	DataFile          string
	Crypto            *CryptoPointer
	FeatureNames      []FeatureName
	Bitmaps           *BitmapsExtension
	UnknownExtensions []Extension // in on-disk order, kept on rewrite
}

// Extension is a header extension that this codec does not know.
type Extension struct {
	Type uint32
	Data []byte
}

// CryptoPointer locates the LUKS header area. Length is exact, the clusters
// behind it are rounded up.
type CryptoPointer struct {
	Offset HostOffset
	Length int64
}

// BitmapsExtension locates the directory of persistent bitmaps.
type BitmapsExtension struct {
	Count           uint32
	Reserved        uint32
	DirectorySize   int64 // bytes
	DirectoryOffset HostOffset
}

// FeatureKind is the header field that a feature bit belongs to.
type FeatureKind uint8

// The kinds, as numbered in the feature name table.
const (
	FeatureIncompatible FeatureKind = 0
	FeatureCompatible   FeatureKind = 1
	FeatureAutoclear    FeatureKind = 2
)

// FeatureName is one entry of the feature name table: informational only.
type FeatureName struct {
	Kind FeatureKind
	Bit  uint8
	Name string // at most 46 bytes
}

const featureNameSize = 48

// standardFeatures are the bits this codec knows.
var standardFeatures = []FeatureName{
	{FeatureIncompatible, 0, "dirty bit"},
	{FeatureIncompatible, 1, "corrupt bit"},
	{FeatureIncompatible, 2, "external data file"},
	{FeatureIncompatible, 3, "compression type"},
	{FeatureIncompatible, 4, "extended L2 entries"},
	{FeatureCompatible, 0, "lazy refcounts"},
	{FeatureAutoclear, 0, "bitmaps"},
	{FeatureAutoclear, 1, "raw external data"},
}

// StandardFeatureNames returns the table that new images carry: eight entries
// for version 3 images with clusters above 4096 bytes, else none, because
// small header clusters need the room.
func StandardFeatureNames(version uint32, clusterSize int64) []FeatureName {
	if version < 3 || clusterSize <= 4096 {
		return nil
	}
	return append([]FeatureName(nil), standardFeatures...)
}

// BitNames returns the names of the bits set in mask: the standard name, else
// the one the image's table gives, else "bit N".
func (x *Extensions) BitNames(kind FeatureKind, mask uint64) []string {
	var names []string
	for bit := uint8(0); bit < 64; bit++ {
		if mask>>bit&1 != 0 {
			names = append(names, x.bitName(kind, bit))
		}
	}
	return names
}

func (x *Extensions) bitName(kind FeatureKind, bit uint8) string {
	for _, table := range [][]FeatureName{standardFeatures, x.FeatureNames} {
		for _, f := range table {
			if f.Kind == kind && f.Bit == bit && f.Name != "" {
				return f.Name
			}
		}
	}
	return fmt.Sprintf("bit %d", bit)
}

// describe names the bits of mask by the image's own table, the rest as one
// hexadecimal mask.
func (x *Extensions) describe(kind FeatureKind, mask uint64) string {
	var parts []string
	for _, f := range x.FeatureNames {
		if f.Kind == kind && f.Bit < 64 && mask>>f.Bit&1 != 0 && f.Name != "" {
			parts = append(parts, printable(f.Name))
			mask &^= 1 << f.Bit
		}
	}
	if mask != 0 {
		parts = append(parts, fmt.Sprintf("Unknown incompatible feature: %x", mask))
	}
	return strings.Join(parts, ", ")
}

// printable replaces control characters, so that a hostile name cannot drive a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// parseExtensions walks the extension area of cluster 0. h supplies the
// header length, the cluster size and the validated backing file offset. On an
// error the extensions read so far are returned with it.
func parseExtensions(h *Header, cluster0 []byte) (Extensions, error) {
	var x Extensions
	end := h.ClusterSize()
	if h.BackingFileOffset != 0 {
		end = int64(h.BackingFileOffset)
	}
	seen := map[uint32]bool{}
	for pos := int64(h.HeaderLength); pos < end; {
		// A fragment too short for a record, or the end of the file: the list ends.
		if end-pos < 8 || pos+8 > int64(len(cluster0)) {
			break
		}
		typ := binary.BigEndian.Uint32(cluster0[pos:])
		n := int64(binary.BigEndian.Uint32(cluster0[pos+4:]))
		if typ == ExtEnd {
			break
		}
		at := HostOffset(pos)
		pos += 8
		switch {
		case n > end-pos:
			return x, corruptf(at, "header extension", "extension %#x of %d bytes is too large", typ, n)
		case pos+n > int64(len(cluster0)):
			return x, corruptf(at, "header extension", "extension %#x is cut off by the end of the file", typ)
		case seen[typ] && isKnownExtension(typ):
			return x, corruptf(at, "header extension", "extension %#x appears twice", typ)
		}
		seen[typ] = true
		if err := x.add(h, at, typ, cluster0[pos:pos+n]); err != nil {
			return x, err
		}
		pos += (n + 7) &^ 7
	}
	return x, nil
}

func isKnownExtension(typ uint32) bool {
	switch typ {
	case ExtBackingFormat, ExtFeatureNames, ExtBitmaps, ExtCrypto, ExtDataFile:
		return true
	}
	return false
}

// add decodes one extension. data belongs to the caller.
func (x *Extensions) add(h *Header, at HostOffset, typ uint32, data []byte) error {
	switch typ {
	case ExtBackingFormat:
		if len(data) > MaxBackingFormat {
			return corruptf(at, "header extension", "a backing format name of %d bytes is too long", len(data))
		}
		x.BackingFormat = string(data)
	case ExtDataFile:
		x.DataFile = string(data)
	case ExtFeatureNames:
		x.FeatureNames = decodeFeatureNames(data)
	case ExtCrypto:
		return x.addCrypto(h, at, data)
	case ExtBitmaps:
		return x.addBitmaps(h, at, data)
	default:
		x.UnknownExtensions = append(x.UnknownExtensions, Extension{typ, append([]byte(nil), data...)})
	}
	return nil
}

// decodeFeatureNames ignores a fragment of an entry at the end: the table is
// informational, and never a reason to refuse an image.
func decodeFeatureNames(data []byte) []FeatureName {
	names := make([]FeatureName, 0, len(data)/featureNameSize)
	for ; len(data) >= featureNameSize; data = data[featureNameSize:] {
		name := string(data[2:featureNameSize])
		if i := strings.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		names = append(names, FeatureName{FeatureKind(data[0]), data[1], name})
	}
	return names
}

func (x *Extensions) addCrypto(h *Header, at HostOffset, data []byte) error {
	if h.CryptMethod != CryptLUKS {
		return corruptf(at, "encryption header extension", "present although the encryption method is %d", h.CryptMethod)
	}
	if len(data) != 16 {
		return corruptf(at, "encryption header extension", "has %d bytes instead of 16", len(data))
	}
	p := &CryptoPointer{HostOffset(binary.BigEndian.Uint64(data)), int64(binary.BigEndian.Uint64(data[8:]))}
	if _, ok := RangeEnd(p.Offset, p.Length); !ok || int64(p.Offset)&(h.ClusterSize()-1) != 0 {
		return corruptf(at, "encryption header extension", "points to %d bytes at %v", uint64(p.Length), p.Offset)
	}
	x.Crypto = p
	return nil
}

func (x *Extensions) addBitmaps(h *Header, at HostOffset, data []byte) error {
	if len(data) != 24 {
		return corruptf(at, "bitmaps extension", "has %d bytes instead of 24", len(data))
	}
	b := &BitmapsExtension{
		Count:           binary.BigEndian.Uint32(data),
		Reserved:        binary.BigEndian.Uint32(data[4:]),
		DirectorySize:   int64(binary.BigEndian.Uint64(data[8:])),
		DirectoryOffset: HostOffset(binary.BigEndian.Uint64(data[16:])),
	}
	x.Bitmaps = b
	if h.Version < 3 || !h.HasAutoclear(AutoclearBitmaps) {
		return nil // somebody wrote without keeping the bitmaps: their description is void, and not judged
	}
	return b.validate(at, h.ClusterSize())
}

func (b *BitmapsExtension) validate(at HostOffset, clusterSize int64) error {
	const what = "bitmaps extension"
	_, ok := RangeEnd(b.DirectoryOffset, b.DirectorySize)
	switch {
	case b.Reserved != 0:
		return corruptf(at, what, "the reserved field is not zero")
	case b.Count == 0 || b.Count > MaxBitmaps:
		return corruptf(at, what, "%d bitmaps are outside 1…%d", b.Count, MaxBitmaps)
	case !ok || b.DirectorySize > MaxBitmapDir:
		return corruptf(at, what, "a directory of %d bytes is above the limit of %d", uint64(b.DirectorySize), MaxBitmapDir)
	case b.DirectorySize < int64(b.Count)*bitmapFixed:
		return corruptf(at, what, "a directory of %d bytes is too short for %d bitmaps", b.DirectorySize, b.Count)
	case int64(b.DirectoryOffset)&(clusterSize-1) != 0 || b.DirectoryOffset == 0:
		return corruptf(at, what, "the directory's offset %v is not aligned to clusters", b.DirectoryOffset)
	}
	return nil
}
