package qcow2

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"byre/block"
	"byre/internal/testenv"
)

// mapLine is a line of map --output=json.
type mapLine struct {
	Start, Length, Depth int64
	Present, Zero, Data  bool
	Offset               *int64
}

func (m mapLine) String() string {
	s := fmt.Sprintf("%#x+%#x depth %d present %v zero %v data %v", m.Start, m.Length, m.Depth, m.Present, m.Zero, m.Data)
	if m.Offset != nil {
		s += fmt.Sprintf(" at %#x", *m.Offset)
	}
	return s
}

// checkMap compares a device's extents with what the real tool maps.
func checkMap(t testing.TB, dev *block.Device, path string) {
	t.Helper()
	var want []mapLine
	if err := json.Unmarshal([]byte(testenv.Run(t, "qemu-img", "map", "--output=json", path)), &want); err != nil {
		t.Fatal(err)
	}
	var got []mapLine
	for off := int64(0); off < dev.Size(); {
		e, err := dev.Extent(ctx, off, dev.Size()-off, block.WantZero)
		if err != nil {
			t.Fatal(err)
		}
		off = e.End()
		l := mapLine{Start: e.Start, Length: e.Length, Depth: int64(e.Depth), Present: e.Flags&block.Allocated != 0,
			Zero: e.IsZero(), Data: e.Flags&block.Data != 0}
		if e.Flags&block.HasHost != 0 {
			l.Offset = &e.Host
		}
		if n := len(got); n > 0 && mapMergeable(got[n-1], l) {
			got[n-1].Length += l.Length
			continue
		}
		got = append(got, l)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("map line %d:\ngot  %v\nwant %v", i, got[min(i, len(got)):min(i+2, len(got))], want[min(i, len(want)):min(i+2, len(want))])
		}
	}
}

func mapMergeable(a, b mapLine) bool {
	if a.Depth != b.Depth || a.Present != b.Present || a.Zero != b.Zero || a.Data != b.Data || (a.Offset == nil) != (b.Offset == nil) {
		return false
	}
	return a.Offset == nil || *a.Offset+a.Length == *b.Offset
}

// checkInfo compares Info with what the real tool tells of an image.
func checkInfo(t testing.TB, im *Image, path string) {
	t.Helper()
	var want struct {
		VirtualSize int64  `json:"virtual-size"`
		ClusterSize int64  `json:"cluster-size"`
		ActualSize  int64  `json:"actual-size"`
		Dirty       bool   `json:"dirty-flag"`
		Backing     string `json:"backing-filename"`
		Format      string `json:"backing-filename-format"`
		Encrypted   bool
		Snapshots   []struct {
			ID, Name    string
			VMStateSize uint64 `json:"vm-state-size"`
			DateSec     uint32 `json:"date-sec"`
			DateNsec    uint32 `json:"date-nsec"`
		}
		Specific struct {
			Data struct {
				Compat      string
				Compression string `json:"compression-type"`
				Lazy        bool   `json:"lazy-refcounts"`
				Bits        int    `json:"refcount-bits"`
				Corrupt     bool
				Extended    bool   `json:"extended-l2"`
				DataFile    string `json:"data-file"`
				DataFileRaw bool   `json:"data-file-raw"`
				Bitmaps     []struct {
					Name        string
					Granularity int64
					Flags       []string
				}
				Encrypt *struct {
					Format      string
					CipherAlg   string `json:"cipher-alg"`
					CipherMode  string `json:"cipher-mode"`
					IVGen       string `json:"ivgen-alg"`
					IVGenHash   string `json:"ivgen-hash-alg"`
					Hash        string `json:"hash-alg"`
					Payload     int64  `json:"payload-offset"`
					MasterIters uint32 `json:"master-key-iters"`
					UUID        string
					Slots       []struct {
						Active    bool
						Iters     uint32
						Stripes   uint32
						KeyOffset int64 `json:"key-offset"`
					}
				}
			}
		} `json:"format-specific"`
	}
	if err := json.Unmarshal([]byte(testenv.Run(t, "qemu-img", "info", "--output=json", path)), &want); err != nil {
		t.Fatal(err)
	}
	got, err := im.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := want.Specific.Data
	eq := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("info %s: %v, want %v", what, got, want)
		}
	}
	eq("virtual size", got.VirtualSize, want.VirtualSize)
	eq("cluster size", got.ClusterSize, want.ClusterSize)
	eq("dirty", got.Dirty, want.Dirty)
	eq("backing file", got.BackingFile, want.Backing)
	eq("backing format", got.BackingFormat, want.Format)
	eq("compat", got.Compat, d.Compat)
	eq("compression", got.CompressionType, d.Compression)
	eq("lazy refcounts", got.LazyRefcounts, d.Lazy)
	eq("refcount bits", got.RefcountBits, d.Bits)
	eq("corrupt", got.Corrupt, d.Corrupt)
	eq("extended L2", got.ExtendedL2, d.Extended)
	eq("data file", got.DataFile, d.DataFile)
	eq("raw data file", got.DataFileRaw, d.DataFileRaw)
	if n, ok, err := im.AllocatedSize(ctx); err != nil || ok && n != want.ActualSize {
		t.Errorf("size on disk %d, want %d (%v)", n, want.ActualSize, err)
	}
	eq("number of snapshots", len(got.Snapshots), len(want.Snapshots))
	for i, s := range got.Snapshots {
		w := want.Snapshots[i]
		eq("snapshot", []any{s.ID, s.Name, s.VMStateSize, s.DateSec, s.DateNsec}, []any{w.ID, w.Name, w.VMStateSize, w.DateSec, w.DateNsec})
	}
	eq("number of bitmaps", len(got.Bitmaps), len(d.Bitmaps))
	for i, b := range got.Bitmaps {
		w := d.Bitmaps[i]
		var flags []string
		if b.InUse() {
			flags = append(flags, "in-use")
		}
		if b.Auto() {
			flags = append(flags, "auto")
		}
		eq("bitmap", []any{b.Name, b.Granularity(), len(flags)}, []any{w.Name, w.Granularity, len(w.Flags)})
	}
	eq("encrypted", got.Encryption != nil, d.Encrypt != nil)
	if d.Encrypt == nil || d.Encrypt.Format == "aes" {
		return
	}
	l, w := got.Encryption.LUKS, d.Encrypt
	alg := fmt.Sprintf("%s-%d", l.CipherName, l.KeyBytes*8)
	if l.Mode() == "xts" {
		alg = fmt.Sprintf("%s-%d", l.CipherName, l.KeyBytes*4)
	}
	eq("LUKS", []any{alg, l.Mode(), l.IVGen(), l.IVGenHash(), l.HashSpec, int64(l.PayloadOffset) * 512, l.DigestIterations, l.UUID},
		[]any{w.CipherAlg, w.CipherMode, w.IVGen, w.IVGenHash, w.Hash, w.Payload, w.MasterIters, w.UUID})
	for i, s := range l.Slots {
		x := w.Slots[i]
		eq("key slot", []any{s.Active, int64(s.KeyOffset) * 512}, []any{x.Active, x.KeyOffset})
		if s.Active {
			eq("key slot", []any{s.Iterations, s.Stripes}, []any{x.Iters, x.Stripes})
		}
	}
}

func TestInfoTellsOfSnapshotsBitmapsAndEncryption(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(t *testing.T, path string){
		"bitmaps": func(t *testing.T, p string) {
			mustCreate(t, p, "compat=1.1", "10M")
			testenv.Run(t, "qemu-img", "bitmap", "--add", p, "one")
			testenv.Run(t, "qemu-img", "bitmap", "--add", "--disable", "-g", "4k", p, "second, with a name")
		},
		"snapshots": func(t *testing.T, p string) {
			mustCreate(t, p, "compat=0.10", "10M")
			testenv.Run(t, "qemu-img", "snapshot", "-c", "first", p)
			testenv.Run(t, "qemu-img", "snapshot", "-c", "2", p)
		},
		"lazy": func(t *testing.T, p string) { mustCreate(t, p, "lazy_refcounts=on,refcount_bits=1", "10M") },
		"luks": func(t *testing.T, p string) { createLUKS(t, p, "encrypt.iter-time=10") },
		"luks-essiv": func(t *testing.T, p string) {
			createLUKS(t, p, "encrypt.iter-time=10,encrypt.cipher-alg=aes-128,encrypt.cipher-mode=cbc,encrypt.ivgen-alg=essiv,encrypt.ivgen-hash-alg=sha256")
		},
		"aes": func(t *testing.T, p string) {
			testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "--object", "secret,id=s,data=secret", "-o", "encryption=on,encrypt.key-secret=s", p, "10M")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := filepath.Join(dir, name)
			make(t, p)
			unchanged(t, p)
			checkInfo(t, device(t, p).Driver().(*Image), p)
		})
	}
}

// createLUKS makes an encrypted image. The tool measures its own speed for
// that, which fails now and then on a busy machine.
func createLUKS(t testing.TB, path, options string) {
	t.Helper()
	var out []byte
	for range 20 {
		var err error
		out, err = exec.Command(testenv.Tool(t, "qemu-img"), "create", "-q", "-f", "qcow2", "--object", "secret,id=s,data=secret",
			"-o", "encrypt.format=luks,encrypt.key-secret=s,"+options, path, "10M").CombinedOutput()
		if err == nil {
			return
		}
	}
	t.Fatalf("%s", out)
}

func TestDataOfEncryptedImagesIsRefusedAndNeverHandedOut(t *testing.T) {
	p := filepath.Join(t.TempDir(), "luks")
	createLUKS(t, p, "encrypt.iter-time=10")
	testenv.Run(t, "qemu-io", "--object", "secret,id=s,data=secret", "-c", "write -P 5 0 64k", "--image-opts", "driver=qcow2,encrypt.key-secret=s,file.filename="+p)
	dev := device(t, p)
	buf := make([]byte, 4096)
	for _, off := range []int64{0, 1 << 20} {
		if err := dev.Read(ctx, buf, off); block.KindOf(err) != block.KindUnsupported {
			t.Errorf("read at %d: %v", off, err)
		}
	}
	e, err := dev.Extent(ctx, 0, dev.Size(), block.WantZero)
	if err != nil || e.Length != 65536 || e.Flags&block.Data == 0 || e.Flags&block.HasHost != 0 {
		t.Errorf("extent %+v, %v", e, err)
	}
}

func TestSnapshotsReadAsDisksOfTheirOwnSize(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "snap.qcow2")
	mustCreate(t, p, "cluster_size=4096,extended_l2=off", "3M")
	script(t, p, "write -P 1 0 1M", "write -c -P 2 2M 4k", "write -z 100k 8k")
	testenv.Run(t, "qemu-img", "snapshot", "-c", "first", p)
	first := contents(t, p)
	script(t, p, "write -P 3 4k 512k", "write -P 4 2M 4k")
	testenv.Run(t, "qemu-img", "resize", "-q", p, "5M")
	testenv.Run(t, "qemu-img", "snapshot", "-c", "1", p) // a name that is the id of the other
	second := contents(t, p)
	script(t, p, "discard 0 5M", "write -P 5 0 64k")
	testenv.Run(t, "qemu-img", "resize", "-q", "--shrink", p, "2M")
	now := contents(t, p)
	unchanged(t, p)
	im := openChain(t, p, nil)
	for name, want := range map[string][]byte{"first": first, "1": first, "2": second} {
		s, err := im.OpenSnapshot(name)
		if err != nil {
			t.Fatal(err)
		}
		dev := block.NewDevice(s)
		checkReads(t, dev, want)
		checkExtents(t, dev, want)
		if err := dev.Write(ctx, []byte{1}, 0, 0); err == nil {
			t.Error("a snapshot was written to")
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
	dev := block.NewDevice(im)
	checkReads(t, dev, now)
	if _, err := im.OpenSnapshot("third"); block.KindOf(err) != block.KindInvalid {
		t.Error(err)
	}
	if err := dev.Close(); err != nil || im.budget.Used() != 0 {
		t.Errorf("%v, %d bytes of cache left", err, im.budget.Used())
	}
}

func TestPreallocatedImagesMapTheirHoles(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []string{"preallocation=metadata", "preallocation=falloc", "preallocation=full", "preallocation=metadata,extended_l2=on",
		"preallocation=metadata,cluster_size=4096", "preallocation=off", "preallocation=metadata,data_file=" + filepath.Join(dir, "data.raw")} {
		t.Run(o, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "p.qcow2")
			mustCreate(t, p, o, "8M")
			script(t, p, "write -P 1 1M 100k", "write -z 2M 64k", "write -P 2 4M 1k")
			dev := device(t, p)
			checkMap(t, dev, p)
			checkReads(t, dev, contents(t, p))
			// As a copy without holes the same image maps differently.
			b, err := os.ReadFile(p)
			if err == nil {
				err = os.WriteFile(p+".full", b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkMap(t, device(t, p+".full"), p+".full")
		})
	}
}

func TestVMStateLiesBehindTheDisk(t *testing.T) {
	p := filepath.Join(t.TempDir(), "vm.qcow2")
	mustCreate(t, p, "cluster_size=4096", "3M")
	script(t, p, "write -P 1 0 3M", "write -b -P 7 0 10240")
	im := openChain(t, p, nil)
	defer im.Close()
	buf := make([]byte, 12288)
	if err := im.view.readv(ctx, [][]byte{buf}, int64(im.geo.VMStateBase(im.Size()))); err != nil {
		t.Fatal(err)
	}
	for i, b := range buf {
		if want := byte(7); i < 10240 && b != want || i >= 10240 && b != 0 {
			t.Fatalf("byte %d of the VM state is %d", i, b)
		}
	}
}
