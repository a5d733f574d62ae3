package qcow2

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

var rewriteCorpus = flag.Bool("rewrite-corpus", false, "make the seeds of the fuzz corpora anew with the real tools")

// Fuzz inputs describe a sparse file: its length (8 bytes), then pieces of
// offset (8), length (2) and bytes. So offsets of any size and large clusters
// fit into small inputs.

// unpack makes the file; pieces that do not fit are cut.
func unpack(b []byte) *mem.File {
	next := func(n int) []byte {
		p := make([]byte, n)
		b = b[copy(p, b):]
		return p
	}
	f := mem.NewFile("image", int64(binary.BigEndian.Uint64(next(8))>>1))
	for len(b) > 0 {
		off := int64(binary.BigEndian.Uint64(next(8)) >> 1)
		n := int(binary.BigEndian.Uint16(next(2)))
		data := b[:min(n, len(b))]
		b = b[len(data):]
		if off <= f.Size()-int64(len(data)) && len(data) > 0 {
			if _, err := f.WriteAt(data, off); err != nil {
				panic(err)
			}
		}
	}
	return f
}

// pack describes an image by its bytes that are not zero.
func pack(image []byte) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(len(image))<<1)
	for off := 0; off < len(image); {
		if allZero(image[off:min(off+16, len(image))]) {
			off += 16
			continue
		}
		end := off
		for end < len(image) && end-off < 65520 && !allZero(image[end:min(end+32, len(image))]) {
			end += 16
		}
		end = min(end, len(image))
		out = binary.BigEndian.AppendUint64(out, uint64(off)<<1)
		out = binary.BigEndian.AppendUint16(out, uint16(end-off))
		out = append(out, image[off:end]...)
		off = end
	}
	return out
}

func TestPackedImagesUnpack(t *testing.T) {
	f := sampleImage(t, "cluster_size=4096", true)
	p := pack(f.Bytes())
	if !bytes.Equal(unpack(p).Bytes(), f.Bytes()) {
		t.Error("unpacked image differs")
	}
	if len(p) > 1<<18 {
		t.Errorf("%d bytes", len(p))
	}
}

// TestCorpusSeeds makes the seeds when asked to, and checks that all committed
// ones are images that open.
func TestCorpusSeeds(t *testing.T) {
	const dir = "testdata/fuzz"
	targets := []string{"FuzzOpen", "FuzzMap", "FuzzRead"}
	if *rewriteCorpus {
		for i, o := range []string{"cluster_size=512", "cluster_size=512,compression_type=zstd", "cluster_size=16384,extended_l2=on", "cluster_size=65536,lazy_refcounts=on"} {
			b := pack(seedImage(t, o))
			text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", b)
			for _, target := range targets {
				if err := os.MkdirAll(filepath.Join(dir, target), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, target, fmt.Sprintf("seed%d", i)), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, target := range targets {
		seeds, err := filepath.Glob(filepath.Join(dir, target, "*"))
		if err != nil || len(seeds) == 0 {
			t.Errorf("%s has no seeds (%v)", target, err)
		}
	}
}

// seedImage is a small image with clusters of all kinds, a snapshot and a bitmap.
func seedImage(t testing.TB, options string) []byte {
	p := filepath.Join(t.TempDir(), "seed.qcow2")
	mustCreate(t, p, options, "192k")
	im, err := openMem(load(t, p))
	if err != nil {
		t.Fatal(err)
	}
	cs := im.geo.ClusterSize()
	im.Close()
	script(t, p, fmt.Sprintf("write -c -P 3 0 %d", cs), fmt.Sprintf("write -c -P 4 %d %d", cs, cs),
		fmt.Sprintf("write -P 1 %d 512", 2*cs), fmt.Sprintf("write -P 1 %d 512", 2*cs+1024), "write -z 150k 16k", "write -P 2 130k 512")
	testenv.Run(t, "qemu-img", "snapshot", "-c", "s", p)
	script(t, p, "write -P 5 130k 512")
	testenv.Run(t, "qemu-img", "bitmap", "--add", p, "b")
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// openPacked opens a fuzz input with a backing file of 100 KiB of 0xbb.
func openPacked(t *testing.T, b []byte) *block.Device {
	im, err := openMem(unpack(b))
	if err != nil {
		wantKind(t, err)
		return nil
	}
	base := mem.NewFile("base", 0)
	if _, err := base.WriteAt(bytes.Repeat([]byte{0xbb}, 100<<10), 0); err != nil {
		t.Fatal(err)
	}
	im.SetBacking(block.NewDevice(base.Open(mem.Options{ReadOnly: true})))
	if im.geo.DataFile {
		data := mem.NewFile("data", 64<<10)
		im.SetDataFile(block.NewDevice(data.Open(mem.Options{ReadOnly: true})))
	}
	return block.NewDevice(im)
}

// finish closes and checks that nothing is left behind.
func finish(t *testing.T, dev *block.Device) {
	im := dev.Driver().(*Image)
	if over := im.budget.Used() - im.budget.Limit(); over > 1<<20 {
		t.Errorf("%d bytes of cache above the limit", over)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if n := im.budget.Used(); n != 0 {
		t.Errorf("%d bytes of cache left", n)
	}
}

func FuzzOpen(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		dev := openPacked(t, b)
		if dev == nil {
			return
		}
		im := dev.Driver().(*Image)
		if err := im.geo.Validate(); err != nil {
			t.Error(err)
		}
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
			v.Close()
		}
		finish(t, dev)
	})
}

func FuzzMap(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		dev := openPacked(t, b)
		if dev == nil {
			return
		}
		steps := 0
		for off := int64(0); off < dev.Size() && steps < 3000; steps++ {
			e, err := dev.Extent(ctx, off, dev.Size()-off, block.Query(steps)&block.WantZero)
			if err != nil {
				wantKind(t, err)
				off += 4096
				continue
			}
			if e.Flags&block.HasHost != 0 && (e.Host < 0 || e.Host > int64(layout.MaxTableOffset)) {
				t.Fatalf("%+v", e)
			}
			// The same question about a part has the same answer.
			at := off + e.Length/2
			p, err := dev.Extent(ctx, at, dev.Size()-at, block.Query(steps)&block.WantZero)
			if err == nil && p.Flags&^block.EOFExtent != e.Flags&^block.EOFExtent || p.Flags&block.HasHost != 0 && p.Host != e.Host+e.Length/2 {
				t.Fatalf("%+v and, within it, %+v (%v)", e, p, err)
			}
			off = e.End()
		}
		finish(t, dev)
	})
}

func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		dev := openPacked(t, b)
		if dev == nil {
			return
		}
		whole, piece := make([]byte, 192<<10), make([]byte, 5000)
		for _, base := range []int64{0, dev.Size() / 2 &^ 511, dev.Size() - 192<<10} {
			base = max(base, 0)
			n := min(int64(len(whole)), dev.Size()-base)
			err := dev.Read(ctx, whole[:n], base)
			if err != nil {
				wantKind(t, err)
			}
			for at := int64(0); at < n; at += int64(len(piece)) {
				p := piece[:min(int64(len(piece)), n-at)]
				perr := dev.Read(ctx, p, base+at)
				if perr != nil {
					wantKind(t, perr)
				}
				if err == nil && perr != nil {
					t.Fatalf("reads as a whole, but a part does not: %v", perr)
				}
				if err == nil && !bytes.Equal(p, whole[at:at+int64(len(p))]) {
					t.Fatalf("a part at %#x reads differently", base+at)
				}
			}
		}
		finish(t, dev)
	})
}
