package check

import (
	"encoding/binary"
	"testing"

	"byre/qcow2/layout"
)

// patch writes big-endian numbers into an image: of 2, 4 or 8 bytes, by the type of the value.
type patch struct {
	at int64
	v  any
}

func patched(b []byte, ps ...patch) []byte {
	b = append([]byte(nil), b...)
	for _, p := range ps {
		switch v := p.v.(type) {
		case uint16:
			binary.BigEndian.PutUint16(b[p.at:], v)
		case uint32:
			binary.BigEndian.PutUint32(b[p.at:], v)
		case uint64:
			binary.BigEndian.PutUint64(b[p.at:], v)
		}
	}
	return b
}

// The image of the measured cases: 1 MiB, 64 KiB clusters: header, refcount table at 0x10000, refcount block at 0x20000,
// L1 at 0x30000, L2 at 0x40000, data at 0x50000 and 0x60000.
const (
	block0 = 0x20000
	l1     = 0x30000
	l2     = 0x40000
	copied = uint64(1) << 63
)

func TestMeasuredDefectsAreJudgedAndRepairedAsMeasured(t *testing.T) {
	base := makeImage(t, flavour{size: "1M", io: []string{"write -P 1 0 128k"}})
	comp := makeImage(t, flavour{size: "1M", io: []string{"write -c -P 1 0 64k"}})
	entry := binary.BigEndian.Uint64(comp[l2:])
	for _, c := range []struct {
		name              string
		image             []byte
		plain, leaks, all int
	}{
		{"count 2, one reference, entry COPIED", patched(base, patch{block0 + 10, uint16(2)}), 2, 0, 0},
		{"count 1, two references", patched(base, patch{l2 + 8, copied | 0x50000}, patch{block0 + 12, uint16(0)}), 2, 2, 0},
		{"count 0, referenced", patched(base, patch{block0 + 10, uint16(0)}), 2, 1, 0},
		{"COPIED missing, count 1", patched(base, patch{l2, uint64(0x50000)}), 2, 0, 0},
		{"COPIED missing in L1", patched(base, patch{l1, uint64(l2)}), 2, 0, 0},
		{"reserved bits in L2 entry", patched(base, patch{l2, copied | 0x50000 | 1<<57}), 2, 2, 2},
		{"reserved bits in L1 entry", patched(base, patch{l1, copied | l2 | 1<<57}), 2, 2, 2},
		{"unaligned data entry", patched(base, patch{l2, copied | 0x50200}), 2, 2, 2},
		{"unaligned zero-prealloc entry", patched(base, patch{l2, copied | 0x50200 | 1}), 2, 2, 0},
		{"entry beyond EOF", patched(base, patch{l2, copied | 0x7000000}), 2, 2, 2},
		{"compressed entry with COPIED", patched(comp, patch{l2, entry | copied}), 2, 2, 2},
		{"corrupt bit only", patched(base, patch{72, uint64(2)}), 0, 0, 0},
		{"dirty bit only", patched(base, patch{72, uint64(1)}), 0, 0, 0},
		{"a leak", patched(base, patch{l2, uint64(0)}), 3, 0, 0},
		{"refcount block that is not aligned", patched(base, patch{0x10000, uint64(0x20200)}), 2, 1, 0},
		{"refcount block beyond the end", patched(base, patch{0x10000, uint64(0x9000000)}), 2, 1, 0},
		{"refcount block that is the L2 table", patched(base, patch{0x10000, uint64(l2)}), 2, 1, 0},
		{"two entries for one refcount block", patched(base, patch{0x10008, uint64(block0)}), 2, 1, 0},
		{"no refcount table", patched(base, patch{48, uint64(0)}, patch{56, uint32(0)}), 2, 1, 0},
		{"L2 table that is the refcount block", patched(base, patch{l1, copied | block0}), 2, 1, 2},
		{"L1 entry with a flag and no table", patched(base, patch{l1, copied}), 2, 2, 0},
		{"data where the L1 table is", patched(base, patch{l2, copied | l1}), 2, 2, 0},
		{"data where the refcount table is", patched(base, patch{l2, copied | 0x10000}), 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for level, want := range []int{c.plain, c.leaks, c.all} {
				d := memImage(t, c.image)
				r, lines, err := run(t, d, Options{Repair: Level(level)})
				if level > 0 && err == nil && r.CorruptionsFixed+r.LeaksFixed > 0 {
					r, _, err = run(t, d, Options{})
				}
				got := exitCode(r, err)
				if got != want {
					t.Errorf("level %d: exit %d, want %d: %+v %v %q", level, got, want, r, err, lines)
				}
				if got == 0 && level > 0 {
					if o := realCheck(t, writeFile(t, "i.qcow2", contents(t, d))); o.exit != 0 {
						t.Errorf("level %d: the real tool still says %d %q", level, o.exit, o.lines)
					}
					if h, err := layout.DecodeFixed(contents(t, d)); err != nil || h.Incompatible&3 != 0 {
						t.Errorf("level %d: the dirty or corrupt bit stays: %v", level, err)
					}
				}
			}
		})
	}
}
