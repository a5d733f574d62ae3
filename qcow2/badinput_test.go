package qcow2

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"byre/block"
	"byre/internal/testenv"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

// load brings a host file into memory, holes as holes.
func load(t testing.TB, path string) *mem.File {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := mem.NewFile("image", int64(len(b)))
	for off := 0; off < len(b); off += 4096 {
		if part := b[off:min(off+4096, len(b))]; !allZero(part) {
			if _, err := f.WriteAt(part, int64(off)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// openMem opens an image in memory, read-only.
func openMem(f *mem.File) (*Image, error) {
	return Open(ctx, block.NewDevice(f.Open(mem.Options{ReadOnly: true})), Options{})
}

// sampleImage has clusters of all kinds, a snapshot and a bitmap, or data at
// its end instead of the bitmap.
func sampleImage(t testing.TB, options string, bitmap bool) *mem.File {
	t.Helper()
	p := filepath.Join(t.TempDir(), "sample.qcow2")
	mustCreate(t, p, options, "1M")
	im, err := openMem(load(t, p))
	if err != nil {
		t.Fatal(err)
	}
	cs := im.geo.ClusterSize()
	im.Close()
	script(t, p, fmt.Sprintf("write -c -P 3 0 %d", cs), fmt.Sprintf("write -c -P 4 %d %d", cs, cs),
		fmt.Sprintf("write -P 1 %d 150k", 3*cs), "write -z 400k 100k", "write -P 2 700k 30k")
	testenv.Run(t, "qemu-img", "snapshot", "-c", "snap", p)
	script(t, p, "write -P 5 701k 1k")
	if bitmap {
		testenv.Run(t, "qemu-img", "bitmap", "--add", p, "bits")
	} else {
		script(t, p, "write -P 6 800k 150k")
	}
	return load(t, p)
}

// exercise does everything that reading can do with an image and returns the
// bytes of the disk, nil if they could not all be read. Work and memory must
// be bounded whatever the image says.
func exercise(t testing.TB, f *mem.File) []byte {
	t.Helper()
	im, err := openMem(f)
	if err != nil {
		wantKind(t, err)
		return nil
	}
	dev := block.NewDevice(im)
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if n := im.budget.Used(); n != 0 {
			t.Errorf("%d bytes of cache left", n)
		}
	}()
	if _, err := im.Info(ctx); err != nil {
		wantKind(t, err)
	}
	for i, s := range im.Snapshots() {
		if i == 20 {
			break
		}
		v, err := im.OpenSnapshot(s.ID)
		if err != nil {
			wantKind(t, err)
			continue
		}
		walk(t, block.NewDevice(v), 200)
		v.Close()
	}
	walk(t, dev, 2000)
	if over := im.budget.Used() - im.budget.Limit(); over > 1<<20 {
		t.Errorf("%d bytes of cache above the limit", over)
	}
	if dev.Size() > 8<<20 {
		return nil
	}
	b := make([]byte, dev.Size())
	if err := dev.Read(ctx, b, 0); err != nil {
		wantKind(t, err)
		return nil
	}
	return b
}

// walk asks for extents and reads the start of each.
func walk(t testing.TB, dev *block.Device, steps int) {
	t.Helper()
	buf := make([]byte, 70000)
	for off := int64(0); off < dev.Size() && steps > 0; steps-- {
		e, err := dev.Extent(ctx, off, dev.Size()-off, block.WantZero)
		if err != nil {
			wantKind(t, err)
			off += 65536
			continue
		}
		b := buf[:min(e.Length, int64(len(buf)))]
		if err := dev.Read(ctx, b, off); err != nil {
			wantKind(t, err)
		} else if e.IsZero() && !allZero(b) {
			t.Fatalf("%+v does not read as zeros", e)
		}
		off = e.End()
	}
}

// wantKind fails the test unless err is a proper error about an image.
func wantKind(t testing.TB, err error) {
	t.Helper()
	switch block.KindOf(err) {
	case block.KindCorrupt, block.KindUnsupported, block.KindInvalid, block.KindRefused:
	default:
		t.Errorf("%v has kind %v", err, block.KindOf(err))
	}
}

func TestTruncationAtEverySectorGivesAnErrorOrZerosBehindTheCut(t *testing.T) {
	for _, options := range []string{"cluster_size=4096", "cluster_size=65536,compression_type=zstd", "cluster_size=16384,extended_l2=on"} {
		t.Run(options, func(t *testing.T) {
			f := sampleImage(t, options, false)
			im, err := openMem(f)
			if err != nil {
				t.Fatal(err)
			}
			defer im.Close()
			dev := block.NewDevice(im)
			full := make([]byte, dev.Size())
			if err := dev.Read(ctx, full, 0); err != nil {
				t.Fatal(err)
			}
			var extents []block.Extent
			for off := int64(0); off < dev.Size(); {
				e, err := dev.Extent(ctx, off, dev.Size()-off, 0)
				if err != nil {
					t.Fatal(err)
				}
				extents = append(extents, e)
				off = e.End()
			}
			refused, whole := 0, 0
			for cut := f.Size() - 1; cut >= 0; cut = (cut - 1) &^ 511 {
				c := f.Clone()
				truncate(t, c, cut)
				got := exercise(t, c)
				if got == nil {
					refused++
					continue
				}
				whole++
				want := append([]byte(nil), full...)
				for _, e := range extents {
					if e.Flags&block.HasHost != 0 && e.Flags&block.Data != 0 && e.Host+e.Length > cut {
						clear(want[e.Start+max(0, cut-e.Host) : e.End()])
					}
				}
				diff(t, fmt.Sprintf("cut at %#x", cut), got, want)
			}
			if refused == 0 || whole == 0 {
				t.Errorf("%d cuts refused, %d read", refused, whole)
			}
		})
	}
}

func truncate(t testing.TB, f *mem.File, size int64) {
	t.Helper()
	d := block.NewDevice(f.Open(mem.Options{}))
	if err := d.Resize(ctx, size, block.ResizeOptions{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestEveryHeaderFieldAtItsExtremesIsHandled(t *testing.T) {
	f := sampleImage(t, "cluster_size=4096", true)
	values := []uint64{0, 1, 2, 3, 7, 8, 9, 16, 21, 22, 31, 63, 64, 104, 112, 120, 512, 4096, 65536, 1 << 20, 1 << 31, 1<<32 - 1,
		1 << 55, 1 << 56, 1<<63 - 4096, 1<<63 - 1, 1 << 63, 1<<64 - 4096, 1<<64 - 1}
	fields := []struct{ off, size int }{{0, 4}, {4, 4}, {8, 8}, {16, 4}, {20, 4}, {24, 8}, {32, 4}, {36, 4}, {40, 8}, {48, 8}, {56, 4}, {60, 4},
		{64, 8}, {72, 8}, {80, 8}, {88, 8}, {96, 4}, {100, 4}, {104, 1}, {112, 4}, {116, 4}}
	for _, field := range fields {
		for _, v := range values {
			c := f.Clone()
			b := make([]byte, 8)
			binary.BigEndian.PutUint64(b, v)
			if _, err := c.WriteAt(b[8-field.size:], int64(field.off)); err != nil {
				t.Fatal(err)
			}
			exercise(t, c)
		}
	}
}

// tables are the places in the sample image whose bytes decide about others.
func tables(t testing.TB, f *mem.File) map[string]layout.HostOffset {
	t.Helper()
	im, err := openMem(f)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	h := im.Header()
	l1, err := im.l1.Load().get(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	rt := make([]byte, 8)
	if _, err := f.ReadAt(rt, int64(h.RefcountTableOffset)); err != nil {
		t.Fatal(err)
	}
	return map[string]layout.HostOffset{
		"L1": h.L1TableOffset, "refcount table": h.RefcountTableOffset, "snapshots": h.SnapshotsOffset,
		"bitmaps": h.Bitmaps.DirectoryOffset, "L2": layout.L1Entry(l1).Offset(),
		"refcount block": layout.RefTableEntry(layout.Word(rt, 0)).Offset(), "snapshot L1": im.Snapshots()[0].L1TableOffset,
	}
}

func TestTablesThatLieInOneAnotherAreHandled(t *testing.T) {
	for _, options := range []string{"cluster_size=4096", "cluster_size=65536", "cluster_size=16384,extended_l2=on"} {
		f := sampleImage(t, options, true)
		places := tables(t, f)
		targets := []uint64{0, 512, 1 << 55, 1<<56 - 65536, 1<<63 - 65536, 1 << 62, 1<<62 | 1<<61, 1<<64 - 65536, uint64(f.Size()) &^ 65535, uint64(f.Size())&^65535 + 65536}
		for _, p := range places {
			targets = append(targets, uint64(p), uint64(p)|1<<63, uint64(p)|1<<62, uint64(p)|1, uint64(p)+512)
		}
		for name, place := range places {
			for i := int64(0); i < 6; i++ {
				for _, v := range targets {
					c := f.Clone()
					b := make([]byte, 8)
					binary.BigEndian.PutUint64(b, v)
					if _, err := c.WriteAt(b, int64(place)+8*i); err != nil {
						t.Fatal(name, err)
					}
					exercise(t, c)
				}
			}
		}
		for _, field := range []int64{40, 48, 64} { // header fields that point to tables
			for _, v := range targets {
				c := f.Clone()
				b := make([]byte, 8)
				binary.BigEndian.PutUint64(b, v)
				if _, err := c.WriteAt(b, field); err != nil {
					t.Fatal(err)
				}
				exercise(t, c)
			}
		}
	}
}

func TestDataAndL2TablesInsideMetadataAreRefusedOnAccess(t *testing.T) {
	f := sampleImage(t, "cluster_size=4096", true)
	places := tables(t, f)
	read := func(c *mem.File) error {
		im, err := openMem(c)
		if err != nil {
			t.Fatal(err)
		}
		defer im.Close()
		return im.ReadvAt(ctx, [][]byte{make([]byte, 4096)}, 3*4096)
	}
	if err := read(f); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"header", "L1", "refcount table", "snapshots"} {
		for _, at := range []int64{int64(places["L2"]) + 3*8, int64(places["L1"])} {
			c := f.Clone()
			b := binary.BigEndian.AppendUint64(nil, uint64(places[name])|1<<63)
			if name == "header" {
				b = binary.BigEndian.AppendUint64(nil, 1<<62) // compressed at offset 0
				if at == int64(places["L1"]) {
					continue // offset 0 there means that there is no table
				}
			}
			if _, err := c.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
			if err := read(c); block.KindOf(err) != block.KindCorrupt {
				t.Errorf("entry at %#x that points into the %s: %v", at, name, err)
			}
		}
	}
}

func TestDamagedStreamsAreCorruptAndLeaveTheRestReadable(t *testing.T) {
	for _, typ := range []string{"zlib", "zstd"} {
		f := sampleImage(t, "cluster_size=65536,compression_type="+typ, true)
		im, err := openMem(f)
		if err != nil {
			t.Fatal(err)
		}
		var m mapping
		if err := im.lookup(ctx, 0, 65536, 0, &m); err != nil || m.typ != layout.TypeCompressed {
			t.Fatal(m, err)
		}
		im.Close()
		for i := int64(0); i < 12; i++ {
			for _, x := range []byte{0, 0xff, 0x55} {
				c := f.Clone()
				if _, err := c.WriteAt([]byte{x}, int64(m.host)+i); err != nil {
					t.Fatal(err)
				}
				exercise(t, c)
			}
		}
		c := f.Clone()
		if _, err := c.WriteAt([]byte{7, 7, 7, 7, 7, 7}, int64(m.host)); err != nil {
			t.Fatal(err)
		}
		im, err = openMem(c)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 65536)
		if err := im.ReadvAt(ctx, [][]byte{buf}, 0); block.KindOf(err) != block.KindCorrupt {
			t.Error(typ, err)
		}
		for range 2 { // the second time it must not come from what is kept
			if err := im.ReadvAt(ctx, [][]byte{buf[:100]}, 5); block.KindOf(err) != block.KindCorrupt {
				t.Error(typ, err)
			}
		}
		if err := im.ReadvAt(ctx, [][]byte{buf}, 3*65536); err != nil || buf[0] != 1 {
			t.Error(typ, err, buf[0])
		}
		im.Close()
	}
}

// hugeImage is a sparse file of the largest length with the largest legal L1
// table, whose entries name far tables as entry says.
func hugeImage(t testing.TB, entry func(i int64) uint64) *mem.File {
	t.Helper()
	const cs = 2 << 20
	f := mem.NewFile("huge", math.MaxInt64)
	h := &layout.Header{Version: 3, ClusterBits: 21, Size: 2 << 60, L1Size: layout.MaxL1Entries, L1TableOffset: 4 * cs,
		RefcountTableOffset: cs, RefcountTableClusters: 4, RefcountOrder: 4}
	h.RefcountTableClusters = 3
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if entry != nil {
		b := make([]byte, layout.MaxL1Bytes)
		for i := range int64(layout.MaxL1Entries) {
			binary.BigEndian.PutUint64(b[8*i:], entry(i))
		}
		if _, err := f.WriteAt(b, 4*cs); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestWorkFollowsAllocatedDataNotLength(t *testing.T) {
	for name, entry := range map[string]func(int64) uint64{
		"empty tables":                          nil,
		"an own table in a hole for each entry": func(i int64) uint64 { return uint64(100+i) << 21 },
	} {
		t.Run(name, func(t *testing.T) {
			im, err := openMem(hugeImage(t, entry))
			if err != nil {
				t.Fatal(err)
			}
			dev := block.NewDevice(im)
			defer dev.Close()
			start := time.Now()
			calls := 0
			for off := int64(0); off < dev.Size(); calls++ {
				e, err := dev.Extent(ctx, off, dev.Size()-off, block.WantZero)
				if err != nil {
					t.Fatal(err)
				}
				off = e.End()
			}
			t.Logf("%d extents in %v", calls, time.Since(start))
			if calls > layout.MaxL1Entries+1024 {
				t.Errorf("%d extents", calls)
			}
			if over := im.budget.Used() - im.budget.Limit(); over > 1<<20 {
				t.Errorf("%d bytes of cache above the limit", over)
			}
		})
	}
}
