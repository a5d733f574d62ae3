package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// unhex decodes hexadecimal with blanks.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// exampleHeader is the header of qcow2-format §15.1, bytes as on disk.
func exampleHeader(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 65536)
	copy(b, unhex(t, `
		5146 49fb 0000 0003 0000 0000 0000 0000
		0000 0000 0000 0010 0000 0000 0010 0000
		0000 0000 0000 0001 0000 0000 0003 0000
		0000 0000 0001 0000 0000 0001 0000 0000
		0000 0000 0000 0000 0000 0000 0000 0000
		0000 0000 0000 0000 0000 0000 0000 0000
		0000 0004 0000 0070 0000 0000 0000 0000
		6803 f857 0000 0180`))
	names := []string{"dirty bit", "corrupt bit", "external data file", "compression type", "extended L2 entries", "lazy refcounts", "bitmaps", "raw external data"}
	kinds := []byte{0, 0, 0, 0, 0, 1, 2, 2}
	bits := []byte{0, 1, 2, 3, 4, 0, 0, 1}
	for i, n := range names {
		e := b[0x78+48*i:]
		e[0], e[1] = kinds[i], bits[i]
		copy(e[2:], n)
	}
	return b
}

func TestHeaderOfAFreshImageDecodesAndEncodesToTheSameBytes(t *testing.T) {
	raw := exampleHeader(t)
	h, err := ParseHeader(raw, Strict)
	if err != nil {
		t.Fatal(err)
	}
	want := &Header{
		Version: 3, ClusterBits: 16, Size: 1 << 20, L1Size: 1, L1TableOffset: 0x30000,
		RefcountTableOffset: 0x10000, RefcountTableClusters: 1, RefcountOrder: 4, HeaderLength: 112,
		UnknownFields: nil, Extensions: Extensions{FeatureNames: StandardFeatureNames(3, 65536)},
	}
	if !reflect.DeepEqual(h, want) {
		t.Fatalf("got  %+v\nwant %+v", h, want)
	}
	got, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, raw) {
		t.Fatalf("encoded header differs:\n%s", hex.Dump(got[:0x210]))
	}
}

func TestBackingNameAndFormatLieWhereTheCustomaryWriterPutsThem(t *testing.T) {
	h := &Header{Version: 3, ClusterBits: 16, Size: 1 << 20, L1Size: 1, L1TableOffset: 0x30000, RefcountTableOffset: 0x10000,
		RefcountTableClusters: 1, RefcountOrder: 4, BackingFile: "base.raw",
		Extensions: Extensions{BackingFormat: "raw", FeatureNames: StandardFeatureNames(3, 65536)}}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if h.BackingFileOffset != 0x210 || h.BackingFileSize != 8 || string(b[528:536]) != "base.raw" {
		t.Fatalf("v3 name at %v, %d bytes", h.BackingFileOffset, h.BackingFileSize)
	}
	if !bytes.Equal(b[112:128], unhex(t, "e279 2aca 0000 0003 7261 7700 0000 0000")) {
		t.Fatalf("v3 format extension: %x", b[112:128])
	}
	h.Version, h.FeatureNames = 2, nil
	if b, err = h.Encode(); err != nil {
		t.Fatal(err)
	}
	if h.BackingFileOffset != 0x60 || string(b[0x60:0x68]) != "base.raw" || b[72] != 0xe2 {
		t.Fatalf("v2 name at %v", h.BackingFileOffset)
	}
	got, err := ParseHeader(b, Strict)
	if err != nil || got.BackingFile != "base.raw" || got.BackingFormat != "raw" || got.HeaderLength != 72 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestUnknownFieldsExtensionsAndBitsSurviveARewrite(t *testing.T) {
	raw := exampleHeader(t)
	b := make([]byte, 65536)
	copy(b, raw[:112])
	binary.BigEndian.PutUint32(b[100:], 120)
	binary.BigEndian.PutUint64(b[80:], 1<<63|1)
	binary.BigEndian.PutUint64(b[88:], 1<<40)
	b[110] = 0x55
	copy(b[112:120], "unknown!")
	ext := append(unhex(t, "12345678 00000005"), "hello\xff\xff\xff"...) // padding need not be zero
	copy(b[120:], append(ext, raw[112:512]...))
	h, err := ParseHeader(b, Strict)
	if err != nil {
		t.Fatal(err)
	}
	for pass := 0; pass < 2; pass++ {
		if string(h.UnknownFields) != "unknown!" || h.Padding[5] != 0x55 || h.Compatible != 1<<63|1 || h.Autoclear != 1<<40 {
			t.Fatalf("pass %d: %+v", pass, h)
		}
		if len(h.UnknownExtensions) != 1 || h.UnknownExtensions[0].Type != 0x12345678 || string(h.UnknownExtensions[0].Data) != "hello" {
			t.Fatalf("pass %d: %+v", pass, h.UnknownExtensions)
		}
		enc, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if h, err = ParseHeader(enc, Strict); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHeaderLength104IsUpgradedTo112OnEncode(t *testing.T) {
	b := exampleHeader(t)[:112]
	b = append(append(append([]byte{}, b[:104]...), make([]byte, 8)...), make([]byte, 65536-112)...)
	binary.BigEndian.PutUint32(b[100:], 104)
	h, err := ParseHeader(b, Strict)
	if err != nil {
		t.Fatal(err)
	}
	if enc, err := h.Encode(); err != nil || binary.BigEndian.Uint32(enc[100:]) != 112 {
		t.Fatalf("header_length %d, %v", binary.BigEndian.Uint32(enc[100:]), err)
	}
}

func TestInvalidHeadersAreRefusedByFieldAndKind(t *testing.T) {
	put32 := func(off int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[off:], v); return b }
	}
	put64 := func(off int, v uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint64(b[off:], v); return b }
	}
	both := func(fs ...func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte {
			for _, f := range fs {
				b = f(b)
			}
			return b
		}
	}
	for _, c := range []struct {
		name string
		edit func([]byte) []byte
		kind Kind
		want string
	}{
		{"no magic", put32(0, 0x514649fa), NotQcow2, "magic"},
		{"empty file", func(b []byte) []byte { return nil }, NotQcow2, "magic"},
		{"cut in the magic's sector", func(b []byte) []byte { return b[:20] }, Corrupt, "inside the header"},
		{"cut in the version 2 part", func(b []byte) []byte { return b[:71] }, Corrupt, "inside the header"},
		{"cut in the version 3 part", func(b []byte) []byte { return b[:103] }, Corrupt, "inside the header"},
		{"cut in the additional fields", func(b []byte) []byte { return b[:111] }, Corrupt, "inside the header"},
		{"cut in an extension", func(b []byte) []byte { return b[:200] }, Corrupt, "cut off"},
		{"version 1", put32(4, 1), Unsupported, "version 1"},
		{"version 4", put32(4, 4), Unsupported, "version 4"},
		{"cluster bits 8", put32(20, 8), Unsupported, "cluster_bits"},
		{"cluster bits 22", put32(20, 22), Unsupported, "cluster_bits"},
		{"cluster bits 2^32-1", put32(20, 1<<32-1), Unsupported, "cluster_bits"},
		{"backing name past the cluster", put64(8, 65537), Corrupt, "backing_file_offset"},
		{"backing name at 2^64-1", put64(8, 1<<64-1), Corrupt, "backing_file_offset"},
		{"backing name inside the header", put64(8, 50), Corrupt, "backing_file_offset"},
		{"backing name too long", both(put64(8, 600), put32(16, 1024)), Corrupt, "backing_file_size"},
		{"backing name crosses the cluster's end", both(put64(8, 65530), put32(16, 7)), Corrupt, "backing_file_size"},
		{"backing name of 2^32-1 bytes", both(put64(8, 600), put32(16, 1<<32-1)), Corrupt, "backing_file_size"},
		{"size beyond the L1", put64(24, 512<<20+512), Corrupt, "l1_size"},
		{"size 2^64-512", put64(24, 1<<64-512), Unsupported, "size"},
		{"size 2^63-512", put64(24, 1<<63-512), Unsupported, "size"},
		{"encryption method 3", put32(32, 3), Unsupported, "crypt_method"},
		{"L1 above 32 MiB", put32(36, 4<<20+1), Unsupported, "l1_size"},
		{"L1 of 2^32-1 entries", put32(36, 1<<32-1), Unsupported, "l1_size"},
		{"no L1", put32(36, 0), Corrupt, "l1_size"},
		{"unaligned L1", put64(40, 0x30200), Corrupt, "l1_table_offset"},
		{"L1 in the header", put64(40, 0), Corrupt, "l1_table_offset"},
		{"L1 at 2^63", put64(40, 1<<63), Corrupt, "l1_table_offset"},
		{"L1 that ends above 2^63", both(put32(36, 4<<20), put64(40, 1<<63-65536)), Corrupt, "l1_table_offset"},
		{"unaligned refcount table", put64(48, 0x10001), Corrupt, "refcount_table_offset"},
		{"refcount table at 2^64-65536", put64(48, 1<<64-65536), Corrupt, "refcount_table_offset"},
		{"no refcount table", put32(56, 0), Corrupt, "refcount_table_clusters"},
		{"refcount table above 8 MiB", put32(56, 129), Unsupported, "refcount_table_clusters"},
		{"too many snapshots", put32(60, 65537), Unsupported, "nb_snapshots"},
		{"unaligned snapshot table", put64(64, 512), Corrupt, "snapshots_offset"},
		{"snapshot table at 2^63", put64(64, 1<<63), Corrupt, "snapshots_offset"},
		{"compression type without its bit", func(b []byte) []byte { b[104] = 1; return b }, Corrupt, "compression_type"},
		{"compression bit without a type", put64(72, IncompatCompression), Corrupt, "compression_type"},
		{"compression type 2", both(put64(72, IncompatCompression), func(b []byte) []byte { b[104] = 2; return b }), Unsupported, "compression_type"},
		{"unknown incompatible bit", put64(72, 0x80), Unsupported, "Unknown incompatible feature: 80"},
		{"raw data file bit without data file", put64(88, AutoclearRawData), Corrupt, "autoclear_features"},
		{"refcount order 7", put32(96, 7), Unsupported, "refcount_order"},
		{"header length 103", put32(100, 103), Corrupt, "header_length"},
		{"header length 106", put32(100, 106), Corrupt, "header_length"},
		{"header length beyond the cluster", put32(100, 65544), Corrupt, "header_length"},
		{"header length 2^32-8", put32(100, 1<<32-8), Corrupt, "header_length"},
		{"extension longer than the cluster", put32(116, 65536), Corrupt, "too large"},
		{"extension of 2^32-1 bytes", put32(116, 1<<32-1), Corrupt, "too large"},
		{"extension into the backing name", both(put64(8, 400), put32(16, 4)), Corrupt, "too large"},
		{"long backing format", func(b []byte) []byte {
			copy(b[112:], append(unhex(t, "e2792aca 00000010"), "0123456789abcdef"...))
			return b
		}, Corrupt, "backing format"},
		{"encryption pointer without encryption", func(b []byte) []byte {
			copy(b[112:], unhex(t, "0537be77 00000010 0000000000040000 00000000001f9000 00000000"))
			return b
		}, Corrupt, "encryption"},
		{"backing format twice", func(b []byte) []byte {
			copy(b[112:], unhex(t, "e2792aca 00000003 7261770000000000 e2792aca 00000003 7261770000000000 0000000000000000"))
			return b
		}, Corrupt, "twice"},
		{"bitmaps of 23 bytes", func(b []byte) []byte {
			copy(b[112:], append(unhex(t, "23852875 00000017"), make([]byte, 40)...))
			return b
		}, Corrupt, "bitmaps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseHeader(c.edit(exampleHeader(t)), Strict)
			var e *Error
			if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want kind %d and %q", err, c.kind, c.want)
			}
		})
	}
}

func TestExtendedL2NeedsClustersOf16KiB(t *testing.T) {
	for bits, ok := range map[uint32]bool{13: false, 14: true} {
		h := &Header{Version: 3, ClusterBits: bits, RefcountTableClusters: 1, RefcountTableOffset: 1 << bits, RefcountOrder: 4, Incompatible: IncompatExtendedL2}
		if err := h.Validate(Strict); (err == nil) != ok {
			t.Errorf("cluster_bits %d: %v", bits, err)
		}
	}
}

func TestUnknownIncompatibleBitsAreNamedFromTheImagesTable(t *testing.T) {
	b := exampleHeader(t)
	binary.BigEndian.PutUint64(b[72:], 1<<7|1<<9)
	b[0x79] = 7 // the entry of the dirty bit becomes one for bit 7
	copy(b[0x7a:], "warp drive")
	_, err := ParseHeader(b, Strict)
	if err == nil || !strings.Contains(err.Error(), "warp drive, Unknown incompatible feature: 200") {
		t.Fatal(err)
	}
}

func TestCheckModeToleratesAMissingRefcountTableAndABrokenSnapshotTable(t *testing.T) {
	b := exampleHeader(t)
	binary.BigEndian.PutUint32(b[56:], 0)
	binary.BigEndian.PutUint32(b[60:], 1<<31)
	binary.BigEndian.PutUint64(b[64:], 7)
	if _, err := ParseHeader(b, CheckMode); err != nil {
		t.Fatal(err)
	}
}

func TestHeaderThatDoesNotFitIsNoRoom(t *testing.T) {
	h := &Header{Version: 3, ClusterBits: 9, BackingFile: strings.Repeat("x", 400)}
	if _, err := h.Encode(); !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	h.BackingFile = h.BackingFile[:512-112-8]
	if _, err := h.Encode(); err != nil {
		t.Fatal(err)
	}
}

func TestPokesAreRangesOfTheEncodedHeader(t *testing.T) {
	h, err := ParseHeader(exampleHeader(t), Strict)
	if err != nil {
		t.Fatal(err)
	}
	h.Size, h.L1Size, h.L1TableOffset, h.RefcountTableOffset, h.NbSnapshots, h.SnapshotsOffset, h.Incompatible = 2<<20, 7, 0x70000, 0x80000, 3, 0x90000, 1
	full, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Poke{PokeSize, PokeSizeAndL1, PokeL1, PokeTables, PokeRefcountTable, PokeSnapshots, PokeIncompatible} {
		if got := h.EncodePoke(p); !bytes.Equal(got, full[p.Offset:int(p.Offset)+p.Length]) {
			t.Errorf("poke %+v: %x", p, got)
		}
		if int(p.Offset)/SectorSize != (int(p.Offset)+p.Length-1)/SectorSize {
			t.Errorf("poke %+v crosses a sector", p)
		}
	}
}

func TestOverlappingHeaderStructuresAreReported(t *testing.T) {
	h, err := ParseHeader(exampleHeader(t), Strict)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.OverlapError(); err != nil {
		t.Fatal(err)
	}
	h.L1TableOffset = h.RefcountTableOffset
	if err := h.OverlapError(); err == nil || !strings.Contains(err.Error(), "overlaps the active L1 table") {
		t.Fatal(err)
	}
}

func TestLUKSAndBitmapExtensionsDecode(t *testing.T) {
	b := exampleHeader(t)
	binary.BigEndian.PutUint32(b[32:], CryptLUKS)
	b[95] = 1
	copy(b[112:], append(unhex(t, `0537 be77 0000 0010 0000 0000 0004 0000 0000 0000 001f 9000
		2385 2875 0000 0018 0000 0001 0000 0000 0000 0000 0000 0020 0000 0000 000b 0000`), make([]byte, 400)...))
	h, err := ParseHeader(b, Strict)
	if err != nil {
		t.Fatal(err)
	}
	if *h.Crypto != (CryptoPointer{0x40000, 2068480}) {
		t.Errorf("%+v", h.Crypto)
	}
	if *h.Bitmaps != (BitmapsExtension{Count: 1, DirectorySize: 32, DirectoryOffset: 0xb0000}) {
		t.Errorf("%+v", h.Bitmaps)
	}
}

func TestPokesOfAHeaderWithoutAdditionalFields(t *testing.T) {
	h := &Header{Version: 3, ClusterBits: 16, RefcountOrder: 4, HeaderLength: HeaderSizeV3Min, Incompatible: IncompatDirty}
	if got := h.EncodePoke(PokeIncompatible); len(got) != 8 || got[7] != 1 {
		t.Fatalf("poke is %x", got)
	}
}
