package conformance

import (
	"testing"

	"byre/block"
)

func testExtend(t *testing.T, m Maker) {
	r := seeded(t)
	s := m.open(t, mib)
	defer s.close()
	if !s.Geometry().Growable {
		err := s.Write(ctx, make([]byte, s.unit), mib, 0)
		wantKind(t, "write beyond the end of a storage that cannot grow", err, block.KindOutOfBounds)
		return
	}
	s.write(r, mib-s.unit, random(r, 4*s.unit), 0) // across the end
	s.write(r, 2*mib, random(r, 3*s.unit), 0)      // behind a gap
	s.zero(3*mib, 64<<10, 0)
	s.zero(4*mib, 64<<10, block.MayUnmap)
	s.zero(5*mib, 64<<10, block.MayUnmap|block.FUA)
	if s.Size() != int64(len(s.model)) {
		t.Errorf("size is %d, want %d", s.Size(), len(s.model))
	}
	s.verify(r, 0, s.Size())
}

func testResize(t *testing.T, m Maker) {
	r := seeded(t)
	s := m.open(t, 2*mib)
	defer s.close()
	if !s.Geometry().Growable {
		wantKind(t, "growing a storage that cannot", s.Resize(ctx, 3*mib, block.ResizeOptions{Exact: true}), block.KindOutOfBounds)
		return
	}
	s.write(nil, 0, random(r, 2*mib), 0)
	cutAt := mib + 3*s.unit + 7*min(1, s.unit-1)
	for _, size := range []int64{cutAt, 2 * mib, 512, mib, 0, 64 << 10} {
		must(t, "resize", s.Resize(ctx, size, block.ResizeOptions{}))
		if s.Size() != size {
			t.Fatalf("size is %d after a resize to %d", s.Size(), size)
		}
		s.model = s.model[:min(size, int64(len(s.model)))]
		s.grow(size)
		if n := size &^ (s.unit - 1); n > 0 {
			s.verify(r, 0, n)
		}
	}
	calls := 0
	o := block.ResizeOptions{Prealloc: block.PreallocFull, Progress: func(done, total int64) {
		if calls++; done > total || done <= 0 {
			t.Errorf("progress %d of %d", done, total)
		}
	}}
	switch err := s.Resize(ctx, 3*mib, o); block.KindOf(err) {
	case 0:
		s.grow(3 * mib)
	case block.KindUnsupported, block.KindInvalid:
	default:
		t.Errorf("grow with preallocation: %v", err)
	}
	s.verify(r, 0, s.Size())
}

func testExtents(t *testing.T, m Maker) {
	r := seeded(t)
	const size = 8 * mib
	s := m.open(t, size)
	defer s.close()
	for range 6 {
		off, n := s.span(r, size, 512<<10)
		s.write(nil, off, random(r, n), 0)
		off, n = s.span(r, size, 512<<10)
		s.zero(off, n, flagsOf(r, block.MayUnmap))
		s.tile(0, block.WantZero)
		// Asked in the middle of an extent, right after changing it.
		off, n = s.span(r, size, 64<<10)
		s.tile(off, block.WantZero)
		s.write(nil, off, random(r, n), 0)
		s.tile(off, block.WantZero)
		s.zero(off, n, block.MayUnmap)
		s.tile(off, block.WantZero)
		s.tile(off, 0)
	}
}

// tile walks the extents from off to the end.
func (s *store) tile(off int64, q block.Query) {
	s.t.Helper()
	for size := s.Size(); off < size; {
		e, err := s.Extent(ctx, off, size-off, q)
		must(s.t, "extent", err)
		if e.Start != off || e.Length <= 0 || e.End() > size {
			s.t.Fatalf("asked at %d of %d, got [%d, +%d)", off, size, e.Start, e.Length)
		}
		if e.IsZero() {
			for i, b := range s.model[e.Start:e.End()] {
				if b != 0 {
					s.t.Fatalf("extent [%d, +%d) claims zeros, byte %d is %#x", e.Start, e.Length, e.Start+int64(i), b)
				}
			}
		}
		if last := e.End() == size; last != (e.Flags&block.EOFExtent != 0) {
			s.t.Fatalf("extent [%d, +%d) of %d: end-of-file flag is wrong", e.Start, e.Length, size)
		}
		if e.Flags&(block.Data|block.Zero) == 0 {
			s.t.Fatalf("extent [%d, +%d) is neither data nor zero", e.Start, e.Length)
		}
		off = e.End()
	}
}

func testReopen(t *testing.T, m Maker) {
	if m.Reopen == nil {
		t.Skip("this storage does not outlive its close")
	}
	r := seeded(t)
	s := m.open(t, 2*mib)
	s.write(r, 4*s.unit, random(r, mib), 0)
	s.zero(16*s.unit, 8*s.unit, 0)
	must(t, "flush", s.Flush(ctx))
	must(t, "flush with nothing new", s.Flush(ctx))
	path := s.Path()
	s.close()
	s.Device = block.NewDevice(m.Reopen(t, path))
	defer s.close()
	s.verify(r, 0, 2*mib)
}

func testFreshSpace(t *testing.T, m Maker) {
	s := m.open(t, mib)
	defer s.close()
	fs, ok := s.Driver().(block.FreshSpace)
	if !ok || !s.Geometry().Growable {
		t.Skip("this storage has no fresh space")
	}
	r := seeded(t)
	s.write(nil, 0, random(r, mib), 0)
	got, err := fs.GrowTo(ctx, mib+1)
	must(t, "grow", err)
	if got < mib+1 || got != s.Size() {
		t.Fatalf("grown to %d, size %d, wanted more than %d", got, s.Size(), mib+1)
	}
	if again, err := fs.GrowTo(ctx, mib); err != nil || again != got {
		t.Errorf("growing to less than there is gave %d, %v", again, err)
	}
	n := min(got, 3*mib) &^ (s.unit - 1)
	s.grow(n)
	s.verify(r, 0, n)
	s.write(nil, mib, random(r, s.unit), 0)
	s.verify(r, 0, n)
	must(t, "cut", fs.CutTo(ctx, mib+s.unit))
	if s.Size() != mib+s.unit {
		t.Errorf("size is %d after the cut", s.Size())
	}
	s.model = s.model[:mib+s.unit]
	s.verify(r, 0, s.Size())
}

func testPreallocate(t *testing.T, m Maker) {
	s := m.open(t, 2*mib)
	defer s.close()
	p, ok := s.Driver().(block.Preallocator)
	if !ok {
		t.Skip("this storage cannot reserve space")
	}
	s.write(nil, 0, random(seeded(t), mib), 0)
	if err := p.Preallocate(ctx, mib/2, mib); err != nil {
		wantKind(t, "preallocate", err, block.KindUnsupported)
	}
	s.verify(nil, 0, 2*mib)
}
