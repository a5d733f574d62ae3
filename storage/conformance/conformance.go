// Package conformance is the test suite that every storage passes: what package block's contract promises, asked of a
// driver through a plain [block.Device], with a flat byte slice as the model.
//
// A storage's own tests call [Run] with a [Maker]. What a storage cannot do (grow, give space back, be reopened) is
// taken from its Geometry and the Maker; the rest is demanded.
package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"byre/block"
)

// Maker makes storages for the suite.
type Maker struct {
	// New makes a storage of the given size, a multiple of 1 MiB. Where Geometry.ZeroInit is clear its contents may
	// be anything.
	New func(t *testing.T, size int64) block.Driver
	// Reopen opens again what was flushed and closed; nil if the storage does not outlive its Close.
	Reopen func(t *testing.T, path string) block.Driver
	// MayDiscardGarbage: discarded areas may read as anything, not only as before or as zeros.
	MayDiscardGarbage bool
}

var ctx = context.Background()

const mib = 1 << 20

// Run runs the suite.
func Run(t *testing.T, m Maker) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Maker)
	}{
		{"geometry is consistent", testGeometry},
		{"fresh storage reads as zeros", testFresh},
		{"vectors of any shape move every byte", testVectors},
		{"random histories match the model", testHistory},
		{"concurrent writers to different places do not disturb each other", testConcurrent},
		{"writes beyond the end extend", testExtend},
		{"shrunk space comes back as zeros", testResize},
		{"extents tile the storage and tell the truth", testExtents},
		{"zeroes are zeros whatever the flags", testZeroFlags},
		{"a cancelled request does nothing", testCancelled},
		{"flushed data survives a reopen", testReopen},
		{"fresh space can be grown and cut", testFreshSpace},
		{"preallocation changes no contents", testPreallocate},
		{"a second close is refused", testClose},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, m) })
	}
}

// store is a storage under test together with what it should contain.
type store struct {
	*block.Device
	t     *testing.T
	model []byte
	unit  int64
	mem   int
}

func (m Maker) open(t *testing.T, size int64) *store {
	drv := m.New(t, size)
	s := &store{Device: block.NewDevice(drv), t: t, model: make([]byte, size)}
	g := s.Geometry()
	s.unit, s.mem = g.RequestAlign, g.MemAlign
	if s.Size() != size {
		t.Fatalf("a storage of %d bytes was asked for, it has %d", size, s.Size())
	}
	if !g.ZeroInit {
		s.zero(0, size, 0)
	}
	return s
}

func (s *store) close() {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// write puts data at off through a vector cut at random places, into storage and model.
func (s *store) write(r *rand.Rand, off int64, data []byte, flags block.Flags) {
	s.t.Helper()
	if err := s.Writev(ctx, cut(r, data), off, flags); err != nil {
		s.t.Fatalf("write %d bytes at %d: %v", len(data), off, err)
	}
	s.grow(off + int64(len(data)))
	copy(s.model[off:], data)
}

func (s *store) zero(off, n int64, flags block.Flags) {
	s.t.Helper()
	err := s.Zero(ctx, off, n, flags)
	if flags&block.NoFallback != 0 && block.KindOf(err) == block.KindUnsupported {
		return // and nothing has changed, which later reads show
	}
	if err != nil {
		s.t.Fatalf("zero %d bytes at %d, flags %v: %v", n, off, flags, err)
	}
	s.grow(off + n)
	clear(s.model[off : off+n])
}

func (s *store) grow(size int64) {
	if size > int64(len(s.model)) {
		s.model = append(s.model, make([]byte, size-int64(len(s.model)))...)
	}
}

// verify reads [off, off+n) and compares.
func (s *store) verify(r *rand.Rand, off, n int64) {
	s.t.Helper()
	got := make([]byte, n)
	for i := range got {
		got[i] = 0xee
	}
	if err := s.Readv(ctx, cut(r, got), off); err != nil {
		s.t.Fatalf("read %d bytes at %d: %v", n, off, err)
	}
	want := make([]byte, n)
	if off < int64(len(s.model)) {
		copy(want, s.model[off:])
	}
	if i := diff(got, want); i >= 0 {
		s.t.Fatalf("byte %d reads as %#x, want %#x (read of %d bytes at %d)", off+int64(i), got[i], want[i], n, off)
	}
}

func diff(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// cut makes a vector of up to six buffers, some of them empty or at odd addresses, out of p.
func cut(r *rand.Rand, p []byte) [][]byte {
	if r == nil {
		return [][]byte{p}
	}
	var v [][]byte
	for range r.IntN(6) {
		n := r.IntN(len(p) + 1)
		if r.IntN(2) == 0 {
			n &^= 511
		}
		v, p = append(v, p[:n:n]), p[n:]
	}
	return append(v, p)
}

func random(r *rand.Rand, n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// seeded makes a source whose seed a failure names; BYRE_SEED repeats one.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("BYRE_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("BYRE_SEED=%d repeats this", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// span picks an aligned range inside size.
func (s *store) span(r *rand.Rand, size, most int64) (off, n int64) {
	blocks := size / s.unit
	n = 1 + r.Int64N(max(most/s.unit, 1))
	n = min(n, blocks)
	off = r.Int64N(blocks - n + 1)
	return off * s.unit, n * s.unit
}

func flagsOf(r *rand.Rand, set ...block.Flags) (f block.Flags) {
	for _, x := range set {
		if r.IntN(3) == 0 {
			f |= x
		}
	}
	return f
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantKind(t *testing.T, what string, err error, k block.Kind) {
	t.Helper()
	if block.KindOf(err) != k {
		t.Errorf("%s: got %v, want an error of kind %q", what, err, fmt.Sprint(k))
	}
}
