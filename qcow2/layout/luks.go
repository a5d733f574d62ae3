package layout

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Constants of LUKS1 headers (qcow2-format §6.3).
const (
	LUKSHeaderSize   = 592
	LUKSSlots        = 8
	LUKSStripes      = 4000
	luksSlotActive   = 0x00ac71f3
	luksSlotInactive = 0x0000dead
	luksMinSectors   = 8 // header area in front of the key material
)

// LUKS is a LUKS1 header: everything that can be known without a secret.
type LUKS struct {
	CipherName       string // "aes"
	CipherMode       string // "xts-plain64": see Mode, IVGen, IVGenHash
	HashSpec         string // "sha256"
	PayloadOffset    uint32 // sectors
	KeyBytes         uint32
	Digest           [20]byte
	DigestSalt       [32]byte
	DigestIterations uint32
	UUID             string
	Slots            [LUKSSlots]LUKSSlot
}

// LUKSSlot is a key slot.
type LUKSSlot struct {
	Active     bool
	Iterations uint32
	Salt       [32]byte
	KeyOffset  uint32 // of the key material, in sectors
	Stripes    uint32
}

// Mode is the chaining mode of the cipher, e.g. "xts".
func (l *LUKS) Mode() string { m, _, _ := strings.Cut(l.CipherMode, "-"); return m }

// IVGen is how initialisation vectors are made, e.g. "plain64", and
// IVGenHash the hash that "essiv" uses, "" if none is named.
func (l *LUKS) IVGen() string {
	_, rest, _ := strings.Cut(l.CipherMode, "-")
	gen, _, _ := strings.Cut(rest, ":")
	return gen
}

// IVGenHash is the hash that the generator "essiv" uses, "" if none is named.
func (l *LUKS) IVGenHash() string { _, h, _ := strings.Cut(l.CipherMode, ":"); return h }

// Region is the length in sectors of the key material of one slot.
func (l *LUKS) Region() int64 {
	return roundUp(ceilDiv(int64(l.KeyBytes)*LUKSStripes, SectorSize), 8)
}

// ParseLUKS decodes and validates a LUKS1 header. b holds at least
// LUKSHeaderSize bytes that lie at file offset at; it is not kept.
func ParseLUKS(b []byte, at HostOffset) (*LUKS, error) {
	const what = "LUKS header"
	if len(b) < LUKSHeaderSize {
		return nil, corruptf(at, what, "cut off after %d bytes", len(b))
	}
	be := binary.BigEndian
	if string(b[:6]) != "LUKS\xba\xbe" {
		return nil, corruptf(at, what, "has no LUKS magic")
	}
	if v := be.Uint16(b[6:]); v != 1 {
		return nil, unsupportedf(at, what, "version %d is not 1", v)
	}
	l := &LUKS{PayloadOffset: be.Uint32(b[104:]), KeyBytes: be.Uint32(b[108:]), DigestIterations: be.Uint32(b[164:])}
	for _, f := range []struct {
		dst *string
		b   []byte
	}{{&l.CipherName, b[8:40]}, {&l.CipherMode, b[40:72]}, {&l.HashSpec, b[72:104]}, {&l.UUID, b[168:208]}} {
		i := bytes.IndexByte(f.b, 0)
		if i < 0 {
			return nil, corruptf(at, what, "a name is not terminated")
		}
		*f.dst = string(f.b[:i])
	}
	copy(l.Digest[:], b[112:])
	copy(l.DigestSalt[:], b[132:])
	for i := range l.Slots {
		l.Slots[i].decode(b[208+48*i:])
	}
	return l, l.validate(b, at)
}

func (s *LUKSSlot) decode(b []byte) {
	be := binary.BigEndian
	s.Active = be.Uint32(b) == luksSlotActive
	s.Iterations = be.Uint32(b[4:])
	copy(s.Salt[:], b[8:40])
	s.KeyOffset, s.Stripes = be.Uint32(b[40:]), be.Uint32(b[44:])
}

func (l *LUKS) validate(b []byte, at HostOffset) error {
	const what = "LUKS header"
	switch {
	case l.PayloadOffset < luksMinSectors:
		return corruptf(at, what, "the payload offset %d lies in the header", l.PayloadOffset)
	case l.DigestIterations == 0:
		return corruptf(at, what, "the key digest has no iterations")
	case l.KeyBytes == 0 || l.KeyBytes > 1024:
		return corruptf(at, what, "a key of %d bytes is out of range", l.KeyBytes)
	}
	for i := range l.Slots {
		s := &l.Slots[i]
		state := binary.BigEndian.Uint32(b[208+48*i:])
		end := int64(s.KeyOffset) + l.Region()
		switch {
		case state != luksSlotActive && state != luksSlotInactive:
			return corruptf(at, what, "key slot %d has the unknown state %#x", i, state)
		case s.Stripes != LUKSStripes:
			return corruptf(at, what, "key slot %d has %d stripes instead of %d", i, s.Stripes, LUKSStripes)
		case s.Active && s.Iterations == 0:
			return corruptf(at, what, "key slot %d has no iterations", i)
		case s.KeyOffset < luksMinSectors || end > int64(l.PayloadOffset):
			return corruptf(at, what, "key slot %d lies outside the area in front of the payload", i)
		}
		for j := range i {
			if t := int64(l.Slots[j].KeyOffset); t < end && int64(s.KeyOffset) < t+l.Region() {
				return corruptf(at, what, "key slots %d and %d overlap", j, i)
			}
		}
	}
	return nil
}
