package mem

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"byre/block"
)

var bg = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// model is a file as a flat byte array.
type model struct{ b []byte }

func (m *model) reach(end int64) {
	if d := end - int64(len(m.b)); d > 0 {
		m.b = append(m.b, make([]byte, d)...)
	}
}

func (m *model) write(p []byte, off int64) { m.reach(off + int64(len(p))); copy(m.b[off:], p) }
func (m *model) clear(off, end int64) {
	if end = min(end, int64(len(m.b))); off < end {
		clear(m.b[off:end])
	}
}
func (m *model) resize(n int64) { m.reach(n); m.b = m.b[:n:n] }

func TestRandomRequestsEqualAFlatArrayAlsoInClones(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		type pair struct {
			d *Driver
			m *model
		}
		first := NewFile("f", 0)
		if seed%2 == 1 {
			NewClock().Adopt(first)
		}
		pairs := []pair{{first.Open(Options{}), &model{}}}
		for range 300 {
			p := pairs[r.IntN(len(pairs))]
			off, n := r.Int64N(100<<10), 1+r.Int64N(1<<(1+r.IntN(15)))
			switch r.IntN(8) {
			case 0, 1, 2:
				b := make([]byte, n)
				for i := range b {
					b[i] = byte(1 + r.IntN(255))
				}
				cut := r.Int64N(n)
				must(t, p.d.WritevAt(bg, [][]byte{b[:cut], b[cut:]}, off, 0))
				p.m.write(b, off)
			case 3:
				must(t, p.d.ZeroAt(bg, off, n, block.MayUnmap))
				p.m.reach(off + n)
				p.m.clear(off, off+n)
			case 4:
				must(t, p.d.DiscardAt(bg, off, n))
				p.m.clear(off, off+n)
			case 5:
				must(t, p.d.Resize(bg, off, block.ResizeOptions{}))
				p.m.resize(off)
			case 6:
				if len(pairs) < 5 {
					pairs = append(pairs, pair{p.d.File().Clone().Open(Options{}), &model{bytes.Clone(p.m.b)}})
				}
			case 7:
				checkExtents(t, p.d, p.m.b)
			}
		}
		for i, p := range pairs {
			if !bytes.Equal(p.d.File().Bytes(), p.m.b) {
				t.Fatalf("seed %d: clone %d differs from its model", seed, i)
			}
		}
	}
}

// checkExtents walks all extents: they tile the file and zero ones hold zeros.
func checkExtents(t *testing.T, d *Driver, want []byte) {
	t.Helper()
	if d.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d", d.Size(), len(want))
	}
	for off := int64(0); off < d.Size(); {
		e, err := d.Extent(bg, off, d.Size()-off, block.WantZero)
		must(t, err)
		if e.Start != off || e.Length <= 0 || e.End() > d.Size() || (e.Flags&block.EOFExtent != 0) != (e.End() == d.Size()) {
			t.Fatalf("bad extent %+v at %d of %d", e, off, d.Size())
		}
		if e.IsZero() && len(bytes.Trim(want[off:e.End()], "\x00")) > 0 {
			t.Fatalf("extent %+v hides data", e)
		}
		off = e.End()
	}
}

func TestFarOffsetsCostNoMemory(t *testing.T) {
	d := New(0)
	for _, off := range []int64{0, 1 << 30, 1 << 40, 1 << 50, 1<<63 - 4097} {
		must(t, d.WritevAt(bg, [][]byte{[]byte("here")}, off, 0))
	}
	b := make([]byte, 6)
	must(t, d.ReadvAt(bg, [][]byte{b}, 1<<63-4099))
	if string(b) != "\x00\x00here" {
		t.Fatalf("%q", b)
	}
	e, err := d.Extent(bg, 8192, 1<<62, 0)
	must(t, err)
	if !e.IsZero() || e.End() != 1<<30 {
		t.Fatalf("%+v", e)
	}
	must(t, d.ZeroAt(bg, 1<<20, 1<<62, 0))
	must(t, d.Resize(bg, 1<<20, block.ResizeOptions{}))
	must(t, d.Resize(bg, 1<<51, block.ResizeOptions{}))
	if e, _ := d.Extent(bg, 8192, 1<<51-8192, 0); e.Length != 1<<51-8192 {
		t.Fatalf("%+v", e)
	}
}

func TestGrownSpaceIsGivenBackUnlessWritten(t *testing.T) {
	d := NewFile("f", 1000).Open(Options{GrowStep: 1 << 20})
	n, err := d.GrowTo(bg, 5000)
	must(t, err)
	if n != 1<<20 || d.Size() != 1<<20 {
		t.Fatal(n)
	}
	must(t, d.WritevAt(bg, [][]byte{{1}}, 9999, 0))
	if block.KindOf(d.CutTo(bg, 6000)) != block.KindInvalid || d.FreshFrom() != 10000 {
		t.Fatal("cut through what was written")
	}
	must(t, d.CutTo(bg, 10000))
	must(t, d.CutTo(bg, 20000))
	if d.Size() != 10000 || d.FreshFrom() != 10000 {
		t.Fatal(d.Size())
	}
	must(t, d.Resize(bg, 2000, block.ResizeOptions{}))
	must(t, d.Resize(bg, 9000, block.ResizeOptions{}))
	if d.FreshFrom() != 2000 {
		t.Fatal(d.FreshFrom())
	}
}

func TestOptionsShapeTheDriver(t *testing.T) {
	d := NewFile("f", 1000).Open(Options{Fixed: true, SlowZero: true, ReadOnly: true,
		Geometry: func(g *block.Geometry) { g.RequestAlign = 512 }})
	if g := d.Geometry(); g.Growable || g.QuickZero || !g.ReadOnly || g.RequestAlign != 512 {
		t.Fatalf("%+v", g)
	}
	must(t, d.WritevAt(bg, [][]byte{bytes.Repeat([]byte{1}, 512)}, 512, 0))
	if d.Size() != 1000 {
		t.Fatal("a write grew a fixed file")
	}
	if k := block.KindOf(d.ZeroAt(bg, 0, 512, block.NoFallback)); k != block.KindUnsupported {
		t.Fatal(k)
	}
	if k := block.KindOf(d.Resize(bg, 2000, block.ResizeOptions{})); k != block.KindUnsupported {
		t.Fatal(k)
	}
	must(t, d.Close())
	for i, err := range []error{d.Close(), d.Flush(bg), d.ReadvAt(bg, nil, 0), d.WritevAt(bg, nil, 0, 0),
		d.ZeroAt(bg, 0, 1, 0), d.DiscardAt(bg, 0, 1), d.Resize(bg, 1000, block.ResizeOptions{}), d.CutTo(bg, 0)} {
		if block.KindOf(err) != block.KindInvalid {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// history makes two files on one clock with every kind of event.
func history(t testing.TB) (*Clock, *File, *File) {
	clk := NewClock()
	a, b := clk.NewFile("a", 0), clk.NewFile("b", 0)
	da, db := a.Open(Options{}), b.Open(Options{})
	must(t, da.WritevAt(bg, [][]byte{bytes.Repeat([]byte{'o'}, 4096)}, 0, 0))
	clk.Reset()
	must(t, da.WritevAt(bg, [][]byte{bytes.Repeat([]byte{'x'}, 1500)}, 100, 0)) // 0
	must(t, db.WritevAt(bg, [][]byte{[]byte("data")}, 4, 0))                    // 1
	must(t, da.ZeroAt(bg, 2048, 512, 0))                                        // 2
	must(t, da.Flush(bg))                                                       // 3
	must(t, da.DiscardAt(bg, 0, 512))                                           // 4
	must(t, da.WritevAt(bg, [][]byte{[]byte("sure")}, 5000, block.FUA))         // 5
	must(t, da.Resize(bg, 3000, block.ResizeOptions{}))                         // 6
	must(t, db.Flush(bg))                                                       // 7
	return clk, a, b
}

func TestACutKeepsExactlyWhatIsDurableAndWhatIsChosen(t *testing.T) {
	clk, a, b := history(t)
	orig := bytes.Repeat([]byte{'o'}, 4096)
	written := bytes.Clone(orig)
	copy(written[100:], bytes.Repeat([]byte{'x'}, 1500))
	zeroed := bytes.Clone(written)
	clear(zeroed[2048:2560])
	sure := append(bytes.Clone(zeroed), make([]byte, 904)...)
	sure = append(sure, "sure"...)
	punched := bytes.Clone(sure)
	clear(punched[:512])
	torn := bytes.Clone(orig)
	copy(torn[1536:1600], bytes.Repeat([]byte{'x'}, 64))

	only := func(events ...int) Chooser {
		return func(i int, _ *Event) Fate {
			for _, e := range events {
				if e == i {
					return Keep
				}
			}
			return Drop
		}
	}
	for _, c := range []struct {
		name   string
		k      int
		choose Chooser
		open   string // volatile events
		a, b   []byte
	}{
		{"nothing has happened", 0, KeepAll, "[]", orig, nil},
		{"all is lost", 3, DropAll, "[0 1 2]", orig, nil},
		{"nil loses all", 3, nil, "[0 1 2]", orig, nil},
		{"all is kept", 3, KeepAll, "[0 1 2]", zeroed, []byte("\x00\x00\x00\x00data")},
		{"the older is kept", 3, only(0), "[0 1 2]", written, nil},
		{"a flush covers its file only", 4, DropAll, "[1]", zeroed, nil},
		{"fua needs no flush", 6, DropAll, "[1 4]", sure, nil},
		{"the punch goes below the fua write", 6, only(4), "[1 4]", punched, nil},
		{"a size change is an event", 7, only(6), "[1 4 6]", sure[:3000], nil},
		{"the other file is flushed", 8, DropAll, "[4 6]", sure, []byte("\x00\x00\x00\x00data")},
		{"a torn write keeps sectors", 1, func(int, *Event) Fate { return Suffix(3) }, "[0]", torn, nil},
	} {
		if got := fmt.Sprint(clk.Volatile(c.k)); got != c.open {
			t.Errorf("%s: volatile %s, want %s", c.name, got, c.open)
		}
		cr := clk.CrashAt(c.k, c.choose)
		if got := cr.File(a).Bytes(); !bytes.Equal(got, c.a) {
			t.Errorf("%s: a is %d bytes, differs from the expected %d", c.name, len(got), len(c.a))
		}
		if got := cr.File(b).Bytes(); !bytes.Equal(got, c.b) {
			t.Errorf("%s: b is %d bytes, differs from the expected %d", c.name, len(got), len(c.b))
		}
	}
}

func TestTornWritesKeepWholeSectors(t *testing.T) {
	clk := NewClock()
	f := clk.NewFile("f", 0)
	d := f.Open(Options{})
	must(t, d.WritevAt(bg, [][]byte{bytes.Repeat([]byte{1}, 1100)}, 500, 0)) // sectors 0..3, 12+512+512+64 bytes
	for _, c := range []struct {
		fate Fate
		size int
		ones int
	}{
		{Prefix(1), 512, 12}, {Prefix(2), 1024, 524}, {Prefix(9), 1600, 1100}, {Suffix(1), 1600, 1088},
		{Suffix(3), 1600, 64}, {SizeOnly, 1600, 0}, {Drop, 0, 0}, {Keep, 1600, 1100},
	} {
		b := clk.CrashAt(1, func(int, *Event) Fate { return c.fate }).File(f).Bytes()
		if len(b) != c.size || bytes.Count(b, []byte{1}) != c.ones {
			t.Errorf("%v: %d bytes, %d written", c.fate, len(b), bytes.Count(b, []byte{1}))
		}
	}
}

func TestEachVisitsEverySubsetOnceAndReplays(t *testing.T) {
	clk, a, b := history(t)
	seen := map[string]int{}
	total := 0
	for k := 0; k <= clk.Now(); k++ {
		n := clk.Each(k, Enumeration{Subsets: 64}, func(c *Crash) bool {
			s := fmt.Sprintf("%q %q", c.File(a).Bytes(), c.File(b).Bytes())
			seen[s]++
			again := clk.Replay(c.Cut, c.Chosen...)
			if !bytes.Equal(again.File(a).Bytes(), c.File(a).Bytes()) || c.Code() != again.Code() || c.String() == "" {
				t.Errorf("replay differs: %v", c)
			}
			return true
		})
		if k == 0 && n != 1 || k == 3 && n != 4 || k == 4 && n != 2 || k == 8 && n != 4 {
			t.Errorf("cut %d: %d states", k, n)
		}
		total += n
	}
	if len(seen) < 12 {
		t.Errorf("%d states, %d different", total, len(seen))
	}
	if n := clk.Each(3, Enumeration{Subsets: 64, All: true}, func(*Crash) bool { return true }); n != 8 {
		t.Errorf("all: %d", n)
	}
	if n := clk.Each(3, Enumeration{Subsets: 64, Torn: 50}, func(*Crash) bool { return true }); n != 4+50 {
		t.Errorf("torn: %d", n)
	}
	if n := clk.Each(3, Enumeration{Subsets: 64, All: true}, func(*Crash) bool { return false }); n != 1 {
		t.Errorf("stopped: %d", n)
	}
}

func TestEachStaysWithinItsBound(t *testing.T) {
	clk := NewClock()
	f := clk.NewFile("f", 0)
	d := f.Open(Options{})
	for i := range 100 {
		must(t, d.WritevAt(bg, [][]byte{bytes.Repeat([]byte{1}, 2000)}, int64(i*3000), 0))
	}
	for _, o := range []Enumeration{{Subsets: 2}, {Subsets: 40}, {Subsets: 1000, Torn: 100}} {
		whole, kept := map[string]bool{}, false
		n := clk.Each(100, o, func(c *Crash) bool {
			s := c.Code()
			whole[s] = true
			last := c.Chosen[99].Fate
			kept = last != Drop
			return kept
		})
		if n != o.Subsets+o.Torn || !kept || len(whole) < n*9/10 {
			t.Errorf("%+v: %d states, %d different", o, n, len(whole))
		}
	}
}

func TestACrashCanBeCrashedAgain(t *testing.T) {
	clk, a, _ := history(t)
	cr := clk.CrashAt(clk.Now(), KeepAll)
	second := cr.Record()
	g := cr.File(a)
	d := g.Open(Options{})
	must(t, d.WritevAt(bg, [][]byte{[]byte("repair")}, 0, 0))
	lost := second.CrashAt(second.Now(), DropAll)
	if b := lost.File(g).Bytes(); bytes.HasPrefix(b, []byte("repair")) || len(b) != 3000 {
		t.Fatalf("%d %q", len(b), b[:10])
	}
	if bytes.HasPrefix(a.Bytes(), []byte("repair")) {
		t.Fatal("the crash reached back")
	}
}

func BenchmarkCrashAt(b *testing.B) {
	clk := NewClock()
	f := clk.NewFile("f", 0)
	d := f.Open(Options{})
	r := rand.New(rand.NewPCG(1, 1))
	p := make([]byte, 4096)
	for i := range 1000 {
		must(b, d.WritevAt(bg, [][]byte{p}, r.Int64N(1<<30)&^4095, 0))
		if i%10 == 9 {
			must(b, d.Flush(bg))
		}
	}
	k, n := clk.Now()-2, 0
	b.ReportAllocs()
	for b.Loop() {
		n += len(clk.CrashAt(k, func(i int, _ *Event) Fate { return keepIf(i&1 == 0) }).Chosen)
	}
	b.ReportMetric(float64(n)/float64(b.N), "volatile")
}

func BenchmarkClone(b *testing.B) {
	d := New(0)
	must(b, d.WritevAt(bg, [][]byte{make([]byte, 64<<20)}, 0, 0))
	for b.Loop() {
		d.File().Clone()
	}
}

func BenchmarkWrite4K(b *testing.B) {
	d := New(64 << 20)
	iov := [][]byte{make([]byte, 4096)}
	off := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		must(b, d.WritevAt(bg, iov, off&(64<<20-1), 0))
		off += 4096
	}
}
