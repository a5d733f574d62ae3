package image_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/image"
	"byre/internal/testenv"
)

func TestCreatedImagesAreWhatTheRealToolSays(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("base.raw", make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o        image.CreateOptions
		describe string
		want     map[string]any // of format-specific data, and virtual-size
	}{
		{o: image.CreateOptions{Format: "qcow2", Size: 1 << 30},
			describe: "fmt=qcow2 cluster_size=65536 extended_l2=off compression_type=zlib size=1073741824 lazy_refcounts=off refcount_bits=16",
			want:     map[string]any{"virtual-size": 1e9 + 73741824, "compat": "1.1", "refcount-bits": 16.0}},
		{o: image.CreateOptions{Format: "qcow2", Size: 10 << 20, Options: map[string]string{"extended_l2": "on", "cluster_size": "128k",
			"preallocation": "metadata", "lazy_refcounts": "on", "compression_type": "zstd"}},
			describe: "fmt=qcow2 cluster_size=131072 extended_l2=on preallocation=metadata compression_type=zstd size=10485760 lazy_refcounts=on refcount_bits=16",
			want:     map[string]any{"extended-l2": true, "lazy-refcounts": true, "compression-type": "zstd"}},
		{o: image.CreateOptions{Format: "qcow2", Size: -1, BackingFile: "base.raw", BackingFormat: "raw"},
			describe: "fmt=qcow2 cluster_size=65536 extended_l2=off compression_type=zlib size=3145728 backing_file=base.raw backing_fmt=raw lazy_refcounts=off refcount_bits=16",
			want:     map[string]any{"virtual-size": 3145728.0, "backing-filename": "base.raw", "backing-filename-format": "raw"}},
		{o: image.CreateOptions{Format: "qcow2", Size: -1, Options: map[string]string{"size": "1M", "data_file": "d.dat", "data_file_raw": "on"}},
			describe: "fmt=qcow2 cluster_size=65536 extended_l2=off compression_type=zlib size=1048576 data_file=d.dat data_file_raw=on lazy_refcounts=off refcount_bits=16",
			want:     map[string]any{"data-file": "d.dat", "data-file-raw": true}},
		{o: image.CreateOptions{Format: "qcow2", Size: 1000, Options: map[string]string{"compat": "0.10"}},
			describe: "fmt=qcow2 cluster_size=65536 extended_l2=off compression_type=zlib size=1000 compat=0.10 lazy_refcounts=off refcount_bits=16",
			want:     map[string]any{"virtual-size": 1024.0, "compat": "0.10"}},
		{o: image.CreateOptions{Format: "raw", Size: 1 << 20, Options: map[string]string{"preallocation": "falloc"}},
			describe: "fmt=raw size=1048576 preallocation=falloc",
			want:     map[string]any{"virtual-size": 1048576.0, "format": "raw"}},
	} {
		plan, err := image.NewCreation(t.Context(), "new.img", c.o, image.WithGate(image.AllowReferences))
		if err != nil {
			t.Errorf("%s: %v", c.describe, err)
			continue
		}
		if got := plan.Describe(); got != c.describe {
			t.Errorf("described as\n%s\nwant\n%s", got, c.describe)
		}
		if _, err := os.Stat("new.img"); err == nil {
			t.Error("planning touched the file")
		}
		if err := plan.Run(t.Context()); err != nil {
			t.Errorf("%s: %v", c.describe, err)
			continue
		}
		info := realInfo(t, "new.img")
		for k, want := range c.want {
			if info[k] != want {
				t.Errorf("%s: the real tool says %s is %v, want %v", c.describe, k, info[k], want)
			}
		}
		if c.o.Format == "qcow2" {
			testenv.Run(t, "qemu-img", "check", "-q", "new.img")
		}
		os.Remove("new.img")
	}
}

// realInfo is what the real tool says about an image, the format's own facts merged in.
func realInfo(t *testing.T, name string) map[string]any {
	t.Helper()
	var info map[string]any
	if err := json.Unmarshal([]byte(testenv.Run(t, "qemu-img", "info", "--output=json", name)), &info); err != nil {
		t.Fatal(err)
	}
	if s, ok := info["format-specific"].(map[string]any); ok {
		for k, v := range s["data"].(map[string]any) {
			info[k] = v
		}
	}
	return info
}

func TestCreateRefusesWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("base.raw", make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	opt := func(k, v string) map[string]string { return map[string]string{k: v} }
	for _, c := range []struct {
		o    image.CreateOptions
		name string
		kind block.Kind
		text string
	}{
		{o: image.CreateOptions{Format: "nosuch", Size: 512}, kind: block.KindInvalid, text: "nosuch"},
		{o: image.CreateOptions{Format: "vmdk", Size: 512}, kind: block.KindUnsupported, text: "vmdk"},
		{o: image.CreateOptions{Format: "qcow2", Size: -1}, kind: block.KindInvalid, text: "size"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("nosuch", "1")}, kind: block.KindInvalid, text: "nosuch"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("cluster_size", "3k")}, kind: block.KindInvalid, text: "cluster size"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("cluster_size", "x")}, kind: block.KindInvalid, text: "cluster_size"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("extended_l2", "maybe")}, kind: block.KindInvalid, text: "extended_l2"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("preallocation", "some")}, kind: block.KindInvalid, text: "preallocation"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("compat", "9")}, kind: block.KindInvalid, text: "compat"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, Options: opt("size", "1M")}, kind: block.KindInvalid, text: "twice"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, BackingFile: "base.raw"}, kind: block.KindInvalid, text: "Detected format of raw."},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, BackingFile: "missing", BackingFormat: "raw"}, kind: block.KindIO, text: "missing"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, BackingFormat: "raw"}, kind: block.KindInvalid, text: "backing"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512, BackingFile: "new.img", BackingFormat: "raw"}, kind: block.KindInvalid, text: "own backing file"},
		{o: image.CreateOptions{Format: "raw", Size: 512, BackingFile: "base.raw", BackingFormat: "raw"}, kind: block.KindInvalid, text: "backing"},
		{o: image.CreateOptions{Format: "raw", Size: 512, Options: opt("preallocation", "metadata")}, kind: block.KindInvalid, text: "preallocation"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512}, name: "nbd:localhost:1", kind: block.KindUnsupported, text: "NBD"},
		{o: image.CreateOptions{Format: "qcow2", Size: 512}, name: filepath.Join("missing", "dir.img"), kind: block.KindIO, text: "no such file"},
	} {
		if c.name == "" {
			c.name = "new.img"
		}
		err := image.Create(t.Context(), c.name, c.o)
		if block.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v (%v), want %v with %q", c.o, err, block.KindOf(err), c.kind, c.text)
		}
		if _, err := os.Stat("new.img"); err == nil {
			t.Errorf("%+v: a file was left behind", c.o)
			os.Remove("new.img")
		}
	}
}
