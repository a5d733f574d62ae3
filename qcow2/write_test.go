package qcow2

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/storage/mem"
)

// bench is an image in memory beside the bytes that it must have.
type bench struct {
	t     testing.TB
	ctx   context.Context
	img   *mem.File
	data  *mem.File
	base  []byte // backing file
	open  Options
	im    *Image
	dev   *block.Device
	model []byte

	saved     map[string][]byte // contents of the internal snapshots
	snapshots int               // how many were taken
	refused   bool              // the last operation was one that the format does not allow
}

// newBench creates and opens an image. base, if not nil, is the contents of a raw backing file.
func newBench(t testing.TB, o CreateOptions, open Options, base []byte) *bench {
	t.Helper()
	return newBenchOn(t, nil, o, open, base)
}

// newBenchOn does so on files whose events clk records from then on.
func newBenchOn(t testing.TB, clk *mem.Clock, o CreateOptions, open Options, base []byte) *bench {
	t.Helper()
	b := &bench{t: t, ctx: context.Background(), base: base, open: open, saved: map[string][]byte{}}
	if base != nil {
		o.BackingFile, o.BackingFormat = "base", "raw"
	}
	b.img, b.data = createMem(t, o)
	b.model = make([]byte, o.Size)
	copy(b.model, base)
	if clk != nil {
		clk.Adopt(b.img)
		if b.data != nil {
			clk.Adopt(b.data)
		}
	}
	b.reopen()
	return b
}

func (b *bench) reopen() {
	b.t.Helper()
	if b.im != nil {
		b.close()
	}
	o := b.open
	if b.data != nil {
		o.DataFile = block.NewDevice(b.data.Open(mem.Options{}))
	}
	im, err := Open(b.ctx, block.NewDevice(b.img.Open(mem.Options{GrowStep: 1 << 20})), o)
	if err != nil {
		b.t.Fatalf("open: %v", err)
	}
	var back *block.Device
	if b.base != nil {
		f := mem.NewFile("base", 0)
		f.WriteAt(b.base, 0)
		back = block.NewDevice(f.Open(mem.Options{ReadOnly: true}))
	}
	im.SetBacking(back)
	b.im, b.dev = im, block.NewDevice(im)
}

func (b *bench) close() {
	b.t.Helper()
	if err := b.dev.Close(); err != nil {
		b.t.Fatalf("close: %v", err)
	}
	b.im, b.dev = nil, nil
}

func (b *bench) write(p []byte, off int64) {
	b.t.Helper()
	if err := b.dev.Write(b.ctx, p, off, 0); err != nil {
		b.t.Fatalf("write %d bytes at %#x: %v", len(p), off, err)
	}
	copy(b.model[off:], p)
}

func (b *bench) flush() {
	b.t.Helper()
	if err := b.dev.Flush(b.ctx); err != nil {
		b.t.Fatalf("flush: %v", err)
	}
}

// verify reads everything back.
func (b *bench) verify() {
	b.t.Helper()
	got := make([]byte, len(b.model))
	if err := b.dev.Read(b.ctx, got, 0); err != nil {
		b.t.Fatalf("read: %v", err)
	}
	same(b.t, got, b.model)
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("byte %#x is %#x, want %#x", i, got[i], want[i])
		}
	}
}

// judge lets the real tool check the closed image and read it.
func (b *bench) judge() {
	b.t.Helper()
	dir := b.t.TempDir()
	path := dump(b.t, b.img, filepath.Join(dir, "image"))
	if b.data != nil {
		dump(b.t, b.data, filepath.Join(dir, b.data.Name()))
	}
	if b.base != nil {
		if err := os.WriteFile(filepath.Join(dir, "base"), b.base, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil { // where the real tool looks for a data file
		b.t.Fatal(err)
	}
	defer os.Chdir(here)
	checkClean(b.t, path)
	testenv.Run(b.t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, path+".raw")
	raw, err := os.ReadFile(path + ".raw")
	if err != nil {
		b.t.Fatal(err)
	}
	same(b.t, raw, b.model)
}

func randomBytes(rnd *rand.Rand, n int64) []byte {
	p := make([]byte, n)
	c := byte(1 + rnd.IntN(255))
	for i := range p {
		p[i] = c + byte(i>>9)*7
	}
	return p
}

func TestWritesReadBackAndTheRealToolAgrees(t *testing.T) {
	base := randomBytes(rand.New(rand.NewPCG(3, 4)), 700<<10+512)
	for _, c := range []struct {
		name string
		o    CreateOptions
		base []byte
	}{
		{"default", CreateOptions{Size: 2 << 20}, nil},
		{"small clusters", CreateOptions{Size: 1 << 20, ClusterSize: 512}, nil},
		{"backing file", CreateOptions{Size: 1 << 20}, base},
		{"backing file, small clusters", CreateOptions{Size: 1 << 20, ClusterSize: 1024, RefcountBits: 1}, base},
		{"version 2", CreateOptions{Size: 1 << 20, Version: 2}, base},
		{"extended L2", CreateOptions{Size: 1 << 20, ExtendedL2: true}, base},
		{"extended L2, no backing file", CreateOptions{Size: 1 << 20, ExtendedL2: true, ClusterSize: 16384}, nil},
		{"lazy refcounts", CreateOptions{Size: 1 << 20, LazyRefcounts: true, RefcountBits: 64}, base},
		{"data file", CreateOptions{Size: 1 << 20, DataFile: "data"}, nil},
		{"raw data file", CreateOptions{Size: 1 << 20, DataFile: "data", DataFileRaw: true}, nil},
		{"data file, extended L2", CreateOptions{Size: 1 << 20, DataFile: "data", ExtendedL2: true}, base},
		{"preallocated", CreateOptions{Size: 1 << 20, Prealloc: block.PreallocMetadata}, nil},
		{"preallocated, extended L2", CreateOptions{Size: 1 << 20, Prealloc: block.PreallocMetadata, ExtendedL2: true}, base},
		{"2 MiB clusters", CreateOptions{Size: 5 << 20, ClusterSize: 2 << 20, ExtendedL2: true}, base},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.o, Options{}, c.base)
			rnd := rand.New(rand.NewPCG(1, 2))
			for round := range 3 {
				for range 60 {
					n := 1 + rnd.Int64N(1<<(9+rnd.IntN(10)))
					if rnd.IntN(2) == 0 {
						n = (n + 511) &^ 511
					}
					n = min(n, int64(len(b.model)))
					off := rnd.Int64N(int64(len(b.model)) - n + 1)
					if rnd.IntN(2) == 0 {
						off &^= 511
					}
					b.write(randomBytes(rnd, n), off)
					if rnd.IntN(10) == 0 {
						b.flush()
					}
				}
				b.verify()
				b.close()
				b.judge()
				if round < 2 {
					b.reopen()
					b.verify()
				}
			}
		})
	}
}
