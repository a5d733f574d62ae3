//go:build linux

package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"byre/block"
	"byre/internal/ioqueue"

	"golang.org/x/sys/unix"
)

// shaky is an engine whose transfers go wrong as the test says. It stands before a real one.
type shaky struct {
	engine
	calls atomic.Int64
	// before may answer in the engine's place (done), or shorten what the engine gets to see (limit > 0, bytes).
	before func(call int64, r *ioqueue.Request) (limit int64, n int, err error, done bool)
}

func (s *shaky) do(r *ioqueue.Request) (int, error) {
	limit, n, err, done := s.before(s.calls.Add(1), r)
	if done {
		return n, err
	}
	if limit > 0 {
		full := r.Iov
		defer func() { r.Iov = full }()
		r.Iov = head(full, limit)
	}
	return s.engine.do(r)
}

func head(iov []unix.Iovec, n int64) (part []unix.Iovec) {
	for _, v := range iov {
		if n <= 0 {
			break
		}
		if int64(v.Len) > n {
			v.SetLen(int(n))
		}
		n -= int64(v.Len)
		part = append(part, v)
	}
	return part
}

// shakyHost is a host whose i-th call fails.
type shakyHost struct {
	kernel
	calls atomic.Int64
	fail  func(call int64, what string) error
}

func (h *shakyHost) ask(what string) error {
	return h.fail(h.calls.Add(1), what)
}

func (h *shakyHost) fdatasync(fd int) error {
	if err := h.ask("fdatasync"); err != nil {
		return err
	}
	return h.kernel.fdatasync(fd)
}

func (h *shakyHost) fsync(fd int) error {
	if err := h.ask("fsync"); err != nil {
		return err
	}
	return h.kernel.fsync(fd)
}

func (h *shakyHost) fallocate(fd int, mode uint32, off, n int64) error {
	if err := h.ask(fmt.Sprintf("fallocate %#x", mode)); err != nil {
		return err
	}
	return h.kernel.fallocate(fd, mode, off, n)
}

func (h *shakyHost) ftruncate(fd int, size int64) error {
	if err := h.ask("ftruncate"); err != nil {
		return err
	}
	return h.kernel.ftruncate(fd, size)
}

func (h *shakyHost) seek(fd int, off int64, whence int) (int64, error) {
	if err := h.ask("seek"); err != nil {
		return 0, err
	}
	return h.kernel.seek(fd, off, whence)
}

func create(t *testing.T, o Options, c CreateOptions) *File {
	t.Helper()
	f, err := Create(ctx, filepath.Join(scratch(t), "f"), o, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func TestShortInterruptedAndPostponedTransfersAreCarriedOn(t *testing.T) {
	for _, o := range modes() {
		t.Run(name(o), func(t *testing.T) {
			available(t, o)
			f := create(t, o, CreateOptions{Size: 1 << 20})
			unit := max(f.limit.request, 511)
			r := rand.New(rand.NewPCG(1, 2))
			f.eng = &shaky{engine: f.eng, before: func(call int64, q *ioqueue.Request) (int64, int, error, bool) {
				switch call % 4 {
				case 0:
					return 0, 0, unix.EINTR, true
				case 1:
					return 0, 0, unix.EAGAIN, true
				}
				return unit * (1 + r.Int64N(60)), 0, nil, false
			}}
			d := block.NewDevice(f)
			want := noise(7, 300<<10)
			iov := [][]byte{want[:512], want[512:5000], want[5000:8192], want[8192:]}
			if err := d.Writev(ctx, iov, 4096, 0); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if err := d.Readv(ctx, [][]byte{got[:1], got[1:70000], got[70000:]}, 4096); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("bytes differ")
			}
			if n := f.eng.(*shaky).calls.Load(); n < 10 {
				t.Errorf("only %d transfers: the faults were not met", n)
			}
		})
	}
}

func TestADirectTransferThatStopsInsideABlockGoesOnAtItsStart(t *testing.T) {
	o := Options{Cache: CacheNone, Engine: EngineThreads}
	f := create(t, o, CreateOptions{Size: 1 << 20})
	real := f.eng
	f.eng = &shaky{engine: real, before: func(call int64, r *ioqueue.Request) (int64, int, error, bool) {
		if call != 1 {
			return 0, 0, nil, false
		}
		n, err := real.do(r)
		return 0, n - 100, err, true // everything moved, but 100 bytes less are admitted to
	}}
	want := noise(3, 64<<10)
	if err := f.WritevAt(ctx, [][]byte{want}, 0, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := f.ReadvAt(ctx, [][]byte{got}, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("bytes differ")
	}
}

func TestEveryTransferThatFailsIsReportedWithKindAndOffset(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		kind  block.Kind
	}{{unix.EIO, block.KindIO}, {unix.ENOSPC, block.KindNoSpace}, {unix.EDQUOT, block.KindNoSpace}, {unix.EFBIG, block.KindOutOfBounds}} {
		for _, o := range []Options{{Engine: EngineThreads}, {Cache: CacheNone}, {Engine: EngineIOUring}} {
			t.Run(fmt.Sprintf("%v/%s", c.errno, name(o)), func(t *testing.T) {
				available(t, o)
				failEachTransfer(t, o, c.errno, c.kind)
			})
		}
	}
}

func failEachTransfer(t *testing.T, o Options, errno unix.Errno, kind block.Kind) {
	f := create(t, o, CreateOptions{Size: 4 << 20})
	real := f.eng
	old, new := noise(1, 3<<20), noise(2, 3<<20)
	for op, run := range map[string]func() error{
		"write": func() error { return f.WritevAt(ctx, [][]byte{new[:7], new[7:]}, 0, 0) },
		"read":  func() error { return f.ReadvAt(ctx, [][]byte{make([]byte, 7), make([]byte, 3<<20-7)}, 0) },
	} {
		for fail := int64(1); ; fail++ {
			f.eng = real
			if err := f.WritevAt(ctx, [][]byte{old}, 0, 0); err != nil {
				t.Fatal(err)
			}
			s := &shaky{engine: real, before: func(call int64, _ *ioqueue.Request) (int64, int, error, bool) {
				return 1 << 20, 0, errno, call == fail
			}}
			f.eng = s
			err := run()
			f.eng = real
			if s.calls.Load() < fail {
				if err != nil || fail < 3 {
					t.Errorf("%s: %v after %d transfers", op, err, s.calls.Load())
				}
				break
			}
			var be *block.Error
			if !errors.As(err, &be) || be.Kind != kind || !errors.Is(err, errno) || be.Op != op || be.Offset != (fail-1)<<20 || be.Path != f.path {
				t.Errorf("%s failing at transfer %d: %v", op, fail, err)
			}
			if op == "write" { // what came before the failure is there, what came after is untouched
				got := make([]byte, 3<<20)
				if err := f.ReadvAt(ctx, [][]byte{got}, 0); err != nil {
					t.Fatal(err)
				}
				at := int(fail-1) << 20
				if !bytes.Equal(got[:at], new[:at]) || !bytes.Equal(got[at:], old[at:]) {
					t.Errorf("a write that failed at transfer %d changed something else", fail)
				}
			}
		}
	}
}

func TestTransfersThatMoveNothingAreErrorsNotLoops(t *testing.T) {
	f := create(t, Options{Engine: EngineThreads}, CreateOptions{Size: 1 << 20})
	f.eng = &shaky{engine: f.eng, before: func(int64, *ioqueue.Request) (int64, int, error, bool) { return 0, 0, nil, true }}
	if err := f.WritevAt(ctx, [][]byte{make([]byte, 512)}, 0, 0); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("write: %v", err)
	}
	if err := f.ReadvAt(ctx, [][]byte{make([]byte, 512)}, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read inside the file: %v", err)
	}
}

func TestAFileCutByAnotherProcessIsAnErrorNotZeros(t *testing.T) {
	f := create(t, Options{}, CreateOptions{Size: 1 << 20})
	if err := unix.Truncate(f.path, 1000); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadvAt(ctx, [][]byte{make([]byte, 4096)}, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if err := f.Refresh(); err != nil || f.Size() != 1000 {
		t.Errorf("Refresh: %v, size %d", err, f.Size())
	}
	p := bytes.Repeat([]byte{1}, 4096)
	if err := f.ReadvAt(ctx, [][]byte{p}, 0); err != nil || !bytes.Equal(p, make([]byte, 4096)) {
		t.Errorf("read across the new end: %v", err)
	}
}

func TestAFailedFlushOfABufferedFileStaysFailed(t *testing.T) {
	for _, c := range []struct {
		o      Options
		sticky bool
	}{{Options{Engine: EngineThreads}, true}, {Options{Engine: EngineIOUring}, true}, {Options{Cache: CacheNone}, false}} {
		t.Run(name(c.o), func(t *testing.T) {
			available(t, c.o)
			f := create(t, c.o, CreateOptions{Size: 1 << 20})
			f.host = &shakyHost{fail: func(call int64, what string) error {
				if what == "fdatasync" && call == 1 {
					return unix.EIO
				}
				return nil
			}}
			if err := f.Flush(ctx); !errors.Is(err, unix.EIO) {
				t.Fatalf("first flush: %v", err)
			}
			if err := f.Flush(ctx); (err != nil) != c.sticky {
				t.Errorf("second flush: %v", err)
			}
		})
	}
}

func TestAFlushWithNothingNewDoesNotAskTheHost(t *testing.T) {
	f := create(t, Options{}, CreateOptions{Size: 1 << 20})
	h := &shakyHost{fail: func(int64, string) error { return nil }}
	f.host = h
	for range 3 {
		if err := f.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.calls.Load(); n != 1 {
		t.Errorf("%d calls for three flushes of an unchanged file, want 1: what it held at open may not be durable", n)
	}
	if err := f.WritevAt(ctx, [][]byte{{1}}, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(ctx); err != nil || h.calls.Load() != 2 {
		t.Errorf("after a write: %v, %d calls", err, h.calls.Load())
	}
}

// Zero and discard when the host can only do some things, or fails.
func TestZeroFallsBackToWhatTheHostCanDo(t *testing.T) {
	all := []string{"fallocate 0x10", "fallocate 0x3", "fallocate 0x0"} // zero-range, punch, plain
	for mask := range 8 {
		for _, flags := range []block.Flags{0, block.MayUnmap, block.NoFallback, block.MayUnmap | block.NoFallback} {
			var lacks []string
			for i, a := range all {
				if mask&(1<<i) != 0 {
					lacks = append(lacks, a)
				}
			}
			t.Run(fmt.Sprintf("without %v flags %d", lacks, flags), func(t *testing.T) {
				f := create(t, Options{}, CreateOptions{})
				want := noise(5, 256<<10)
				if err := f.WritevAt(ctx, [][]byte{want}, 0, 0); err != nil {
					t.Fatal(err)
				}
				h := &shakyHost{fail: func(_ int64, what string) error {
					for _, l := range lacks {
						if what == l {
							return unix.EOPNOTSUPP
						}
					}
					return nil
				}}
				f.host = h
				d := block.NewDevice(f)
				const off, n = 64 << 10, 256 << 10 // across the end
				err := d.Zero(ctx, off, n, flags)
				if block.KindOf(err) == block.KindUnsupported && flags&block.NoFallback != 0 && len(lacks) > 0 {
					got := make([]byte, len(want))
					if err := f.ReadvAt(ctx, [][]byte{got}, 0); err != nil || !bytes.Equal(got, want) || f.Size() != int64(len(want)) {
						t.Errorf("a refused zero changed the file (%v)", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				clear(want[off:])
				got := bytes.Repeat([]byte{9}, off+n)
				if err := d.Read(ctx, got, 0); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got[:len(want)], want) || !bytes.Equal(got[len(want):], make([]byte, off)) {
					t.Error("bytes differ")
				}
				// What was refused once is not tried again.
				before := h.calls.Load()
				var refused atomic.Int64
				h.fail = func(_ int64, what string) error {
					for _, l := range lacks {
						if what == l {
							refused.Add(1)
						}
					}
					return nil
				}
				err = d.Zero(ctx, off, n, flags)
				if err != nil && !(flags&block.NoFallback != 0 && block.KindOf(err) == block.KindUnsupported) {
					t.Fatal(err)
				}
				if refused.Load() > 1 || h.calls.Load()-before > 2 {
					t.Errorf("%d calls, %d of them refused before", h.calls.Load()-before, refused.Load())
				}
			})
		}
	}
}

func TestEveryHostCallThatFailsIsReported(t *testing.T) {
	grow := func(p block.PreallocMode) func(f *File) error {
		return func(f *File) error { return f.Resize(ctx, 3<<20, block.ResizeOptions{Prealloc: p}) }
	}
	ops := map[string]func(f *File) error{
		"zero":        func(f *File) error { return f.ZeroAt(ctx, 0, 1<<20, 0) },
		"unmap":       func(f *File) error { return f.ZeroAt(ctx, 1<<20, 2<<20, block.MayUnmap) },
		"discard":     func(f *File) error { return f.DiscardAt(ctx, 0, 1<<20) },
		"flush":       func(f *File) error { return f.Flush(ctx) },
		"resize":      grow(block.PreallocOff),
		"falloc":      grow(block.PreallocFalloc),
		"full":        grow(block.PreallocFull),
		"shrink":      func(f *File) error { return f.Resize(ctx, 1<<20, block.ResizeOptions{}) },
		"preallocate": func(f *File) error { return f.Preallocate(ctx, 0, 1<<20) },
		"extent":      func(f *File) error { _, err := f.Extent(ctx, 0, 1<<20, block.WantZero); return err },
		"cut":         func(f *File) error { f.fresh.Store(0); return f.CutTo(ctx, 4096) },
		"fua":         func(f *File) error { return f.ZeroAt(ctx, 0, 4096, block.FUA) },
	}
	for name, run := range ops {
		t.Run(name, func(t *testing.T) {
			for fail := int64(1); ; fail++ {
				f := create(t, Options{}, CreateOptions{})
				if err := f.WritevAt(ctx, [][]byte{noise(1, 2<<20)}, 0, 0); err != nil {
					t.Fatal(err)
				}
				var what string
				h := &shakyHost{fail: func(call int64, w string) error {
					if call == fail {
						what = w
						return unix.EIO
					}
					return nil
				}}
				f.host = h
				err := run(f)
				if what == "" {
					if err != nil || fail == 1 {
						t.Errorf("call %d was never made, result %v", fail, err)
					}
					return
				}
				if !errors.Is(err, unix.EIO) || block.KindOf(err) != block.KindIO || !strings.HasPrefix(err.Error(), f.path) {
					t.Errorf("%s (call %d) failed, result %v", what, fail, err)
				}
				if strings.HasPrefix(name, "f") && f.Size() != 2<<20 && name != "fua" && name != "flush" {
					t.Errorf("the size is %d after a growth that failed at %s", f.Size(), what)
				}
			}
		})
	}
}
