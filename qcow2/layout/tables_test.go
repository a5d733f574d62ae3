package layout

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// exampleSnapshots is the snapshot table of qcow2-format §15.5.
func exampleSnapshots(t testing.TB) []byte {
	return unhex(t, `0000 0000 0006 0000 0000 0001 0001 0005
		6b0d c08b 27db eb20 0000 0000 0000 0000
		0000 0000 0000 0018 0000 0000 0000 0000
		0000 0000 0010 0000 0000 0000 0000 0000
		31 73 6e 61 70 31 00 00`)
}

func TestSnapshotTableOfTheWorkedExample(t *testing.T) {
	b := exampleSnapshots(t)
	table, n, err := DecodeSnapshotTable(b, 0x70000, 1, SnapshotOptions{})
	if err != nil || n != 72 {
		t.Fatal(n, err)
	}
	want := Snapshot{L1TableOffset: 0x60000, L1Size: 1, ID: "1", Name: "snap1", DateSec: 0x6b0dc08b, DateNsec: 0x27dbeb20, DiskSize: 1 << 20, ExtraSize: 24, UnknownExtra: nil}
	if !reflect.DeepEqual(table, []Snapshot{want}) {
		t.Fatalf("%+v", table)
	}
	if got, err := EncodeSnapshotTable(table); err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%x %v", got, err)
	}
	if n, ok := SnapshotEntrySize(b); !ok || n != 72 {
		t.Fatal(n, ok)
	}
	// The padding behind the last entry may be missing.
	if _, n, err := DecodeSnapshotTable(b[:70], 0, 1, SnapshotOptions{}); err != nil || n != 70 {
		t.Fatal(n, err)
	}
}

func TestSnapshotExtraDataOverridesAndSurvives(t *testing.T) {
	s := Snapshot{ID: "12", Name: "", VMStateSize: 5 << 32, DiskSize: 512, ICount: NoICount, UnknownExtra: []byte("future")}
	b := AppendSnapshot(nil, &s)
	if len(b)%8 != 0 {
		t.Fatal(len(b))
	}
	got, n, err := DecodeSnapshot(b, 0, SnapshotOptions{})
	s.ExtraSize = 30
	if err != nil || n != len(b) || !reflect.DeepEqual(got, s) {
		t.Fatalf("%+v %d %v", got, n, err)
	}
}

func TestOldSnapshotEntryHasNoDiskSize(t *testing.T) {
	b := make([]byte, 48)
	b[13], b[35] = 1, 9
	b[40] = '1'
	s, n, err := DecodeSnapshot(b, 0, SnapshotOptions{})
	if err != nil || n != 48 || s.HasDiskSize() || !s.Incomplete() || s.VMStateSize != 9 || s.ICount != NoICount || s.ID != "1" {
		t.Fatalf("%+v %d %v", s, n, err)
	}
}

func TestSnapshotTablesThatRunAwayAreRefused(t *testing.T) {
	b := exampleSnapshots(t)
	for name, edit := range map[string]func([]byte){
		"extra data of 2^32-1 bytes": func(b []byte) { copy(b[36:], "\xff\xff\xff\xff") },
		"extra data of 1025 bytes":   func(b []byte) { copy(b[36:], "\x00\x00\x04\x01") },
		"id of 65535 bytes":          func(b []byte) { copy(b[12:], "\xff\xff") },
		"name of 65535 bytes":        func(b []byte) { copy(b[14:], "\xff\xff") },
	} {
		c := bytes.Clone(b)
		edit(c)
		if _, _, err := DecodeSnapshotTable(c, 0, 1, SnapshotOptions{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for cut := 0; cut < 70; cut++ {
		if _, _, err := DecodeSnapshotTable(b[:cut], 0, 1, SnapshotOptions{}); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	long := make([]byte, 40+2000)
	copy(long[36:], "\x00\x00\x07\xd0")
	if s, n, err := DecodeSnapshot(long, 0, SnapshotOptions{TruncateExtra: true}); err != nil || n != len(long) || len(s.UnknownExtra) != 1000 {
		t.Errorf("truncated extra data: %d %v", n, err)
	}
}

func TestSnapshotL1LimitsAreChecked(t *testing.T) {
	for _, c := range []struct {
		s  Snapshot
		ok bool
	}{
		{Snapshot{L1TableOffset: 0x60000, L1Size: 1}, true},
		{Snapshot{L1TableOffset: 0x60200, L1Size: 1}, false},
		{Snapshot{L1TableOffset: 0x60000, L1Size: MaxL1Entries + 1}, false},
		{Snapshot{L1TableOffset: -65536, L1Size: 1}, false},
		{Snapshot{L1TableOffset: 1<<63 - 65536, L1Size: MaxL1Entries}, false},
	} {
		if err := c.s.ValidateL1(g64k, 0); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}

// exampleBitmaps is the bitmap directory of qcow2-format §15.6.
func exampleBitmaps(t testing.TB) []byte {
	return unhex(t, `0000 0000 000a 0000 0000 0001 0000 0002
		0110 0005 0000 0000 616c 7068 6100 0000`)
}

func TestBitmapDirectoryOfTheWorkedExample(t *testing.T) {
	b := exampleBitmaps(t)
	dir, err := DecodeBitmapDirectory(b, 0xb0000, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := BitmapDirEntry{TableOffset: 0xa0000, TableSize: 1, Flags: BitmapAuto, Type: BitmapTypeDirty, GranularityBits: 16, Name: "alpha"}
	if !reflect.DeepEqual(dir, []BitmapDirEntry{want}) {
		t.Fatalf("%+v", dir)
	}
	if err := dir[0].Validate(g64k, 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	if got := EncodeBitmapDirectory(dir); !bytes.Equal(got, b) {
		t.Fatalf("%x", got)
	}
	for cut := range b {
		if _, err := DecodeBitmapDirectory(b[:cut], 0, 1); err == nil {
			t.Errorf("cut at %d: accepted", cut)
		}
	}
	if _, err := DecodeBitmapDirectory(append(b, 0, 0, 0, 0, 0, 0, 0, 0), 0, 1); err == nil {
		t.Error("a directory longer than its entries was accepted")
	}
	if _, err := DecodeBitmapDirectory(append(bytes.Clone(b), b...), 0, 2); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}

func TestBitmapEntriesOutsideTheLimitsAreRefused(t *testing.T) {
	good := BitmapDirEntry{TableOffset: 0xa0000, TableSize: 1, Type: BitmapTypeDirty, GranularityBits: 16, Name: "b"}
	for name, edit := range map[string]func(*BitmapDirEntry){
		"no name":           func(e *BitmapDirEntry) { e.Name = "" },
		"long name":         func(e *BitmapDirEntry) { e.Name = strings.Repeat("x", 1024) },
		"no table":          func(e *BitmapDirEntry) { e.TableOffset = 0 },
		"unaligned table":   func(e *BitmapDirEntry) { e.TableOffset++ },
		"negative table":    func(e *BitmapDirEntry) { e.TableOffset = -65536 },
		"empty table":       func(e *BitmapDirEntry) { e.TableSize = 0 },
		"huge table":        func(e *BitmapDirEntry) { e.TableSize = 1<<32 - 1 },
		"too much data":     func(e *BitmapDirEntry) { e.TableSize = MaxBitmapBytes/65536 + 1 },
		"unknown type":      func(e *BitmapDirEntry) { e.Type = 2 },
		"small granularity": func(e *BitmapDirEntry) { e.GranularityBits = 8 },
		"large granularity": func(e *BitmapDirEntry) { e.GranularityBits = 255 },
		"unknown flag":      func(e *BitmapDirEntry) { e.Flags = 8 },
		"extra data":        func(e *BitmapDirEntry) { e.Extra = []byte{0} },
	} {
		e := good
		edit(&e)
		if err := e.Validate(g64k, 1<<20, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := good.Validate(g64k, 65536*8*65536+1, 0); err == nil {
		t.Error("a table too short for the disk was accepted")
	}
	if err := good.Validate(g64k, 65536*8*65536, 0); err != nil {
		t.Error(err)
	}
}
