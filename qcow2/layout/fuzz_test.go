package layout

import (
	"bytes"
	"reflect"
	"testing"
)

// What parses must encode, and parse again to the same content.
func FuzzHeader(f *testing.F) {
	f.Add(exampleHeader(f)[:1024])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, mode := range []Mode{Strict, CheckMode} {
			h, err := ParseHeader(b, mode)
			if err != nil {
				continue
			}
			_ = h.OverlapError()
			if err := h.Geometry().Validate(); err != nil {
				t.Fatalf("accepted header has an invalid geometry: %v", err)
			}
			first := *h
			enc, err := h.Encode()
			if err != nil {
				continue // e.g. grown to header_length 112 and no room left
			}
			again, err := ParseHeader(enc, mode)
			if err != nil {
				t.Fatalf("encoded header is refused: %v", err)
			}
			first.HeaderLength, first.BackingFileOffset, first.BackingFileSize = again.HeaderLength, again.BackingFileOffset, again.BackingFileSize
			normalise(&first)
			normalise(again)
			if !reflect.DeepEqual(&first, again) {
				t.Fatalf("got  %+v\nwant %+v", again, first)
			}
		}
	})
}

// normalise removes differences that mean nothing.
func normalise(h *Header) {
	if len(h.UnknownFields) == 0 {
		h.UnknownFields = nil
	}
	if len(h.FeatureNames) == 0 {
		h.FeatureNames = nil
	}
}

func FuzzSnapshotTable(f *testing.F) {
	f.Add(exampleSnapshots(f), 1, false)
	f.Fuzz(func(t *testing.T, b []byte, count int, truncate bool) {
		table, n, err := DecodeSnapshotTable(b, 0, count, SnapshotOptions{TruncateExtra: truncate})
		if n > len(b) {
			t.Fatalf("%d bytes of %d used", n, len(b))
		}
		if err != nil {
			return
		}
		enc, err := EncodeSnapshotTable(table)
		if err != nil {
			return
		}
		again, _, err := DecodeSnapshotTable(enc, 0, len(table), SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range table {
			table[i].ExtraSize = max(table[i].ExtraSize, snapshotKnownExtra)
			if len(table[i].UnknownExtra) == 0 {
				table[i].UnknownExtra, again[i].UnknownExtra = nil, nil
			}
		}
		if !reflect.DeepEqual(table, again) {
			t.Fatalf("got  %+v\nwant %+v", again, table)
		}
	})
}

func FuzzBitmapDirectory(f *testing.F) {
	f.Add(exampleBitmaps(f), 1)
	f.Fuzz(func(t *testing.T, b []byte, count int) {
		dir, err := DecodeBitmapDirectory(b, 0, count)
		if err != nil {
			return
		}
		for i := range dir {
			_ = dir[i].Validate(g64k, 1<<40, 0)
		}
		enc := EncodeBitmapDirectory(dir)
		if len(enc) != len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(enc))
		}
		again, err := DecodeBitmapDirectory(enc, 0, count)
		if err != nil || !reflect.DeepEqual(dir, again) {
			t.Fatalf("%v: %+v, want %+v", err, again, dir)
		}
		if !bytes.Equal(EncodeBitmapDirectory(again), enc) {
			t.Fatal("encoding is not stable")
		}
	})
}
