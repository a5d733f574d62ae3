package image_test

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"byre/block"
	"byre/image"
	"byre/internal/testenv"
)

func TestFaultsAreInjectedByNameAndByOptions(t *testing.T) {
	t.Chdir(t.TempDir())
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "x.qcow2", "1M")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write 0 128k", "x.qcow2")
	config := "[inject-error]\nevent = \"l2_load\"\nerrno = \"5\"\nonce = \"on\"\n"
	if err := os.WriteFile("fault.conf", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]image.Option{
		"blkdebug:fault.conf:x.qcow2": nil,
		"driver=qcow2,file.driver=blkdebug,file.image.filename=x.qcow2,file.inject-error.0.event=l2_load,file.inject-error.0.once=on": {
			image.WithOptionString()},
		`json:{"driver":"qcow2","file":{"driver":"blkdebug","image":"x","image.filename":"x.qcow2"}}`: nil,
	} {
		if bytes.Contains([]byte(name), []byte(`"image":"x"`)) {
			if _, err := image.Open(t.Context(), name); !errors.Is(err, block.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		im := mustOpen(t, name, opts...)
		b := make([]byte, 512)
		if _, err := im.ReadAt(b, 0); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: the first read: %v, want EIO", name, err)
		}
		if _, err := im.ReadAt(b, 0); err != nil {
			t.Errorf("%s: the second read: %v", name, err)
		}
	}
	im := mustOpen(t, "blkdebug::x.qcow2")
	if im.Filename() != "blkdebug::x.qcow2" {
		t.Errorf("listed as %s", im.Filename())
	}
	named := mustOpen(t, "file.driver=blkdebug,file.image.filename=x.qcow2,file.align=4096", image.WithOptionString())
	const want = `json:{"driver": "qcow2", "file": {"image": {"driver": "file", "filename": "x.qcow2"}, "driver": "blkdebug", "align": "4096"}}`
	if named.Filename() != want {
		t.Errorf("listed as %s\nwant %s", named.Filename(), want)
	}
	mustOpen(t, want)
}

func TestNullStorageKeepsNothing(t *testing.T) {
	im := mustOpen(t, "driver=null-co,size=1M,read-zeroes=on", image.WithOptionString(), image.Writable())
	b := bytes.Repeat([]byte{1}, 512)
	if _, err := im.WriteAt(b, 0); err != nil {
		t.Error(err)
	}
	if _, err := im.ReadAt(b, 0); err != nil || !bytes.Equal(b, make([]byte, 512)) || im.Size() != 1<<20 {
		t.Errorf("%v, size %d", err, im.Size())
	}
	if raw := mustOpen(t, "null-co://"); raw.Format() != "raw" || raw.Size() != 1<<30 {
		t.Errorf("%s, size %d", raw.Format(), raw.Size())
	}
}

func TestRunTimeOptionsOfQcow2AreChecked(t *testing.T) {
	chain(t)
	for key, good := range map[string]bool{
		"l2-cache-size=1M": true, "cache-size=2M": true, "l2-cache-entry-size=4k": true, "refcount-cache-size=256k": true,
		"cache-clean-interval=600": true, "lazy-refcounts=on": true, "pass-discard-request=off": true, "overlap-check=all": true,
		"overlap-check.template=none": true, "overlap-check.inactive-l2=on": true, "discard=unmap": true, "detect-zeroes=on": true,
		"discard-no-unref=on": true, "dependency=strict": true, "zero-policy=write": true, "cache.direct=off": true,
		"l2-cache-entry-size=1000": false, "l2-cache-size=x": false, "overlap-check=some": false, "overlap-check.nosuch=on": false,
		"lazy-refcounts=maybe": false, "dependency=loose": false, "zero-policy=x": false, "detect-zeroes=x": false, "nosuch=1": false,
		"cache-size=1M,l2-cache-size=2M": false, "copy-on-read=on": false,
	} {
		name := "driver=qcow2,file.filename=mid.qcow2,backing=null," + key
		im, err := image.Open(t.Context(), name, image.WithOptionString(), image.Writable())
		if (err == nil) != good {
			t.Errorf("%s: %v", key, err)
		}
		if err == nil {
			if err := im.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
