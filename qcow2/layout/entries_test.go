package layout

import (
	"testing"
)

var g64k = Geometry{ClusterBits: 16, RefcountOrder: 4, Version: 3}
var g64kExt = Geometry{ClusterBits: 16, RefcountOrder: 4, Version: 3, ExtendedL2: true}

func TestL1EntryOfTheWorkedExample(t *testing.T) {
	e := L1Entry(0x8000000000040000)
	if e.Offset() != 0x40000 || !e.Copied() || e.Reserved() != 0 || MakeL1Entry(0x40000, true) != e || e.WithCopied(false) != 0x40000 {
		t.Fatal(e)
	}
	if L1Entry(1<<63|0x7f<<56|0x1ff).Reserved() != 0x7f000000000001ff {
		t.Fatal("reserved bits")
	}
}

func TestStandardEntriesDecodeToTheirTypes(t *testing.T) {
	v2, data := g64k, g64k
	v2.Version, data.DataFile = 2, true
	for _, c := range []struct {
		g    Geometry
		e    L2Entry
		want ClusterType
	}{
		{g64k, 0, TypeUnallocated},
		{g64k, 1 << 63, TypeUnallocated},
		{data, 1 << 63, TypeNormal}, // guest 0 of a data file
		{data, 0, TypeUnallocated},
		{g64k, 1, TypeZeroPlain},
		{g64k, 0x8000000000050001, TypeZeroAlloc},
		{g64k, 0x8000000000050000, TypeNormal},
		{g64k, 0x4000000000050000, TypeCompressed},
		{g64k, 0x4000000000050001, TypeCompressed},
		{v2, 1, TypeInvalid},
		{v2, 0x50001, TypeInvalid},
		{v2, 0x50000, TypeNormal},
	} {
		if got := c.g.ClusterType(c.e); got != c.want {
			t.Errorf("%#x: %v, want %v", uint64(c.e), got, c.want)
		}
	}
}

func TestCompressedDescriptorsOfTheWorkedExamples(t *testing.T) {
	for _, c := range []struct {
		e    L2Entry
		off  HostOffset
		size int64
	}{
		{0x4e000000000570c9, 0x570c9, 28983},
		{0x4000000000050000, 0x50000, 512},
		{0x400000000005004f, 0x5004f, 433},
		{0x4e4000000005e173, 0x5e173, 29325},
	} {
		got, ok := g64k.DecodeCompressed(c.e)
		if !ok || got.Offset != c.off || got.Size != c.size {
			t.Errorf("%#x: %+v %v", uint64(c.e), got, ok)
		}
		if e, ok := g64k.MakeCompressed(c.off, c.size); !ok || e != c.e {
			t.Errorf("%#x encodes to %#x", uint64(c.e), uint64(e))
		}
	}
	// The last example's true length gives the same descriptor.
	if e, ok := g64k.MakeCompressed(0x5e173, 28888); !ok || e != 0x4e4000000005e173 {
		t.Errorf("%#x", uint64(e))
	}
}

func TestCompressedDescriptorsRoundTripAtTheLimitsOfEveryClusterSize(t *testing.T) {
	for bits := uint8(MinClusterBits); bits <= MaxClusterBits; bits++ {
		g := Geometry{ClusterBits: bits, RefcountOrder: 4, Version: 3}
		for _, off := range []HostOffset{0, 1, 511, 512, g.MaxCompressedOffset() - 1} {
			for _, n := range []int64{1, 511, 512, g.ClusterSize() - 1} {
				e, ok := g.MakeCompressed(off, n)
				if !ok {
					t.Fatalf("2^%d: %v+%d refused", bits, off, n)
				}
				c, ok := g.DecodeCompressed(e)
				if !ok || c.Offset != off || c.Size < n || c.Size >= n+SectorSize {
					t.Fatalf("2^%d: %v+%d gives %+v", bits, off, n, c)
				}
			}
		}
		if _, ok := g.MakeCompressed(g.MaxCompressedOffset(), 1); ok {
			t.Errorf("2^%d: offset limit not kept", bits)
		}
		if _, ok := g.MakeCompressed(1, 2*g.ClusterSize()); ok {
			t.Errorf("2^%d: sector limit not kept", bits)
		}
	}
	if _, ok := (Geometry{ClusterBits: 9}).DecodeCompressed(L2Entry(1<<62 | 1<<56)); ok {
		t.Error("offset bit 56 accepted")
	}
}

func TestExtendedEntriesOfTheWorkedExample(t *testing.T) {
	type run struct {
		t ClusterType
		n int
	}
	for _, c := range []struct {
		e    L2Entry
		b    L2Bitmap
		want []run
	}{
		{0x8000000000050000, 0x0000003080000005, []run{{TypeNormal, 1}, {TypeUnallocatedAlloc, 1}, {TypeNormal, 1}, {TypeUnallocatedAlloc, 1}, {TypeZeroAlloc, 2}, {TypeUnallocatedAlloc, 25}, {TypeNormal, 1}}},
		{0x8000000000060000, 3, []run{{TypeNormal, 2}, {TypeUnallocatedAlloc, 30}}},
		{0, 0xffffffff00000000, []run{{TypeZeroPlain, 32}}},
		{0, 0, []run{{TypeUnallocated, 32}}},
		{0x50000, BitmapAllAlloc, []run{{TypeNormal, 32}}},
		{0x50001, BitmapAllAlloc, []run{{TypeNormal, 32}}}, // bit 0 is ignored
		{0, 1, []run{{TypeInvalid, 32}}},
		{0x50000, 1<<32 | 1, []run{{TypeInvalid, 32}}},
		{0x4000000000050000, 0xffffffffffffffff, []run{{TypeCompressed, 32}}},
	} {
		sc := 0
		for i, want := range c.want {
			typ, n := g64kExt.SubclusterRun(c.e, c.b, sc)
			if (run{typ, n}) != want {
				t.Errorf("%#x %#x run %d at %d: %v×%d, want %+v", uint64(c.e), uint64(c.b), i, sc, typ, n, want)
			}
			sc += n
		}
		if sc != 32 {
			t.Errorf("%#x %#x: runs cover %d subclusters", uint64(c.e), uint64(c.b), sc)
		}
	}
}

func TestBitmapEditsKeepTheHalvesDisjoint(t *testing.T) {
	b := BitmapAllZero.WithAlloc(5, 16)
	if b != 0xffff001f0000ffe0 {
		t.Errorf("%#x", uint64(b))
	}
	if b = b.WithZero(0, 32); b != BitmapAllZero {
		t.Errorf("%#x", uint64(b))
	}
	if b = b.WithAlloc(0, 32); b != BitmapAllAlloc {
		t.Errorf("%#x", uint64(b))
	}
	if b = b.WithNone(1, 31); b != 0x80000001 {
		t.Errorf("%#x", uint64(b))
	}
}

func TestRefcountPackingOfEveryWidth(t *testing.T) {
	for order, want := range []string{"3f", "5505", "111111", "010101010101", "000100010001000100010001",
		"000000010000000100000001000000010000000100000001", "0000000000000001 0000000000000001 0000000000000001 0000000000000001 0000000000000001 0000000000000001"} {
		block := make([]byte, 512)
		for i := 0; i < 6; i++ {
			SetRefcount(block, uint8(order), i, 1)
		}
		w := unhex(t, want)
		if string(block[:len(w)]) != string(w) || CountNonzero(block, uint8(order), 512*8>>order) != 6 {
			t.Errorf("order %d: %x", order, block[:len(w)])
		}
	}
}

func TestRefcountsDoNotDisturbTheirNeighbours(t *testing.T) {
	for order := uint8(0); order <= MaxRefcountOrder; order++ {
		g := Geometry{ClusterBits: 9, RefcountOrder: order, Version: 3}
		block := make([]byte, 512)
		n := g.RefcountsPerBlock()
		value := func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 & g.MaxRefcount() }
		for i := n - 1; i >= 0; i-- {
			SetRefcount(block, order, i, g.MaxRefcount())
		}
		nonzero := 0
		for i := 0; i < n; i++ {
			SetRefcount(block, order, i, value(i))
			if value(i) != 0 {
				nonzero++
			}
		}
		for i := 0; i < n; i++ {
			if got := Refcount(block, order, i); got != value(i) {
				t.Fatalf("order %d counter %d: %d, want %d", order, i, got, value(i))
			}
		}
		if got := CountNonzero(block, order, n); got != nonzero {
			t.Errorf("order %d: %d counters are not zero, want %d", order, got, nonzero)
		}
	}
}

func TestBitmapTableEntriesDecode(t *testing.T) {
	for e, want := range map[BitmapTableEntry]struct{ valid, ones bool }{
		0: {true, false}, 1: {true, true}, 0x90000: {true, false}, 0x90001: {false, false}, 0x90200: {false, false}, 1 << 60: {false, false}, 2: {false, false},
	} {
		if e.Valid(g64k) != want.valid || e.AllOnes() != want.ones {
			t.Errorf("%#x: valid %v ones %v", uint64(e), e.Valid(g64k), e.AllOnes())
		}
	}
}
