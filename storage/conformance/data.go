package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"byre/block"
)

func testGeometry(t *testing.T, m Maker) {
	s := m.open(t, mib)
	defer s.close()
	g := s.Geometry()
	pow2 := func(name string, n int64, zeroOK bool) {
		if n == 0 && zeroOK {
			return
		}
		if n <= 0 || n&(n-1) != 0 {
			t.Errorf("%s is %d, not a power of two", name, n)
		}
	}
	pow2("RequestAlign", g.RequestAlign, false)
	pow2("MemAlign", int64(g.MemAlign), false)
	pow2("ZeroAlign", g.ZeroAlign, true)
	pow2("DiscardAlign", g.DiscardAlign, true)
	pow2("ClusterSize", g.ClusterSize, true)
	if g.ReadOnly {
		t.Error("a new storage is read-only")
	}
	if g.Path == "" {
		t.Error("the storage has no name for errors to say")
	}
}

func testFresh(t *testing.T, m Maker) {
	s := m.open(t, 3*mib)
	defer s.close()
	s.verify(seeded(t), 0, 3*mib)
}

func testVectors(t *testing.T, m Maker) {
	r := seeded(t)
	s := m.open(t, 8*mib)
	defer s.close()
	// More buffers than any system call takes, of sizes that are no multiple of anything.
	data := random(r, 6*mib)
	var v [][]byte
	for rest := data; len(rest) > 0; {
		n := min(1+r.IntN(4000), len(rest))
		v, rest = append(v, rest[:n]), rest[n:]
	}
	must(t, "write", s.Writev(ctx, v, s.unit, 0))
	copy(s.model[s.unit:], data)
	s.verify(nil, 0, 8*mib)
	s.verify(r, 0, 8*mib)
	got := make([]byte, len(data)+1)[1:] // an odd address
	must(t, "read", s.Read(ctx, got, s.unit))
	if i := diff(got, data); i >= 0 {
		t.Errorf("byte %d differs when read to an odd address", i)
	}
	must(t, "empty write", s.Writev(ctx, nil, 0, 0))
	must(t, "empty read", s.Readv(ctx, [][]byte{{}, {}}, s.unit))
}

func testHistory(t *testing.T, m Maker) {
	r := seeded(t)
	const size = 4 * mib
	s := m.open(t, size)
	defer s.close()
	for range 150 {
		off, n := s.span(r, s.Size(), 256<<10)
		switch r.IntN(10) {
		case 0, 1, 2, 3:
			s.write(r, off, random(r, n), flagsOf(r, block.FUA))
		case 4, 5:
			s.zero(off, n, flagsOf(r, block.FUA, block.MayUnmap, block.NoFallback))
		case 6:
			must(t, "discard", s.Discard(ctx, off, n))
			s.afterDiscard(off, n, m.MayDiscardGarbage)
		case 7:
			must(t, "flush", s.Flush(ctx))
		default:
			s.verify(r, off, n)
		}
	}
	s.verify(nil, 0, s.Size())
}

// afterDiscard takes over what a discard has left, after looking whether that is allowed.
func (s *store) afterDiscard(off, n int64, garbage bool) {
	s.t.Helper()
	got := make([]byte, n)
	must(s.t, "read after discard", s.Read(ctx, got, off))
	for i, b := range got {
		if b != 0 && b != s.model[off+int64(i)] && !garbage {
			s.t.Fatalf("byte %d is %#x after a discard, was %#x", off+int64(i), b, s.model[off+int64(i)])
		}
	}
	copy(s.model[off:], got)
}

func testConcurrent(t *testing.T, m Maker) {
	const workers, stripe = 16, mib / 4
	s := m.open(t, workers*stripe)
	defer s.close()
	seeds := seeded(t)
	var wg sync.WaitGroup
	for w := range int64(workers) {
		r := rand.New(rand.NewPCG(seeds.Uint64(), 0))
		wg.Go(func() {
			own := make([]byte, stripe)
			for range 30 {
				off, n := s.span(r, stripe, 32<<10)
				var err error
				switch r.IntN(8) {
				case 0:
					err = s.Zero(ctx, w*stripe+off, n, flagsOf(r, block.FUA, block.MayUnmap))
					clear(own[off : off+n])
				case 1:
					err = s.Flush(ctx)
				case 2, 3:
					got := make([]byte, n)
					err = s.Readv(ctx, cut(r, got), w*stripe+off)
					if i := diff(got, own[off:off+n]); err == nil && i >= 0 {
						t.Errorf("worker %d: byte %d differs", w, off+int64(i))
						return
					}
				default:
					data := random(r, n)
					err = s.Writev(ctx, cut(r, data), w*stripe+off, flagsOf(r, block.FUA))
					copy(own[off:], data)
				}
				if err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
			}
			copy(s.model[w*stripe:], own)
		})
	}
	wg.Wait()
	s.verify(nil, 0, workers*stripe)
}

func testZeroFlags(t *testing.T, m Maker) {
	r := seeded(t)
	s := m.open(t, 2*mib)
	defer s.close()
	for _, f := range []block.Flags{0, block.FUA, block.MayUnmap, block.NoFallback, block.MayUnmap | block.NoFallback | block.FUA} {
		s.write(nil, 0, random(r, 2*mib), 0)
		s.zero(s.unit, mib, f)
		s.verify(nil, 0, 2*mib)
		// Twice, and over an area that is partly zero.
		s.zero(0, mib/2, f)
		s.zero(mib-s.unit, 2*s.unit, f)
		s.verify(nil, 0, 2*mib)
	}
}

func testCancelled(t *testing.T, m Maker) {
	s := m.open(t, mib)
	defer s.close()
	s.write(nil, 0, random(seeded(t), mib), 0)
	done, cancel := context.WithCancel(ctx)
	cancel()
	for what, err := range map[string]error{
		"write": s.Write(done, make([]byte, mib), 0, 0),
		"zero":  s.Zero(done, 0, mib, 0),
		"read":  s.Read(done, make([]byte, mib), 0),
	} {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", what, err)
		}
		if err == nil && what != "read" { // a storage may be too quick to look; then it has done it
			clear(s.model)
		}
	}
	s.verify(nil, 0, mib)
}

func testClose(t *testing.T, m Maker) {
	drv := m.New(t, mib)
	must(t, "close", drv.Close())
	wantKind(t, "second close", drv.Close(), block.KindInvalid)
}
