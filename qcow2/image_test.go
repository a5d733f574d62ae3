package qcow2

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/format/raw"
	"byre/internal/testenv"
	"byre/storage/file"
)

var ctx = context.Background()

// openFile opens a host file for reading.
func openFile(t testing.TB, path string) *block.Device {
	t.Helper()
	f, err := file.Open(ctx, path, file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return block.NewDevice(f)
}

// openChain opens an image with everything below it, formats taken from the headers.
func openChain(t testing.TB, path string, budget *Budget) *Image {
	t.Helper()
	im, err := Open(ctx, openFile(t, path), Options{ReadOnly: true, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	h := im.Header()
	if h.BackingFile != "" {
		name := filepath.Join(filepath.Dir(path), h.BackingFile)
		if h.BackingFormat == "raw" {
			im.SetBacking(openRaw(t, name))
		} else {
			im.SetBacking(block.NewDevice(openChain(t, name, im.budget)))
		}
	}
	if h.DataFile != "" {
		im.SetDataFile(openFile(t, h.DataFile))
	}
	return im
}

func openRaw(t testing.TB, path string) *block.Device {
	t.Helper()
	r, err := raw.Open(openFile(t, path), raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return block.NewDevice(r)
}

// device opens a chain as a device that the test closes.
func device(t testing.TB, path string) *block.Device {
	t.Helper()
	dev := block.NewDevice(openChain(t, path, nil))
	t.Cleanup(func() { dev.Close() })
	return dev
}

// script runs qemu-io commands on an image.
func script(t testing.TB, image string, commands ...string) {
	t.Helper()
	args := []string{"-f", "qcow2"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out := testenv.Run(t, "qemu-io", append(args, image)...)
	if strings.Contains(out, "failed") {
		t.Fatalf("qemu-io %q: %s", args, out)
	}
}

// contents is what qemu-img reads from an image.
func contents(t testing.TB, path string, args ...string) []byte {
	t.Helper()
	out := path + ".out"
	testenv.Run(t, "qemu-img", append(append([]string{"convert", "-O", "raw"}, args...), path, out)...)
	defer os.Remove(out)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkReads compares a device with the bytes it should hold: whole, in odd
// pieces, and in vectors.
func checkReads(t testing.TB, dev *block.Device, want []byte) {
	t.Helper()
	if dev.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d", dev.Size(), len(want))
	}
	got := make([]byte, len(want))
	if n, err := dev.ReadAt(got, 0); n != len(want) || err != nil && err != io.EOF {
		t.Fatal(n, err)
	}
	diff(t, "whole", got, want)
	clear(got)
	for off, step := 0, 1; off < len(got); off, step = off+step, step*5%100003+1 {
		step = min(step, len(got)-off)
		if err := dev.Read(ctx, got[off:off+step], int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	diff(t, "odd pieces", got, want)
	clear(got)
	var iov [][]byte
	for off, step := 0, 511; off < len(got); off, step = off+step, step*7%70001+1 {
		step = min(step, len(got)-off)
		iov = append(iov, got[off:off+step])
	}
	if err := dev.Readv(ctx, iov, 0); err != nil {
		t.Fatal(err)
	}
	diff(t, "a vector", got, want)
}

func diff(t testing.TB, how string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("read as %s: byte %#x is %#x, want %#x", how, i, got[i], want[i])
		}
	}
}

// checkExtents compares a device's extents with the bytes it should hold.
func checkExtents(t testing.TB, dev *block.Device, want []byte) {
	t.Helper()
	for off := int64(0); off < dev.Size(); {
		e, err := dev.Extent(ctx, off, dev.Size()-off, block.WantZero)
		if err != nil {
			t.Fatal(err)
		}
		part := want[e.Start:e.End()]
		if e.IsZero() && len(bytes.Trim(part, "\x00")) > 0 {
			t.Fatalf("extent %+v is not zero", e)
		}
		if e.Flags&(block.Zero|block.Data) == 0 {
			t.Fatalf("extent %+v is neither zero nor data", e)
		}
		if e.Flags&block.HasHost != 0 && e.Flags&block.Data != 0 && !e.IsZero() {
			f, err := os.ReadFile(e.File)
			if err != nil {
				t.Fatal(err)
			}
			host := make([]byte, e.Length)
			copy(host, f[e.Host:])
			diff(t, fmt.Sprintf("host range of %+v", e), host, part)
		}
		off = e.End()
	}
}

// unchanged fails the test if a file's bytes or times change until it ends.
func unchanged(t testing.TB, path string) {
	t.Helper()
	sum := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x %v", sha256.Sum256(b), st.ModTime())
	}
	before := sum()
	t.Cleanup(func() {
		if after := sum(); after != before {
			t.Errorf("%s was changed by reading: %s, was %s", path, after, before)
		}
	})
}
