package layout

import "encoding/binary"

const (
	snapshotFixed      = 40 // bytes before the extra data
	snapshotKnownExtra = 24 // bytes of extra data that this codec knows and writes

	// NoICount is the value of Snapshot.ICount when none was recorded.
	NoICount = 1<<64 - 1
)

// Snapshot is an entry of the snapshot table (qcow2-format §4.1).
type Snapshot struct {
	L1TableOffset HostOffset
	L1Size        uint32 // entries
	ID            string
	Name          string
	DateSec       uint32
	DateNsec      uint32
	VMClockNsec   uint64
	VMStateSize   uint64 // the 64-bit value if recorded, else the 32-bit one
	DiskSize      uint64 // bytes; 0 unless HasDiskSize
	ICount        uint64 // NoICount if not recorded

	// ExtraSize is the length of the extra data as stored. Encoding always
	// writes at least the 24 known bytes.
	ExtraSize int
	// UnknownExtra is extra data behind the known 24 bytes, kept on rewrite.
	UnknownExtra []byte
}

// HasDiskSize reports whether the entry records the disk size; if it does not
// (version 2), the snapshot's size is the image's.
func (s *Snapshot) HasDiskSize() bool { return s.ExtraSize >= 16 }

// Incomplete reports whether the entry has less extra data than version 3 requires.
func (s *Snapshot) Incomplete() bool { return s.ExtraSize < 16 }

// SnapshotEntrySize returns the length of an entry, padding to 8 included,
// from its first 40 bytes. ok is false if fixed is shorter.
func SnapshotEntrySize(fixed []byte) (n int64, ok bool) {
	if len(fixed) < snapshotFixed {
		return 0, false
	}
	n = snapshotUnpadded(fixed)
	return (n + 7) &^ 7, true
}

func snapshotUnpadded(fixed []byte) int64 {
	be := binary.BigEndian
	return snapshotFixed + int64(be.Uint32(fixed[36:])) + int64(be.Uint16(fixed[12:])) + int64(be.Uint16(fixed[14:]))
}

// SnapshotOptions bounds what DecodeSnapshot accepts.
type SnapshotOptions struct {
	// TruncateExtra accepts entries with more than 1024 bytes of extra data
	// and keeps the first 1024: what check -r all does. Otherwise they are
	// refused.
	TruncateExtra bool
}

// DecodeSnapshot decodes the entry at the start of b and returns the number of
// bytes up to the next entry. The padding of the last entry may be cut off.
// at is the file offset of b, for errors. The result shares no memory with b.
// The L1 table it points to is not judged: see Snapshot.ValidateL1.
func DecodeSnapshot(b []byte, at HostOffset, opts SnapshotOptions) (s Snapshot, n int, err error) {
	const what = "snapshot table entry"
	if len(b) < snapshotFixed {
		return s, 0, corruptf(at, what, "cut off after %d bytes", len(b))
	}
	be := binary.BigEndian
	extra := int64(be.Uint32(b[36:]))
	if extra > MaxSnapshotExtra && !opts.TruncateExtra {
		return s, 0, unsupportedf(at, what, "%d bytes of extra data are above the limit of %d", extra, MaxSnapshotExtra)
	}
	size := snapshotUnpadded(b)
	if size > int64(len(b)) {
		return s, 0, corruptf(at, what, "an entry of %d bytes is cut off after %d", size, len(b))
	}
	s = Snapshot{
		L1TableOffset: HostOffset(be.Uint64(b)),
		L1Size:        be.Uint32(b[8:]),
		DateSec:       be.Uint32(b[16:]),
		DateNsec:      be.Uint32(b[20:]),
		VMClockNsec:   be.Uint64(b[24:]),
		VMStateSize:   uint64(be.Uint32(b[32:])),
		ICount:        NoICount,
	}
	s.decodeExtra(b[snapshotFixed : snapshotFixed+extra])
	rest := b[snapshotFixed+extra:]
	idLen, nameLen := int(be.Uint16(b[12:])), int(be.Uint16(b[14:]))
	s.ID, s.Name = string(rest[:idLen]), string(rest[idLen:idLen+nameLen])
	return s, int(min((size+7)&^7, int64(len(b)))), nil
}

func (s *Snapshot) decodeExtra(extra []byte) {
	if len(extra) > MaxSnapshotExtra {
		extra = extra[:MaxSnapshotExtra]
	}
	be := binary.BigEndian
	s.ExtraSize = len(extra)
	if len(extra) >= 8 {
		s.VMStateSize = be.Uint64(extra)
	}
	if len(extra) >= 16 {
		s.DiskSize = be.Uint64(extra[8:])
	}
	if len(extra) >= 24 {
		s.ICount = be.Uint64(extra[16:])
		s.UnknownExtra = append([]byte(nil), extra[24:]...)
	}
}

// ValidateL1 checks alignment and size of the snapshot's L1 table. at is the
// file offset of the entry.
func (s *Snapshot) ValidateL1(g Geometry, at HostOffset) error {
	const what = "snapshot table entry"
	if s.L1Size > MaxL1Entries {
		return unsupportedf(at, what, "an L1 table of %d entries is above the limit of %d", s.L1Size, MaxL1Entries)
	}
	if !g.Aligned(s.L1TableOffset) {
		return corruptf(at, what, "the L1 table's offset %v is not aligned to clusters", s.L1TableOffset)
	}
	if _, ok := RangeEnd(s.L1TableOffset, int64(s.L1Size)*8); !ok {
		return corruptf(at, what, "the L1 table's offset %v is out of range", s.L1TableOffset)
	}
	return nil
}

// DecodeSnapshotTable decodes count entries from b, which starts at file
// offset at and may be longer than the table. It returns the table's length in
// bytes up to the last entry's padding.
func DecodeSnapshotTable(b []byte, at HostOffset, count int, opts SnapshotOptions) (table []Snapshot, n int, err error) {
	for i := 0; i < count; i++ {
		s, used, err := DecodeSnapshot(b[n:], at+HostOffset(n), opts)
		if err != nil {
			return table, n, err
		}
		table = append(table, s)
		n += used
		if n > MaxSnapshotTable {
			return table, n, unsupportedf(at, "snapshot table", "longer than the limit of %d bytes", MaxSnapshotTable)
		}
	}
	return table, n, nil
}

// AppendSnapshot appends the encoded entry, padded to a multiple of 8. All
// known extra data is written; entries that lack a disk size must be given one
// before (set DiskSize). IDs and names above 65535 bytes are a caller's error
// and cut off.
func AppendSnapshot(b []byte, s *Snapshot) []byte {
	be := binary.BigEndian
	id, name := cut(s.ID, 65535), cut(s.Name, 65535)
	state32 := uint32(0)
	if s.VMStateSize <= 1<<32-1 {
		state32 = uint32(s.VMStateSize)
	}
	b = be.AppendUint64(b, uint64(s.L1TableOffset))
	b = be.AppendUint32(b, s.L1Size)
	b = be.AppendUint16(b, uint16(len(id)))
	b = be.AppendUint16(b, uint16(len(name)))
	b = be.AppendUint32(b, s.DateSec)
	b = be.AppendUint32(b, s.DateNsec)
	b = be.AppendUint64(b, s.VMClockNsec)
	b = be.AppendUint32(b, state32)
	b = be.AppendUint32(b, uint32(snapshotKnownExtra+len(s.UnknownExtra)))
	b = be.AppendUint64(b, s.VMStateSize)
	b = be.AppendUint64(b, s.DiskSize)
	b = be.AppendUint64(b, s.ICount)
	b = append(b, s.UnknownExtra...)
	b = append(b, id...)
	b = append(b, name...)
	pad := -(snapshotFixed + snapshotKnownExtra + len(s.UnknownExtra) + len(id) + len(name)) & 7
	return append(b, make([]byte, pad)...)
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// EncodeSnapshotTable composes the whole table, to be written in one piece.
func EncodeSnapshotTable(table []Snapshot) ([]byte, error) {
	if len(table) > MaxSnapshots {
		return nil, unsupportedf(-1, "snapshot table", "%d snapshots are above the limit of %d", len(table), MaxSnapshots)
	}
	var b []byte
	for i := range table {
		b = AppendSnapshot(b, &table[i])
		if len(b) > MaxSnapshotTable {
			return nil, unsupportedf(-1, "snapshot table", "longer than the limit of %d bytes", MaxSnapshotTable)
		}
	}
	return b, nil
}
