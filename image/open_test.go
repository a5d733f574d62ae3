package image_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/image"
)

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t *testing.T, name string, opts ...image.Option) *image.Image {
	t.Helper()
	im, err := image.Open(t.Context(), name, opts...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := im.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return im
}

func TestARawImageOpensByAnySpellingOfItsName(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 256)
	path := writeFile(t, "a,b.img", data)
	comma := strings.ReplaceAll(path, ",", ",,")
	for _, c := range []struct {
		name string
		opts []image.Option
		want string // Filename; "": path
		off  int
	}{
		{name: path},
		{name: "file:" + path},
		{name: path, opts: []image.Option{image.WithFormat("raw")}},
		{name: `json:{"driver":"raw","file":{"driver":"file","filename":"` + path + `"}}`},
		{name: `json:{"driver":"raw","file.filename":"` + path + `"}`},
		{name: "driver=raw,file.driver=file,file.filename=" + comma, opts: []image.Option{image.WithOptionString()}},
		{name: "file.filename=" + comma, opts: []image.Option{image.WithOptionString()}},
		{name: "filename=" + comma, opts: []image.Option{image.WithOptionString()}},
		{name: "driver=raw,offset=1k,file.filename=" + comma, opts: []image.Option{image.WithOptionString()}, off: 1024,
			want: `json:{"offset": "1k", "driver": "raw", "file": {"driver": "file", "filename": "` + path + `"}}`},
		{name: `json:{"driver":"raw","offset":512,"size":1024,"file.filename":"` + path + `"}`, off: 512,
			want: `json:{"offset": 512, "driver": "raw", "size": 1024, "file": {"driver": "file", "filename": "` + path + `"}}`},
	} {
		im := mustOpen(t, c.name, c.opts...)
		if c.want == "" {
			c.want = path
		}
		got := make([]byte, im.Size())
		_, err := im.ReadAt(got, 0)
		if err != nil || !bytes.Equal(got, data[c.off:c.off+len(got)]) || im.Filename() != c.want || im.Format() != "raw" {
			t.Errorf("%s: %v, %d bytes; listed as %s (%s), want %s", c.name, err, len(got), im.Filename(), im.Format(), c.want)
		}
	}
}

func TestNamesAndOptionsThatCannotBeRightAreRefused(t *testing.T) {
	path := writeFile(t, "x.img", make([]byte, 4096))
	str := image.WithOptionString()
	for _, c := range []struct {
		name string
		opts []image.Option
		kind block.Kind
		text string
	}{
		{name: path + ".missing", kind: block.KindIO, text: "no such file"},
		{name: filepath.Dir(path), kind: block.KindUnsupported, text: "directory"},
		{name: "nosuch:" + path, kind: block.KindInvalid, text: "unknown protocol"},
		{name: "nbd:localhost:10809", kind: block.KindUnsupported, text: "NBD"},
		{name: path, opts: []image.Option{image.WithFormat("nosuch")}, kind: block.KindInvalid, text: "nosuch"},
		{name: path, opts: []image.Option{image.WithFormat("vmdk")}, kind: block.KindUnsupported, text: "vmdk"},
		{name: "driver=raw,file.filename=" + path + ",nosuch=1", opts: []image.Option{str}, kind: block.KindInvalid, text: "nosuch"},
		{name: "driver=raw,file.filename=" + path + ",file.nosuch=1", opts: []image.Option{str}, kind: block.KindInvalid, text: "nosuch"},
		{name: "driver=raw,offset=-1,file.filename=" + path, opts: []image.Option{str}, kind: block.KindInvalid, text: "size"},
		{name: "driver=raw,offset=1G,file.filename=" + path, opts: []image.Option{str}, kind: block.KindInvalid, text: "window"},
		{name: "offset=1G,file.filename=" + path, opts: []image.Option{str}, kind: block.KindInvalid, text: "window"},
		{name: "driver=raw,file=node0", opts: []image.Option{str}, kind: block.KindInvalid, text: "node"},
		{name: "driver=raw", opts: []image.Option{str}, kind: block.KindInvalid, text: "file.filename"},
		{name: "driver=file", opts: []image.Option{str}, kind: block.KindInvalid, text: "filename"},
		{name: "read-only=perhaps,driver=raw,file.filename=" + path, opts: []image.Option{str}, kind: block.KindInvalid, text: "perhaps"},
		{name: "driver=raw,read-only=on,file.filename=" + path, opts: []image.Option{str, image.Writable()}, kind: block.KindInvalid, text: "read-only"},
		{name: `json:{"driver":"raw"`, kind: block.KindInvalid, text: "JSON"},
		{name: `json:{"driver":5,"file.filename":"x"}`, kind: block.KindInvalid, text: "driver"},
	} {
		im, err := image.Open(t.Context(), c.name, c.opts...)
		if err == nil {
			im.Close()
		}
		if block.KindOf(err) != c.kind || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.text)) {
			t.Errorf("%s: %v (%v); want %v with %q", c.name, err, block.KindOf(err), c.kind, c.text)
		}
	}
	if _, err := image.Open(t.Context(), path+".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want fs.ErrNotExist in its chain", err)
	}
}

func TestForeignFormatsAreNamed(t *testing.T) {
	path := writeFile(t, "x.img", append([]byte("vhdxfile"), make([]byte, 4088)...))
	_, err := image.Open(t.Context(), path)
	if !errors.Is(err, block.ErrUnsupported) || !strings.Contains(err.Error(), "vhdx") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v: want an unsupported format with its name and the file's", err)
	}
	mustOpen(t, path, image.WithFormat("raw"))
}

func TestAProbedRawImageWarnsAndIsGuardedWhenItIsWritten(t *testing.T) {
	path := writeFile(t, "x.img", make([]byte, 4096))
	var warned []image.Warning
	warn := image.WithWarnings(func(w image.Warning) { warned = append(warned, w) })
	im := mustOpen(t, path, image.Writable(), warn)
	if len(warned) != 1 || warned[0].Kind != image.WarnGuessedRaw || warned[0].Path != path {
		t.Errorf("warnings: %v", warned)
	}
	if _, err := im.WriteAt([]byte("QFI\xfb\x00\x00\x00\x03"), 0); !errors.Is(err, block.ErrInvalid) || !strings.Contains(err.Error(), "qcow2") {
		t.Errorf("a qcow2 header was written: %v", err)
	}
	// A text that a look behind the first sector would take for another format.
	for off := int64(0); off < 512; off += 64 {
		if _, err := im.WriteAt([]byte("#"+strings.Repeat("x", 62)+"\n"), off); err != nil {
			t.Error(err)
		}
	}
	if _, err := im.WriteAt([]byte("version=1\n"), 512); err != nil {
		t.Error(err)
	}
	if again := mustOpen(t, path, image.WithForceShare()); again.Format() != "raw" {
		t.Errorf("the guest turned the image into one of format %s", again.Format())
	}
	warned = nil
	mustOpen(t, writeFile(t, "y.img", make([]byte, 512)), warn)
	named := mustOpen(t, writeFile(t, "z.img", make([]byte, 512)), image.Writable(), image.WithFormat("raw"), warn)
	if _, err := named.WriteAt([]byte("QFI\xfb\x00\x00\x00\x03"), 0); err != nil || len(warned) > 0 {
		t.Errorf("with the format given: %v, warnings %v", err, warned)
	}
}

func TestReadOnlyImagesCannotBeWritten(t *testing.T) {
	im := mustOpen(t, writeFile(t, "x.img", make([]byte, 512)))
	if _, err := im.WriteAt([]byte("x"), 0); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestExtentsHaveNoGapsAndMerge(t *testing.T) {
	path := writeFile(t, "x.img", nil)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, off := range []int64{0, 4096, 1 << 20} {
		if _, err := f.WriteAt(bytes.Repeat([]byte{1}, 4096), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(2<<20 + 100); err != nil {
		t.Fatal(err)
	}
	im := mustOpen(t, path)
	pos, n := int64(0), 0
	for e, err := range im.Extents(t.Context(), 0, 1<<62, block.WantZero) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Start != pos || e.Host != pos {
			t.Errorf("extent %+v, want it at %d", e, pos)
		}
		pos, n = e.End(), n+1
	}
	if pos != im.Size() || n > 4 {
		t.Errorf("%d extents up to %d of %d", n, pos, im.Size())
	}
}
