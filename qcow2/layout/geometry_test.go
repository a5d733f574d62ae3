package layout

import "testing"

func TestLimitsOfEveryClusterSizeMatchTheTable(t *testing.T) {
	const ki, mi, gi, ti, pi, ei = 1 << 10, 1 << 20, 1 << 30, 1 << 40, 1 << 50, 1 << 60
	for _, c := range []struct {
		bits                                       uint8
		entries                                    int
		cover, disk, extDisk, refs, perBlock, host int64
		comp                                       HostOffset
	}{
		{9, 64, 32 * ki, 128 * gi, 0, 256, 128 * ki, 128 * gi, 64 * pi},
		{12, 512, 2 * mi, 8 * ti, 0, 2048, 8 * mi, 8 * ti, 64 * pi},
		{14, 2048, 32 * mi, 128 * ti, 64 * ti, 8192, 128 * mi, 128 * ti, 64 * pi},
		{16, 8192, 512 * mi, 2 * pi, 1 * pi, 32768, 2 * gi, 2 * pi, 16 * pi},
		{21, 262144, 512 * gi, 2 * ei, 1 * ei, 1048576, 2 * ti, 2 * ei, 512 * ti},
	} {
		g := Geometry{ClusterBits: c.bits, RefcountOrder: 4, Version: 3}
		if g.L2Entries() != c.entries || g.L2Coverage() != c.cover || g.MaxDiskSize() != c.disk || int64(g.RefcountsPerBlock()) != c.refs ||
			int64(g.RefcountsPerBlock())*g.ClusterSize() != c.perBlock || g.MaxHostSize() != c.host || g.MaxCompressedOffset() != c.comp {
			t.Errorf("2^%d: %d %d %d %d %d %v", c.bits, g.L2Entries(), g.L2Coverage(), g.MaxDiskSize(), g.RefcountsPerBlock(), g.MaxHostSize(), g.MaxCompressedOffset())
		}
		g.ExtendedL2 = true
		if (g.Validate() == nil) != (c.extDisk != 0) {
			t.Errorf("2^%d extended: %v", c.bits, g.Validate())
		}
		if c.extDisk != 0 && g.MaxDiskSize() != c.extDisk {
			t.Errorf("2^%d extended: %d", c.bits, g.MaxDiskSize())
		}
	}
}

func TestAddressesSplit(t *testing.T) {
	for _, c := range []struct {
		g      Geometry
		o      GuestOffset
		l1     int64
		l2, sc int
	}{
		{g64k, 0x2000, 0, 0, 0},
		{g64k, 512<<20 - 1, 0, 8191, 0},
		{g64k, 512<<20 + 65536, 1, 1, 0},
		{g64kExt, 256<<20 + 65536 + 2048*31, 1, 1, 31},
	} {
		if c.g.L1Index(c.o) != c.l1 || c.g.L2Index(c.o) != c.l2 || c.g.Subcluster(c.o) != c.sc {
			t.Errorf("%v: %d %d %d", c.o, c.g.L1Index(c.o), c.g.L2Index(c.o), c.g.Subcluster(c.o))
		}
	}
	g4k := Geometry{ClusterBits: 12, RefcountOrder: 4, Version: 3}
	if g4k.L1Needed(3<<20) != 2 || g4k.VMStateBase(3<<20) != 4<<20 || g4k.L1Needed(0) != 0 {
		t.Error("VM state base of a 3 MiB disk with 4 KiB clusters")
	}
}

func TestMeasureOfADefaultImageOf1GiB(t *testing.T) {
	required, full, err := g64k.Measure(MeasureInput{VirtualSize: 1 << 30})
	if err != nil || required != 393216 || full != 1074135040 {
		t.Fatal(required, full, err)
	}
	if _, _, err := g64k.Measure(MeasureInput{VirtualSize: 2<<50 + 1}); err == nil {
		t.Fatal("too large a disk was measured")
	}
}

func TestRangeEndRefusesOverflow(t *testing.T) {
	for _, c := range []struct {
		off HostOffset
		n   int64
		ok  bool
	}{{0, 0, true}, {1 << 62, 1<<62 - 1, true}, {1 << 62, 1 << 62, false}, {-1, 5, false}, {5, -1, false}} {
		if _, ok := RangeEnd(c.off, c.n); ok != c.ok {
			t.Errorf("%v+%d: %v", c.off, c.n, ok)
		}
	}
}
