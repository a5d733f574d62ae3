package image_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"byre/block"
	"byre/image"
)

// newDisk makes a 16 MiB image in a temporary folder; the examples start from it.
func newDisk(ctx context.Context) (path string, done func()) {
	dir, err := os.MkdirTemp("", "byre")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "disk.qcow2")
	if err := image.Create(ctx, path, image.CreateOptions{Format: "qcow2", Size: 16 << 20}); err != nil {
		log.Fatal(err)
	}
	return path, func() { os.RemoveAll(dir) }
}

func ExampleOpen() {
	ctx := context.Background()
	path, done := newDisk(ctx)
	defer done()

	im, err := image.Open(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	defer im.Close()
	buf := make([]byte, 512)
	n, err := im.ReadAt(buf, 1<<20)
	fmt.Println(im.Format(), im.Size(), n, err)
	// Output: qcow2 16777216 512 <nil>
}

func ExampleOpen_writing() {
	ctx := context.Background()
	path, done := newDisk(ctx)
	defer done()

	im, err := image.Open(ctx, path, image.Writable())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := im.WriteAt([]byte("hello"), 4096); err != nil {
		log.Fatal(err)
	}
	if err := im.Flush(ctx); err != nil { // from here on a power cut cannot take it away
		log.Fatal(err)
	}
	if err := im.Close(); err != nil {
		log.Fatal(err)
	}

	im, err = image.Open(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	defer im.Close()
	buf := make([]byte, 5)
	im.ReadAt(buf, 4096)
	fmt.Printf("%s\n", buf)
	// Output: hello
}

// An image that names a backing file is not opened until somebody decides that it may be.
func ExampleWithGate() {
	ctx := context.Background()
	base, done := newDisk(ctx)
	defer done()
	overlay := filepath.Join(filepath.Dir(base), "overlay.qcow2")
	if err := image.Create(ctx, overlay, image.CreateOptions{Format: "qcow2", Size: -1, BackingFile: "disk.qcow2", BackingFormat: "qcow2"}); err != nil {
		log.Fatal(err)
	}

	_, err := image.Open(ctx, overlay)
	fmt.Println("by default:", errors.Is(err, block.ErrRefused))

	sameFolder := image.GateFunc(func(_ context.Context, r image.Reference) error {
		if filepath.Dir(r.Resolved) != filepath.Dir(r.From) {
			return fmt.Errorf("%s lies elsewhere", r.Resolved)
		}
		fmt.Println("allowed:", r.Kind, r.Name)
		return nil
	})
	im, err := image.Open(ctx, overlay, image.WithGate(sameFolder))
	if err != nil {
		log.Fatal(err)
	}
	defer im.Close()
	fmt.Println(im.Size())
	// Output:
	// by default: true
	// allowed: backing file disk.qcow2
	// 16777216
}

func ExampleImage_Extents() {
	ctx := context.Background()
	path, done := newDisk(ctx)
	defer done()
	im, err := image.Open(ctx, path, image.Writable())
	if err != nil {
		log.Fatal(err)
	}
	defer im.Close()
	if _, err := im.WriteAt([]byte("data"), 1<<20); err != nil {
		log.Fatal(err)
	}
	for e, err := range im.Extents(ctx, 0, im.Size(), 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%8d +%d zero=%v\n", e.Start, e.Length, e.IsZero())
	}
	// Output:
	//        0 +1048576 zero=true
	//  1048576 +65536 zero=false
	//  1114112 +15663104 zero=true
}

// What Create would do can be shown before anything is written.
func ExampleNewCreation() {
	ctx := context.Background()
	plan, err := image.NewCreation(ctx, "disk.qcow2", image.CreateOptions{Format: "qcow2", Size: 1 << 30,
		Options: map[string]string{"cluster_size": "2M", "compression_type": "zstd"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Describe())
	// Output: fmt=qcow2 cluster_size=2097152 extended_l2=off compression_type=zstd size=1073741824 lazy_refcounts=off refcount_bits=16
}

func ExampleInfoChain() {
	ctx := context.Background()
	base, done := newDisk(ctx)
	defer done()
	overlay := filepath.Join(filepath.Dir(base), "overlay.qcow2")
	if err := image.Create(ctx, overlay, image.CreateOptions{Format: "qcow2", Size: 1 << 30, BackingFile: "disk.qcow2", BackingFormat: "qcow2"}); err != nil {
		log.Fatal(err)
	}
	list, err := image.InfoChain(ctx, overlay, image.WithGate(image.AllowReferences))
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range list {
		fmt.Println(filepath.Base(i.Filename), i.VirtualSize, i.BackingFilename)
	}
	// Output:
	// overlay.qcow2 1073741824 disk.qcow2
	// disk.qcow2 16777216
}
