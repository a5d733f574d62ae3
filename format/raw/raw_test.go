package raw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"byre/block"
	"byre/format/raw"
	"byre/storage/mem"
)

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = seed + byte(i%251)
	}
	return p
}

// open makes a raw device over a file with the given contents.
func open(t *testing.T, content []byte, o raw.Options) (*block.Device, *mem.File) {
	t.Helper()
	f := mem.NewFile("disk.raw", 0)
	if _, err := f.WriteAt(content, 0); err != nil && len(content) > 0 {
		t.Fatal(err)
	}
	d, err := raw.Open(block.NewDevice(f.Open(mem.Options{})), o)
	if err != nil {
		t.Fatal(err)
	}
	dev := block.NewDevice(d)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev, f
}

func TestSizeIsRoundedUpToSectorsAndTheTailReadsAsZeros(t *testing.T) {
	data := pattern(1000, 1)
	dev, f := open(t, data, raw.Options{})
	if dev.Size() != 1024 {
		t.Fatalf("size %d, want 1024", dev.Size())
	}
	got, err := io.ReadAll(io.NewSectionReader(dev, 0, 1<<20))
	if want := append(bytes.Clone(data), make([]byte, 24)...); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, %v: not the file and zeros", len(got), err)
	}
	tail := bytes.Repeat([]byte{0xff}, 20)
	if err := dev.Read(t.Context(), tail, 1004); err != nil || !bytes.Equal(tail, make([]byte, 20)) {
		t.Fatalf("a read behind the end of the file: %x, %v", tail, err)
	}
	if err := dev.Write(t.Context(), []byte{7}, 1010, 0); err != nil {
		t.Fatal(err)
	}
	if b := f.Bytes(); len(b) < 1011 || b[1010] != 7 || b[1005] != 0 || dev.Size() != 1024 {
		t.Errorf("a write into the tail left %d bytes, disk size %d", len(b), dev.Size())
	}
}

func TestAWindowShowsAPartOfTheFile(t *testing.T) {
	data := pattern(8192, 3)
	dev, f := open(t, data, raw.Options{Offset: 1024, Size: 2048, HasSize: true})
	got := make([]byte, 2048)
	if err := dev.Read(t.Context(), got, 0); err != nil || !bytes.Equal(got, data[1024:3072]) {
		t.Fatalf("the window shows something else, %v", err)
	}
	if err := dev.Read(t.Context(), got, 1); !errors.Is(err, block.ErrOutOfBounds) {
		t.Errorf("a read across the end: %v", err)
	}
	if err := dev.Write(t.Context(), pattern(2048, 9), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := dev.Zero(t.Context(), 512, 512, 0); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(data)
	copy(want[1024:], pattern(2048, 9))
	clear(want[1536:2048])
	if !bytes.Equal(f.Bytes(), want) {
		t.Error("a write into the window went elsewhere")
	}
	if err := dev.Resize(t.Context(), 4096, block.ResizeOptions{}); err == nil {
		t.Error("a window of fixed size was resized")
	}
	e, err := dev.Extent(t.Context(), 100, 1000, block.WantZero)
	if err != nil || e.Host != 1124 || e.File != "disk.raw" {
		t.Errorf("extent %+v, %v; want it at 1124 of the file", e, err)
	}
}

func TestWindowsOutsideTheFileAreRefused(t *testing.T) {
	for _, o := range []raw.Options{
		{Offset: -1}, {Offset: 4097}, {Size: 100, HasSize: true}, {Size: -512, HasSize: true},
		{Size: 4608, HasSize: true}, {Offset: 512, Size: 4096, HasSize: true}, {Offset: 1 << 62},
	} {
		dev := block.NewDevice(mem.New(4096))
		if _, err := raw.Open(dev, o); !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%+v: %v, want an invalid argument", o, err)
		}
		if dev.Size() != 4096 || dev.Close() != nil {
			t.Errorf("%+v: the device below was closed", o)
		}
	}
}

func TestExtentsTellHolesAndTheTail(t *testing.T) {
	f := mem.NewFile("x", 0)
	if _, err := f.WriteAt(pattern(4096, 1), 65536); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(131072 + 100); err != nil {
		t.Fatal(err)
	}
	d, err := raw.Open(block.NewDevice(f.Open(mem.Options{})), raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev := block.NewDevice(d)
	got := ""
	for pos := int64(0); pos < dev.Size(); {
		e, err := dev.Extent(t.Context(), pos, dev.Size()-pos, block.WantZero)
		if err != nil || e.Flags&(block.Allocated|block.HasHost) != block.Allocated|block.HasHost || e.Host != pos {
			t.Fatalf("%+v, %v", e, err)
		}
		got += fmt.Sprintf("%d+%d zero=%v; ", e.Start, e.Length, e.IsZero())
		pos = e.End()
	}
	const want = "0+65536 zero=true; 65536+4096 zero=false; 69632+61540 zero=true; 131172+412 zero=true; "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAGuessedImageCannotBeMadeToLookLikeAnotherFormat(t *testing.T) {
	guess := func(first []byte) string {
		if len(first) != 512 {
			t.Errorf("the guard looked at %d bytes", len(first))
		}
		if bytes.HasPrefix(first, []byte("MAGIC")) || bytes.HasPrefix(first, []byte("ZERO\x00")) {
			return "evil"
		}
		return ""
	}
	dev, f := open(t, make([]byte, 4096), raw.Options{Guess: guess})
	ctx := context.Background()
	write := func(s string, off int64) error { return dev.Write(ctx, []byte(s), off, 0) }
	for _, step := range []struct {
		s       string
		off     int64
		refused bool
	}{
		{"MAGIC", 0, true}, {"MAG", 0, false}, {"IC", 3, true}, {"MAGIC", 1, false}, {"IC", 3, false}, {"MAGIC", 512, false},
		{string(append([]byte("MAGIC"), make([]byte, 4091)...)), 0, true},
	} {
		before := f.Bytes()
		err := write(step.s, step.off)
		if (err != nil) != step.refused {
			t.Errorf("writing %.8q at %d: %v, refused should be %v", step.s, step.off, err, step.refused)
		}
		if step.refused && !bytes.Equal(before, f.Bytes()) {
			t.Errorf("writing %.8q at %d was refused, but something was written", step.s, step.off)
		}
	}
	if err := write("ZEROS", 0); err != nil {
		t.Error(err)
	}
	if err := dev.Zero(ctx, 4, 1, 0); err == nil {
		t.Error("zeros completed the magic")
	}
	if err := dev.Discard(ctx, 4, 1); err != nil || !bytes.HasPrefix(f.Bytes(), []byte("ZEROS")) {
		t.Errorf("a discard completed the magic, %v", err)
	}
	if err := dev.Zero(ctx, 0, 512, 0); err != nil {
		t.Errorf("zeros were refused: %v", err)
	}
	vec := [][]byte{[]byte("MA"), []byte("GIC"), make([]byte, 600)}
	if err := dev.Writev(ctx, vec, 0, 0); err == nil {
		t.Error("the magic in two pieces of a vector was let through")
	}
	open, f2 := open(t, make([]byte, 4096), raw.Options{})
	if err := open.Write(ctx, []byte("MAGIC"), 0, 0); err != nil || !bytes.HasPrefix(f2.Bytes(), []byte("MAGIC")) {
		t.Errorf("an image whose format was named is guarded: %v", err)
	}
}

func TestResizeMovesTheEndOfTheFile(t *testing.T) {
	dev, f := open(t, pattern(4096, 1), raw.Options{Offset: 512})
	if err := dev.Resize(t.Context(), 8192, block.ResizeOptions{}); err != nil || f.Size() != 8704 || dev.Size() != 8192 {
		t.Errorf("%v: file %d, disk %d", err, f.Size(), dev.Size())
	}
	if err := dev.Resize(t.Context(), 1<<63-1, block.ResizeOptions{}); err == nil {
		t.Error("a size beyond 2^63 was accepted")
	}
}
