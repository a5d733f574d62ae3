package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/image"
	"byre/internal/testenv"
	"byre/qcow2"
	"byre/storage/file"
)

// create makes an image in the current folder.
func create(t *testing.T, name string, size int64, backing, format string) {
	t.Helper()
	err := image.Create(t.Context(), name, image.CreateOptions{Format: "qcow2", Size: size, BackingFile: backing,
		BackingFormat: format, Unchecked: true}, image.WithGate(image.AllowReferences))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// createUnnamed makes an image whose backing file has no format recorded, so that it is probed.
func createUnnamed(t *testing.T, name string, size int64, backing string) {
	t.Helper()
	f, err := file.Create(t.Context(), name, file.Options{}, file.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dev := block.NewDevice(f)
	if err := qcow2.Create(t.Context(), dev, qcow2.CreateOptions{Size: size, BackingFile: backing}); err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
}

// chain makes base.raw <- mid.qcow2 <- d/top.qcow2 in a folder of its own, where the test then runs.
func chain(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("base.raw", bytes.Repeat([]byte{0x55}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("d", 0o700); err != nil {
		t.Fatal(err)
	}
	create(t, "mid.qcow2", 2<<20, "base.raw", "raw")
	create(t, "d/top.qcow2", 3<<20, "../mid.qcow2", "qcow2")
}

var allow = image.WithGate(image.AllowReferences)

func TestTheDefaultGateOpensNothingThatWasNotNamed(t *testing.T) {
	chain(t)
	_, err := image.Open(t.Context(), "d/top.qcow2")
	if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), "d/../mid.qcow2") {
		t.Fatalf("%v: want a refusal that names the file", err)
	}
	asked := []string{}
	gate := image.GateFunc(func(_ context.Context, r image.Reference) error {
		asked = append(asked, fmt.Sprintf("%s: %s (%s)", r.From, r.Resolved, r.Format))
		return nil
	})
	im := mustOpen(t, "d/top.qcow2", image.WithGate(gate))
	const want = "d/top.qcow2: d/../mid.qcow2 (qcow2); d/../mid.qcow2: d/../base.raw (raw)"
	if got := strings.Join(asked, "; "); got != want {
		t.Errorf("the gate was asked\n%s\nwant\n%s", got, want)
	}
	p := make([]byte, 3<<20)
	if _, err := im.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Repeat([]byte{0x55}, 1<<20), make([]byte, 2<<20)...); !bytes.Equal(p, want) {
		t.Error("the chain reads as something else")
	}
	mustOpen(t, "d/top.qcow2", image.MetadataOnly())
	mustOpen(t, "d/top.qcow2", image.WithoutBacking())
	mustOpen(t, "d/top.qcow2", image.WithOption("backing", nil))
}

func TestTheGateIsAskedForAllReferencesOfALayerAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	create(t, "x.qcow2", 1<<20, "base.raw", "raw")
	if err := image.Create(t.Context(), "both.qcow2", image.CreateOptions{Format: "qcow2", Size: 1 << 20, BackingFile: "b.raw",
		BackingFormat: "raw", Unchecked: true, Options: map[string]string{"data_file": "d.dat"}}); err != nil {
		t.Fatal(err)
	}
	_, err := image.Open(t.Context(), "both.qcow2")
	if err == nil || !strings.Contains(err.Error(), `"b.raw"`) || !strings.Contains(err.Error(), `"d.dat"`) {
		t.Errorf("%v: want both references in the error", err)
	}
}

func TestOverridesOfTheBackingFileNeedNoGate(t *testing.T) {
	chain(t)
	if err := os.WriteFile("other.raw", bytes.Repeat([]byte{0x66}, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		first byte
		file  string
	}{
		"driver=qcow2,file.filename=d/top.qcow2,backing.driver=raw,backing.file.filename=other.raw": {0x66, ""},
		`json:{"file.filename":"d/top.qcow2","backing":{"file.filename":"other.raw"}}`:              {0x66, ""},
		`json:{"file.filename":"d/top.qcow2","backing":null}`:                                       {0, ""},
		"file.filename=d/top.qcow2,backing=null":                                                    {0, ""},
		"file.filename=d/top.qcow2,backing=":                                                        {0, ""},
	} {
		var opts []image.Option
		if !strings.HasPrefix(name, "json:") {
			opts = append(opts, image.WithOptionString())
		}
		im := mustOpen(t, name, opts...)
		b := make([]byte, 1)
		if _, err := im.ReadAt(b, 0); err != nil || b[0] != want.first {
			t.Errorf("%s: %x, %v", name, b, err)
		}
		// The name in listings opens the same again.
		again := mustOpen(t, im.Filename())
		if _, err := again.ReadAt(b, 0); err != nil || b[0] != want.first {
			t.Errorf("%s is listed as %s, which opens something else: %x, %v", name, im.Filename(), b, err)
		}
	}
	// Settings of the backing layer without a name go to the file that the image names, which is implicit.
	if _, err := image.Open(t.Context(), "file.filename=d/top.qcow2,backing.driver=raw", image.WithOptionString()); !errors.Is(err, block.ErrRefused) {
		t.Errorf("%v", err)
	}
	mustOpen(t, "file.filename=d/top.qcow2,backing.driver=raw", image.WithOptionString(), allow)
}

func TestJSONNamesInHeadersGoThroughTheGate(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("secret", bytes.Repeat([]byte{7}, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	create(t, "x.qcow2", 512, `json:{"driver":"raw","file":{"driver":"file","filename":"secret"}}`, "raw")
	if _, err := image.Open(t.Context(), "x.qcow2"); !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	im := mustOpen(t, "x.qcow2", allow)
	b := make([]byte, 1)
	if _, err := im.ReadAt(b, 0); err != nil || b[0] != 7 {
		t.Errorf("%x, %v", b, err)
	}
	// A data file is a path and nothing else, whatever it looks like.
	if err := image.Create(t.Context(), "data.qcow2", image.CreateOptions{Format: "qcow2", Size: 512,
		Options: map[string]string{"data_file": "json:{}"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("json:{}"); err != nil {
		t.Errorf("the data file: %v", err)
	}
	mustOpen(t, "data.qcow2", allow)
}

func TestLoopsInChainsAreFound(t *testing.T) {
	t.Chdir(t.TempDir())
	create(t, "self.qcow2", 1<<20, "./self.qcow2x", "qcow2")
	if err := os.Symlink("self.qcow2", "self.qcow2x"); err != nil {
		t.Fatal(err)
	}
	create(t, "a.qcow2", 1<<20, "b.qcow2", "qcow2")
	createUnnamed(t, "b.qcow2", 1<<20, "c.qcow2")
	create(t, "c.qcow2", 1<<20, "a.qcow2", "qcow2")
	for _, name := range []string{"self.qcow2", "a.qcow2", "b.qcow2"} {
		for _, opts := range [][]image.Option{{allow}, {allow, image.Writable()}} {
			if _, err := image.Open(t.Context(), name, opts...); !errors.Is(err, block.ErrCorrupt) || !strings.Contains(err.Error(), "loop") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := image.InfoChain(t.Context(), name, allow); !errors.Is(err, block.ErrCorrupt) {
			t.Errorf("listing the chain of %s: %v", name, err)
		}
	}
	// The same file seen as raw ends a chain.
	create(t, "raw.qcow2", 1<<20, "raw.qcow2x", "raw")
	if err := os.Symlink("raw.qcow2", "raw.qcow2x"); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, "raw.qcow2", allow)
}

func TestChainsOfManyLayersShareOneBudget(t *testing.T) {
	t.Chdir(t.TempDir())
	create(t, "0.qcow2", 1<<20, "", "")
	const n = 40
	for i := 1; i < n; i++ {
		create(t, fmt.Sprintf("%d.qcow2", i), 1<<20, fmt.Sprintf("%d.qcow2", i-1), "qcow2")
	}
	im := mustOpen(t, fmt.Sprintf("%d.qcow2", n-1), allow)
	if layers := im.Layers(); len(layers) != n || layers[1].Filename != fmt.Sprintf("%d.qcow2", n-2) || layers[1].Format != "qcow2" {
		t.Errorf("layers: %v", layers)
	}
	depth := 0
	for e, err := range im.Extents(t.Context(), 0, 1<<20, block.WantZero) {
		if err != nil {
			t.Fatal(err)
		}
		depth = max(depth, e.Depth)
	}
	if depth != n-1 {
		t.Errorf("depth %d, want %d", depth, n-1)
	}
	list, err := image.InfoChain(t.Context(), fmt.Sprintf("%d.qcow2", n-1), allow)
	if err != nil || len(list) != n {
		t.Errorf("%d layers listed, %v", len(list), err)
	}
	if _, err := image.InfoChain(t.Context(), fmt.Sprintf("%d.qcow2", n-1)); !errors.Is(err, block.ErrRefused) {
		t.Errorf("the default gate let a chain be listed: %v", err)
	}
}

func TestSnapshotsAreShownWithTheirOwnSize(t *testing.T) {
	t.Chdir(t.TempDir())
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "x.qcow2", "1M")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 64k", "x.qcow2")
	testenv.Run(t, "qemu-img", "snapshot", "-c", "first", "x.qcow2")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 2 0 64k", "x.qcow2")
	testenv.Run(t, "qemu-img", "resize", "-q", "x.qcow2", "2M")
	im := mustOpen(t, "x.qcow2", image.WithSnapshot("first"))
	b := make([]byte, 1)
	if _, err := im.ReadAt(b, 0); err != nil || b[0] != 1 || im.Size() != 1<<20 {
		t.Errorf("%x, size %d, %v", b, im.Size(), err)
	}
	list := im.Snapshots()
	if len(list) != 1 || list[0].Name != "first" || list[0].ID != "1" || list[0].DiskSize != 1<<20 {
		t.Errorf("%+v", list)
	}
	if _, err := image.Open(t.Context(), "x.qcow2", image.WithSnapshot("nosuch")); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("a snapshot that is not there: %v", err)
	}
	if _, err := image.Open(t.Context(), "x.qcow2", image.WithSnapshot("first"), image.Writable()); err == nil {
		t.Error("a snapshot was opened for writing")
	}
}

func TestFailedOpensLeaveNoFileOpen(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc here")
	}
	chain(t)
	if err := os.WriteFile("x.vhdx", []byte("vhdxfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bad.qcow2", []byte("QFI\xfb\x00\x00\x00\x03"), 0o600); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		list, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for _, name := range []string{"d/top.qcow2", "x.vhdx", "bad.qcow2", `json:{"file.filename":"base.raw","offset":"x"}`,
		`json:{"file.filename":"base.raw","nosuch":1}`, `json:{"file.filename":"mid.qcow2","nosuch":1}`,
		`json:{"file.filename":"mid.qcow2","backing.file.filename":"base.raw","backing.size":1,"backing.driver":"raw"}`,
		`json:{"file.filename":"mid.qcow2","l2-cache-size":"x"}`, `json:{"file.filename":"base.raw","offset":999999999}`} {
		if im, err := image.Open(t.Context(), name); err == nil {
			t.Errorf("%s was opened", name)
			im.Close()
		}
	}
	if im, err := image.Open(t.Context(), "mid.qcow2", allow, image.WithSnapshot("x")); err == nil {
		t.Error("opened a snapshot that is not there")
		im.Close()
	}
	if after := count(); after > before {
		t.Errorf("%d files were left open", after-before)
	}
}

func TestLocksKeepWritersApart(t *testing.T) {
	chain(t)
	im := mustOpen(t, "mid.qcow2", allow, image.Writable())
	if _, err := image.Open(t.Context(), "mid.qcow2", allow); !errors.Is(err, block.ErrLocked) {
		t.Errorf("a second open: %v", err)
	}
	mustOpen(t, "mid.qcow2", allow, image.WithForceShare())
	mustOpen(t, "mid.qcow2", allow, image.WithoutLocks())
	if _, err := image.Open(t.Context(), "d/top.qcow2", allow, image.WithForceShare(), image.Writable()); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("force-share and writing: %v", err)
	}
	if out, err := exec.Command(testenv.Tool(t, "qemu-img"), "info", "mid.qcow2").CombinedOutput(); err == nil {
		t.Errorf("the real tool opened an image that is being written: %s", out)
	}
	if err := im.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	reader := mustOpen(t, "base.raw")
	testenv.Run(t, "qemu-io", "-f", "raw", "-c", "write 0 512", "base.raw") // raw images opened for reading may be written
	_ = reader
}
