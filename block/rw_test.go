package block

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// geometries are what the random requests run over.
var geometries = []Geometry{
	{},
	{Growable: true},
	{RequestAlign: 512},
	{RequestAlign: 512, Growable: true},
	{RequestAlign: 4096, Growable: true, MaxTransfer: 8192, MaxZero: 12288, MaxDiscard: 5000, ZeroAlign: 8192},
	{RequestAlign: 4096, MaxTransfer: 20000, MaxIovec: 2, ZeroAlign: 16384, DiscardAlign: 16384, MaxDiscard: 16384},
	{RequestAlign: 512, MaxIovec: 1, MaxZero: 512},
	{RequestAlign: 1, MaxTransfer: 1000, MaxIovec: 3, Growable: true},
	{RequestAlign: 512, MaxTransfer: 100, Growable: true}, // less than a unit: a unit at a time
	{RequestAlign: 4096, MaxSize: 150000, Growable: true},
}

func TestRandomRequestsEqualAFlatArrayOverAnyGeometry(t *testing.T) {
	for i, g := range geometries {
		for seed := range uint64(6) {
			const start = 100_003 // a multiple of nothing
			f := newFake(t, start, 1<<19, g)
			f.noZero = seed%2 == 1
			d := NewDevice(f)
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			m := make([]byte, 1<<19)
			for j := range start {
				m[j] = byte(r.Uint32())
			}
			copy(f.data, m)
			size := func() int64 { return f.size.Load() }
			span := func(limit int64) (int64, int64) {
				off := r.Int64N(limit)
				n := 1 + r.Int64N(1<<(1+r.IntN(15)))
				if r.IntN(3) == 0 {
					off, n = off&^4095, (n+4095)&^4095
				}
				if r.IntN(8) == 0 {
					n = limit - off
				}
				return off, min(n, limit-off)
			}
			limit := func() int64 {
				switch {
				case g.MaxSize > 0:
					return g.MaxSize &^ 4095
				case g.Growable:
					return size() + 20000
				}
				return size()
			}
			for range 300 {
				switch r.IntN(6) {
				case 0, 1:
					off, n := span(limit())
					if limit() > 1<<18 {
						continue
					}
					b := make([]byte, n)
					for j := range b {
						b[j] = byte(r.Uint32())
					}
					must(t, d.Writev(bg, shred(r, b), off, 0))
					copy(m[off:], b)
				case 2:
					off, n := span(limit())
					if limit() > 1<<18 {
						continue
					}
					fl := Flags(r.IntN(2)) * NoFallback
					err := d.Zero(bg, off, n, fl)
					if fl != 0 && errors.Is(err, ErrUnsupported) {
						if !f.noZero && (off|n)&(f.geo.RequestAlign-1) == 0 {
							t.Fatal("quick zeros refused")
						}
						copy(m, f.data[:size()]) // parts may have been done
						continue
					}
					must(t, err)
					clear(m[off : off+n])
				case 3:
					off, n := span(size())
					must(t, d.Discard(bg, off, n))
					end := min(off+n, size())
					for j := off; j < end; j++ { // may be gone or not, but nothing else
						if f.data[j] != m[j] && f.data[j] != 0 {
							t.Fatal("discard wrote something")
						}
					}
					copy(m[off:end], f.data[off:end])
				case 4:
					off, n := span(size())
					b := make([]byte, n)
					must(t, d.Readv(bg, shred(r, b), off))
					if !bytes.Equal(b, m[off:off+n]) {
						t.Fatalf("geometry %d seed %d: read %d+%d differs", i, seed, off, n)
					}
				case 5:
					n := min(size()+r.Int64N(5000)-2500, 1<<18)
					if g.MaxSize > 0 {
						n = min(n, g.MaxSize)
					}
					old := size()
					must(t, d.Resize(bg, n, ResizeOptions{}))
					if n < old {
						clear(m[n:])
					}
				}
				if !bytes.Equal(f.data[:size()], m[:size()]) {
					t.Fatalf("geometry %d seed %d: contents differ after %v", i, seed, f.seen())
				}
				f.seen()
			}
			must(t, d.Close())
		}
	}
}

// shred cuts b into pieces, some empty.
func shred(r *rand.Rand, b []byte) (iov [][]byte) {
	for len(b) > 0 && len(iov) < 20 {
		k := min(r.IntN(2000), len(b))
		iov, b = append(iov, b[:k:k]), b[k:]
	}
	return append(iov, b)
}

func TestRequestsReachTheDriverInThisShape(t *testing.T) {
	for _, c := range []struct {
		name string
		geo  Geometry
		size int64
		do   func(d *Device) error
		want string
	}{
		{"aligned", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Write(bg, make([]byte, 512), 512, FUA) }, "write-fua 512+512"},
		{"empty", Geometry{}, 8192, func(d *Device) error { return d.Write(bg, nil, 0, 0) }, ""},
		{"read a part", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Read(bg, make([]byte, 2), 1023) }, "read 512+1024"},
		{"write within a unit", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Write(bg, make([]byte, 2), 700, 0) },
			"read 512+512, write 512+512"},
		{"write over two units: one read", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Write(bg, make([]byte, 512), 700, 0) },
			"read 512+1024, write 512+1024"},
		{"write with a head", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Write(bg, make([]byte, 836), 700, 0) },
			"read 512+512, write 512+1024"},
		{"write with head and tail", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Write(bg, make([]byte, 2000), 700, 0) },
			"read 512+512, read 2560+512, write 512+2560"},
		{"the tail at the end of the file", Geometry{RequestAlign: 512, Growable: true}, 2600, func(d *Device) error { return d.Write(bg, make([]byte, 2000), 700, 0) },
			"read 512+512, read 2560+512, write 512+2560"},
		{"units behind the end are not read", Geometry{RequestAlign: 512, Growable: true}, 600, func(d *Device) error { return d.Write(bg, make([]byte, 2000), 1200, 0) },
			"write 1024+2560"},
		{"split by length", Geometry{RequestAlign: 512, MaxTransfer: 2000}, 8192, func(d *Device) error { return d.Read(bg, make([]byte, 4096), 0) },
			"read 0+1536, read 1536+1536, read 3072+1024"},
		{"split by buffers", Geometry{MaxIovec: 2}, 8192, func(d *Device) error {
			return d.Readv(bg, [][]byte{make([]byte, 5), make([]byte, 6), nil, make([]byte, 7)}, 0)
		},
			"read 0+11, read 11+7"},
		{"buffers smaller than a unit are gathered", Geometry{RequestAlign: 512, MaxIovec: 1}, 8192,
			func(d *Device) error { return d.Writev(bg, [][]byte{make([]byte, 5), make([]byte, 1019)}, 0, 0) }, "write 0+1024"},
		{"zero around quick units", Geometry{RequestAlign: 512, ZeroAlign: 4096}, 32768, func(d *Device) error { return d.Zero(bg, 100, 20000, 0) },
			"read 0+512, write 0+512, zero 512+3584, zero 4096+12288, zero 16384+3584, read 19968+512, write 19968+512"},
		{"zero within a unit", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Zero(bg, 600, 10, 0) }, "read 512+512, write 512+512"},
		{"zero over two units", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Zero(bg, 600, 600, 0) },
			"read 512+512, write 512+512, read 1024+512, write 1024+512"},
		{"zero to an odd end", Geometry{RequestAlign: 512}, 1000, func(d *Device) error { return d.Zero(bg, 512, 488, 0) }, "zero 512+512"},
		{"zero split", Geometry{RequestAlign: 512, MaxZero: 5000, ZeroAlign: 1024}, 8192, func(d *Device) error { return d.Zero(bg, 512, 6656, 0) },
			"zero 512+512, zero 1024+4096, zero 5120+2048"},
		{"discard whole units only", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Discard(bg, 100, 2000) }, "discard 512+1536"},
		{"discard nothing whole", Geometry{RequestAlign: 512}, 8192, func(d *Device) error { return d.Discard(bg, 100, 500) }, ""},
		{"discard to an odd end", Geometry{RequestAlign: 512}, 1000, func(d *Device) error { return d.Discard(bg, 100, 900) }, "discard 512+512"},
		{"discard split", Geometry{RequestAlign: 512, DiscardAlign: 2048, MaxDiscard: 4096}, 16384, func(d *Device) error { return d.Discard(bg, 512, 9000) },
			"discard 512+3584, discard 4096+4096, discard 8192+1024"},
	} {
		f := newFake(t, c.size, 1<<16, c.geo)
		if err := c.do(NewDevice(f)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := strings.Join(f.seen(), ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestZerosAreWrittenWhereTheDriverCannot(t *testing.T) {
	f := newFake(t, 5<<20, 5<<20, Geometry{RequestAlign: 512, MaxIovec: 20})
	f.noZero = true
	for i := range f.data {
		f.data[i] = 1
	}
	d := NewDevice(f)
	must(t, d.Zero(bg, 512, 4<<20, 0))
	if got := strings.Join(f.seen(), ", "); got != "zero 512+4194304, write 512+1310720, write 1311232+786432, write 2097664+1310720, write 3408384+786432" {
		t.Error(got)
	}
	if n := bytes.Count(f.data, []byte{0}); n != 4<<20 {
		t.Errorf("%d zeros", n)
	}
	if err := d.Zero(bg, 512, 512, NoFallback); !errors.Is(err, ErrUnsupported) || len(f.seen()) != 1 {
		t.Error(err)
	}
	if err := d.Zero(bg, 5, 512, NoFallback); !errors.Is(err, ErrUnsupported) || len(f.seen()) != 0 {
		t.Error(err)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	f := newFake(t, 8192, 8192, Geometry{RequestAlign: 512})
	d := NewDevice(f)
	b := make([]byte, 10)
	ro := NewDevice(newFake(t, 8192, 8192, Geometry{ReadOnly: true}))
	grow := NewDevice(newFake(t, 8192, 8192, Geometry{Growable: true, RequestAlign: 512}))
	capped := NewDevice(newFake(t, 8192, 16384, Geometry{Growable: true, MaxSize: 10000}))
	for name, c := range map[string]struct {
		err  error
		kind Kind
	}{
		"negative":            {d.Read(bg, b, -1), KindInvalid},
		"read over the end":   {d.Read(bg, b, 8190), KindOutOfBounds},
		"read behind the end": {d.Read(bg, b, 1<<62), KindOutOfBounds},
		"write over the end":  {d.Write(bg, b, 8190, 0), KindOutOfBounds},
		"huge length":         {d.Zero(bg, 10, 1<<63-1, 0), KindOutOfBounds},
		"negative length":     {d.Discard(bg, 10, -5), KindInvalid},
		"up to 2^63":          {grow.Write(bg, b, 1<<63-11, 0), KindOutOfBounds},
		"zero up to 2^63":     {grow.Zero(bg, 512, 1<<63-1-512, 0), KindOutOfBounds},
		"beyond the maximum":  {capped.Write(bg, b, 9995, 0), KindOutOfBounds},
		"grow too far":        {capped.Resize(bg, 10001, ResizeOptions{}), KindOutOfBounds},
		"negative size":       {capped.Resize(bg, -1, ResizeOptions{}), KindInvalid},
		"read-only write":     {ro.Write(bg, b, 0, 0), KindInvalid},
		"read-only zero":      {ro.Zero(bg, 0, 1, 0), KindInvalid},
		"read-only discard":   {ro.Discard(bg, 0, 1), KindInvalid},
		"read-only resize":    {ro.Resize(bg, 0, ResizeOptions{}), KindInvalid},
		"no reopen":           {ro.Reopen(bg, ReopenOptions{}), KindUnsupported},
		"no fresh space":      {d.CutTo(bg, 0), KindUnsupported},
	} {
		if KindOf(c.err) != c.kind {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

func TestErrorsOfEachStepReachTheCaller(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		name  string
		calls int
		do    func(d *Device) error
	}{
		{"rmw", 3, func(d *Device) error { return d.Write(bg, make([]byte, 2000), 700, 0) }},
		{"split", 4, func(d *Device) error { return d.Read(bg, make([]byte, 8192), 0) }},
		{"padded read", 1, func(d *Device) error { return d.Read(bg, make([]byte, 100), 10) }},
		{"zero", 5, func(d *Device) error { return d.Zero(bg, 100, 5000, 0) }},
		{"discard", 1, func(d *Device) error { return d.Discard(bg, 0, 4096) }},
		{"resize", 1, func(d *Device) error { return d.Resize(bg, 1000, ResizeOptions{}) }},
	} {
		for i := range c.calls {
			f := newFake(t, 8192, 16384, Geometry{RequestAlign: 512, MaxTransfer: 4096, MaxIovec: 8})
			if c.name == "split" {
				f.geo.MaxTransfer = 2048
			}
			d := NewDevice(f)
			f.hold.Store(true)
			e := async(func() error { return c.do(d) })
			for j := range i + 1 {
				var err error
				if j == i {
					err = bad
				}
				f.next().end <- err
			}
			if err := <-e; !errors.Is(err, bad) {
				t.Errorf("%s, call %d: %v", c.name, i, err)
			}
			if d.InFlight() != 0 {
				t.Errorf("%s: in flight after its error", c.name)
			}
		}
	}
}

func TestRequestsAllocateNothing(t *testing.T) {
	d := NewDevice(null{Geometry{RequestAlign: 512}})
	b := make([]byte, 4096)
	v := [][]byte{b[:2048], b[2048:]}
	for name, do := range map[string]func(){
		"read":          func() { must(t, d.Read(bg, b, 4096)) },
		"readv":         func() { must(t, d.Readv(bg, v, 4096)) },
		"write":         func() { must(t, d.Write(bg, b, 4096, 0)) },
		"writev":        func() { must(t, d.Writev(bg, v, 4096, 0)) },
		"padded read":   func() { must(t, d.Read(bg, b, 100)) },
		"padded write":  func() { must(t, d.Write(bg, b, 100, 0)) },
		"zero":          func() { must(t, d.Zero(bg, 4096, 4096, 0)) },
		"discard":       func() { must(t, d.Discard(bg, 4096, 4096)) },
		"flush":         func() { must(t, d.Flush(bg)) },
		"serialising":   func() { must(t, d.Write(bg, b, 4096, Serialising)) },
		"unaligned end": func() { must(t, d.Zero(bg, 4096, 100, 0)) },
	} {
		if n := testing.AllocsPerRun(200, do); n >= 1 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, ser := range []bool{false, true} {
		for _, par := range []bool{false, true} {
			b.Run(fmt.Sprintf("serialising=%v/parallel=%v", ser, par), func(b *testing.B) {
				d := NewDevice(null{Geometry{RequestAlign: 512}})
				var fl Flags
				if ser {
					fl = Serialising
				}
				p := make([]byte, 4096)
				b.ReportAllocs()
				if !par {
					for b.Loop() {
						d.Write(bg, p, 4096, fl)
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					off := int64(rand.IntN(1<<20)) << 12
					for pb.Next() {
						d.Write(bg, p, off, fl)
					}
				})
			})
		}
	}
}
