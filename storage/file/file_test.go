package file

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"byre/block"
)

var ctx = context.Background()

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := Create(ctx, path, Options{}, CreateOptions{Size: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	d := block.NewDevice(f)
	want := bytes.Repeat([]byte("byre"), 3000)
	if err := d.Writev(ctx, [][]byte{want[:1], want[1:5000], nil, want[5000:]}, 777, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want)+10)
	if err := d.Read(ctx, got, 772); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[5:len(got)-5], want) || !bytes.Equal(got[:5], make([]byte, 5)) {
		t.Error("the bytes read differ from those written")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); block.KindOf(err) != block.KindInvalid {
		t.Errorf("second Close: %v, want an error of KindInvalid", err)
	}
}

func TestAMissingFileIsReportedAsNotExisting(t *testing.T) {
	_, err := Open(ctx, filepath.Join(t.TempDir(), "none"), Options{})
	var be *block.Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &be) || be.Kind != block.KindIO {
		t.Errorf("got %v", err)
	}
}
