package check

import (
	"context"
	"path/filepath"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/storage/file"
)

// BenchmarkFullMapping checks a 64 GiB image whose every cluster has a place.
func BenchmarkFullMapping(b *testing.B) {
	p := filepath.Join(b.TempDir(), "full.qcow2")
	testenv.Run(b, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation=metadata", p, "64G")
	f, err := file.Open(context.Background(), p, file.Options{ReadOnly: true, Locks: file.LocksShared})
	if err != nil {
		b.Fatal(err)
	}
	d := block.NewDevice(f)
	defer d.Close()
	for b.Loop() {
		r, err := Run(context.Background(), d, Options{})
		if err != nil || !r.Clean() {
			b.Fatal(r, err)
		}
	}
}
