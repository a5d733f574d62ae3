package layout

import (
	"encoding/binary"
	"errors"
)

// ErrNoRoom is returned when the header, its extensions and the backing file
// name do not fit into one cluster.
var ErrNoRoom = errors.New("the header, its extensions and the backing file name do not fit into the header cluster")

// Encode composes the whole of cluster 0 for one write at offset 0
// (qcow2-format §1.8). It sets HeaderLength, BackingFileOffset and
// BackingFileSize in h to what it wrote. Padding, unknown fields and unknown
// extensions are kept; a version 2 header drops what version 2 cannot hold
// (feature bits, unknown fields), so a caller that downgrades must have dealt
// with them before. An empty BackingFile means no backing file.
//
// Extensions are written in the customary order: backing format, data file,
// encryption pointer, feature names, bitmaps, unknown ones, end marker, then
// the backing file name.
func (h *Header) Encode() ([]byte, error) {
	if h.ClusterBits < MinClusterBits || h.ClusterBits > MaxClusterBits {
		return nil, unsupportedf(20, "header field cluster_bits", "%d is outside %d…%d", h.ClusterBits, MinClusterBits, MaxClusterBits)
	}
	if len(h.BackingFile) > MaxBackingName {
		return nil, unsupportedf(16, "header field backing_file_size", "a backing file name of %d bytes is too long", len(h.BackingFile))
	}
	if len(h.BackingFormat) > MaxBackingFormat {
		return nil, unsupportedf(-1, "header extension", "a backing format name of %d bytes is too long", len(h.BackingFormat))
	}
	h.HeaderLength = HeaderSizeV2
	if h.Version >= 3 {
		h.HeaderLength = uint32(HeaderSizeV3 + (len(h.UnknownFields)+7)&^7)
	}
	ext := h.Extensions.encode()
	name := int64(h.HeaderLength) + int64(len(ext))
	if name+int64(len(h.BackingFile)) > h.ClusterSize() {
		return nil, ErrNoRoom
	}
	h.BackingFileOffset, h.BackingFileSize = 0, 0
	if h.BackingFile != "" {
		h.BackingFileOffset, h.BackingFileSize = HostOffset(name), uint32(len(h.BackingFile))
	}
	b := make([]byte, h.ClusterSize())
	h.putFixed(b)
	copy(b[h.HeaderLength:], ext)
	copy(b[name:], h.BackingFile)
	return b, nil
}

// putFixed writes the fixed and unknown fields into b.
func (h *Header) putFixed(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b, Magic)
	be.PutUint32(b[4:], h.Version)
	be.PutUint64(b[8:], uint64(h.BackingFileOffset))
	be.PutUint32(b[16:], h.BackingFileSize)
	be.PutUint32(b[20:], h.ClusterBits)
	be.PutUint64(b[24:], h.Size)
	be.PutUint32(b[32:], h.CryptMethod)
	be.PutUint32(b[36:], h.L1Size)
	be.PutUint64(b[40:], uint64(h.L1TableOffset))
	be.PutUint64(b[48:], uint64(h.RefcountTableOffset))
	be.PutUint32(b[56:], h.RefcountTableClusters)
	be.PutUint32(b[60:], h.NbSnapshots)
	be.PutUint64(b[64:], uint64(h.SnapshotsOffset))
	if h.Version < 3 {
		return
	}
	be.PutUint64(b[72:], h.Incompatible)
	be.PutUint64(b[80:], h.Compatible)
	be.PutUint64(b[88:], h.Autoclear)
	be.PutUint32(b[96:], h.RefcountOrder)
	be.PutUint32(b[100:], h.HeaderLength)
	b[104] = h.CompressionType
	copy(b[105:112], h.Padding[:])
	copy(b[112:], h.UnknownFields) // none if header_length is 104
}

// encode composes the extension list with its end marker.
func (x *Extensions) encode() []byte {
	var b []byte
	if x.BackingFormat != "" {
		b = appendExtension(b, ExtBackingFormat, []byte(x.BackingFormat))
	}
	if x.DataFile != "" {
		b = appendExtension(b, ExtDataFile, []byte(x.DataFile))
	}
	if x.Crypto != nil {
		d := binary.BigEndian.AppendUint64(nil, uint64(x.Crypto.Offset))
		b = appendExtension(b, ExtCrypto, binary.BigEndian.AppendUint64(d, uint64(x.Crypto.Length)))
	}
	if len(x.FeatureNames) > 0 {
		b = appendExtension(b, ExtFeatureNames, encodeFeatureNames(x.FeatureNames))
	}
	if m := x.Bitmaps; m != nil {
		d := binary.BigEndian.AppendUint32(nil, m.Count)
		d = binary.BigEndian.AppendUint32(d, m.Reserved)
		d = binary.BigEndian.AppendUint64(d, uint64(m.DirectorySize))
		b = appendExtension(b, ExtBitmaps, binary.BigEndian.AppendUint64(d, uint64(m.DirectoryOffset)))
	}
	for _, u := range x.UnknownExtensions {
		b = appendExtension(b, u.Type, u.Data)
	}
	return append(b, make([]byte, 8)...)
}

func encodeFeatureNames(names []FeatureName) []byte {
	b := make([]byte, len(names)*featureNameSize)
	for i, f := range names {
		e := b[i*featureNameSize : (i+1)*featureNameSize]
		e[0], e[1] = byte(f.Kind), f.Bit
		copy(e[2:], f.Name)
	}
	return b
}

func appendExtension(b []byte, typ uint32, data []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, typ)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&7)...)
}

// Poke is a range of the fixed header that may be updated alone. Each lies
// within one sector, so that the update counts as atomic (qcow2-format §1.1).
type Poke struct {
	Offset HostOffset
	Length int
}

// The legal pokes.
var (
	PokeSize          = Poke{24, 8}  // virtual size
	PokeSizeAndL1     = Poke{24, 24} // virtual size, encryption method, L1 size and offset: the atomic switch to a snapshot's state
	PokeL1            = Poke{36, 12} // L1 size and offset
	PokeTables        = Poke{40, 20} // L1 offset, refcount table offset and clusters
	PokeRefcountTable = Poke{48, 12} // refcount table offset and clusters
	PokeSnapshots     = Poke{60, 12} // number of snapshots and table offset
	PokeIncompatible  = Poke{72, 8}  // incompatible feature bits (version 3)
)

// EncodePoke returns the bytes of a poke as h has them now.
func (h *Header) EncodePoke(p Poke) []byte {
	b := make([]byte, HeaderSizeV3+len(h.UnknownFields)+8)
	h.putFixed(b)
	return b[p.Offset : int64(p.Offset)+int64(p.Length)]
}
