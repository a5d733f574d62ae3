package qcow2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

// createMem makes an image in memory; data is nil without an external data file.
func createMem(t testing.TB, o CreateOptions) (img, data *mem.File) {
	t.Helper()
	img = mem.NewFile("image", 0)
	if o.DataFile != "" {
		data = mem.NewFile(o.DataFile, 0)
		o.Data = block.NewDevice(data.Open(mem.Options{}))
	}
	dev := block.NewDevice(img.Open(mem.Options{}))
	if err := Create(context.Background(), dev, o); err != nil {
		t.Fatalf("create %+v: %v", o, err)
	}
	dev.Close()
	if o.Data != nil {
		o.Data.Close()
	}
	return img, data
}

// dump writes memory to a host file, sparsely.
func dump(t testing.TB, f *mem.File, path string) string {
	t.Helper()
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := out.Truncate(f.Size()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	zero := make([]byte, len(buf))
	for off := int64(0); off < f.Size(); off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), f.Size()-off)]
		f.ReadAt(p, off)
		if string(p) == string(zero[:len(p)]) {
			continue
		}
		if _, err := out.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// checkClean runs the real qemu-img check and wants exit 0.
func checkClean(t testing.TB, path string) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "qemu-img"), "check", "-f", "qcow2", path).CombinedOutput()
	if err != nil {
		t.Errorf("qemu-img check %s: %v\n%s", path, err, out)
	}
}

func TestCreatedImagesArePerfectForTheRealTool(t *testing.T) {
	qemu := testenv.Tool(t, "qemu-img")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "base"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, size := range []int64{0, 512, 1 << 20, 3<<20 + 512, 5 << 30} {
		for _, cs := range []int64{512, 4096, 16384, 65536, 2 << 20} {
			for _, rb := range []int{1, 8, 16, 64} {
				for _, mode := range []block.PreallocMode{block.PreallocOff, block.PreallocMetadata} {
					o := CreateOptions{Size: size, ClusterSize: cs, RefcountBits: rb, Prealloc: mode}
					for i, v := range createVariants(o) {
						if mode != block.PreallocOff && size > 1<<30 && (cs < 65536 || i > 1) {
							continue
						}
						if os.Getenv("BYRE_LONG") == "" && n%23 != 0 { // 23 shares no factor with the loops: every kind is seen
							n++
							continue
						}
						n++
						checkCreated(t, qemu, dir, v)
					}
				}
			}
		}
	}
}

// createVariants gives the legal flavours of o.
func createVariants(o CreateOptions) []CreateOptions {
	list := []CreateOptions{o}
	add := func(f func(*CreateOptions)) {
		v := o
		f(&v)
		list = append(list, v)
	}
	add(func(o *CreateOptions) { o.LazyRefcounts, o.CompressionType = true, layout.CompressionZstd })
	add(func(o *CreateOptions) { o.DataFile = "data" })
	add(func(o *CreateOptions) { o.DataFile, o.DataFileRaw = "data", true })
	if o.RefcountBits == 16 {
		add(func(o *CreateOptions) { o.Version = 2 })
	}
	if o.ClusterSize >= 16384 {
		add(func(o *CreateOptions) { o.ExtendedL2 = true })
		add(func(o *CreateOptions) { o.ExtendedL2, o.BackingFile, o.BackingFormat = true, "base", "raw" })
		add(func(o *CreateOptions) { o.ExtendedL2, o.DataFile, o.DataFileRaw = true, "data", true })
	}
	if o.Prealloc == block.PreallocOff {
		add(func(o *CreateOptions) { o.BackingFile, o.BackingFormat = "base", "raw" })
	}
	return list
}

func checkCreated(t *testing.T, qemu, dir string, o CreateOptions) {
	t.Helper()
	name := fmt.Sprintf("%+v", o)
	img, data := createMem(t, o)
	path := dump(t, img, filepath.Join(dir, "image"))
	if data != nil {
		dump(t, data, filepath.Join(dir, "data"))
	}
	check := exec.Command(qemu, "check", path)
	check.Dir = dir // where the real tool looks for the data file
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%s: check: %v\n%s", name, err, out)
	}
	show := exec.Command(qemu, "info", "--output=json", path)
	show.Dir = dir
	out, err := show.Output()
	if err != nil {
		t.Fatalf("%s: info: %v", name, err)
	}
	var info struct {
		VirtualSize int64  `json:"virtual-size"`
		ClusterSize int64  `json:"cluster-size"`
		Backing     string `json:"backing-filename"`
		Format      struct {
			Data struct {
				Compat  string `json:"compat"`
				Lazy    bool   `json:"lazy-refcounts"`
				Bits    int    `json:"refcount-bits"`
				Ext     bool   `json:"extended-l2"`
				Raw     bool   `json:"data-file-raw"`
				Data    string `json:"data-file"`
				Zip     string `json:"compression-type"`
				Corrupt bool   `json:"corrupt"`
			} `json:"data"`
		} `json:"format-specific"`
	}
	if err := json.Unmarshal(out, &info); err != nil {
		t.Fatal(err)
	}
	d := info.Format.Data
	compat := map[int]string{0: "1.1", 2: "0.10", 3: "1.1"}[o.Version]
	if info.VirtualSize != o.Size || info.ClusterSize != o.ClusterSize || info.Backing != o.BackingFile || d.Compat != compat ||
		d.Lazy != o.LazyRefcounts || d.Bits != o.RefcountBits || d.Ext != o.ExtendedL2 || d.Raw != o.DataFileRaw ||
		d.Data != o.DataFile || d.Zip != layout.CompressionName(o.CompressionType) {
		t.Errorf("%s: info says %s", name, out)
	}
	os.Remove(path)
}

func TestCreatedLengthsAreThoseOfTheRealTool(t *testing.T) {
	for _, c := range []struct {
		o    CreateOptions
		want int64
	}{
		{CreateOptions{Size: 1 << 20}, 196616},
		{CreateOptions{Size: 512 << 20, ExtendedL2: true}, 196624},
		{CreateOptions{Size: 512 << 20, ExtendedL2: true, ClusterSize: 128 << 10}, 393224},
		{CreateOptions{Size: 1 << 20, Prealloc: block.PreallocMetadata}, 1376256},
		{CreateOptions{Size: 512 << 20, Prealloc: block.PreallocFalloc}, 537198592},
		{CreateOptions{Size: 512 << 20, Prealloc: block.PreallocMetadata}, 537198592},
	} {
		img, _ := createMem(t, c.o)
		if img.Size() != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.o, img.Size(), c.want)
		}
	}
}

func TestCreateRefusesWhatTheFormatCannotHave(t *testing.T) {
	for _, o := range []CreateOptions{
		{Size: -1},
		{Size: 1 << 20, ClusterSize: 3 << 10},
		{Size: 1 << 20, ClusterSize: 256},
		{Size: 1 << 20, ClusterSize: 4 << 20},
		{Size: 1 << 20, Version: 4},
		{Size: 1 << 20, RefcountBits: 3},
		{Size: 1 << 20, RefcountBits: 128},
		{Size: 1 << 20, Version: 2, RefcountBits: 8},
		{Size: 1 << 20, Version: 2, LazyRefcounts: true},
		{Size: 1 << 20, Version: 2, ExtendedL2: true},
		{Size: 1 << 20, Version: 2, CompressionType: 1},
		{Size: 1 << 20, CompressionType: 2},
		{Size: 1 << 20, ExtendedL2: true, ClusterSize: 8192},
		{Size: 1 << 20, BackingFormat: "raw"},
		{Size: 1 << 20, BackingFile: "b", Prealloc: block.PreallocMetadata},
		{Size: 1 << 20, DataFileRaw: true},
		{Size: 129 << 30, ClusterSize: 512},
		{Size: 2049 << 40},
		{Size: 1025 << 40, ExtendedL2: true},
		{Size: 1 << 20, ClusterSize: 512, BackingFile: string(make([]byte, 500))},
	} {
		img := mem.NewFile("image", 0)
		err := Create(context.Background(), block.NewDevice(img.Open(mem.Options{})), o)
		if !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%+v: %v, want an invalid argument", o, err)
		}
		if img.Size() != 0 {
			t.Errorf("%+v: refused, but wrote %d bytes", o, img.Size())
		}
	}
	for _, o := range []CreateOptions{{Size: 128 << 30, ClusterSize: 512}, {Size: 2 << 50}, {Size: 1 << 50, ExtendedL2: true}} {
		createMem(t, o)
	}
}

func TestCreateOnDirtyDeviceLeavesNoOldBytes(t *testing.T) {
	for _, o := range []CreateOptions{
		{Size: 1 << 20},
		{Size: 1 << 20, Prealloc: block.PreallocMetadata},
		{Size: 1 << 20, Prealloc: block.PreallocFull},
		{Size: 1 << 20, Prealloc: block.PreallocMetadata, Version: 2},
		{Size: 1 << 20, Prealloc: block.PreallocMetadata, ExtendedL2: true},
	} {
		f := mem.NewFile("device", 4<<20)
		junk := make([]byte, 4<<20)
		for i := range junk {
			junk[i] = 0xe5
		}
		f.WriteAt(junk, 0)
		if err := Create(context.Background(), block.NewDevice(f.Open(mem.Options{Fixed: true})), o); err != nil {
			t.Fatal(err)
		}
		path := dump(t, f, filepath.Join(t.TempDir(), "image"))
		checkClean(t, path)
		raw := path + ".raw"
		testenv.Run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw)
		b, err := os.ReadFile(raw)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range b {
			if c != 0 {
				t.Errorf("%+v: byte %#x reads %#x", o, i, c)
				break
			}
		}
	}
}
