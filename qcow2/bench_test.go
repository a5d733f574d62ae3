package qcow2

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"byre/block"
	"byre/internal/testenv"
)

// benchImage makes an image of 64 MiB of text-like data.
func benchImage(b *testing.B, args ...string) string {
	dir := b.TempDir()
	rawPath, p := filepath.Join(dir, "raw"), filepath.Join(dir, "image.qcow2")
	data := make([]byte, 64<<20)
	r := rand.New(rand.NewPCG(1, 1))
	words := make([]string, 500)
	for i := range words {
		words[i] = fmt.Sprintf("%x ", r.Uint32()>>r.IntN(28))
	}
	for at := 0; at < len(data); {
		at += copy(data[at:], words[r.IntN(len(words))])
	}
	if err := os.WriteFile(rawPath, data, 0o644); err != nil {
		b.Fatal(err)
	}
	testenv.Run(b, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), rawPath, p)...)
	return p
}

func benchRead(b *testing.B, dev *block.Device, size int64, random bool) {
	buf := make([]byte, size)
	r := rand.New(rand.NewPCG(2, 2))
	n := dev.Size() / size
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		k := int64(i) % n
		if random {
			k = r.Int64N(n)
		}
		if err := dev.Read(ctx, buf, k*size); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	plain := benchImage(b)
	b.Run("host-file/2MiB", func(b *testing.B) { benchRead(b, openFile(b, plain), 2<<20, false) })
	b.Run("host-file/4KiB-random", func(b *testing.B) { benchRead(b, openFile(b, plain), 4<<10, true) })
	b.Run("plain/2MiB", func(b *testing.B) { benchRead(b, device(b, plain), 2<<20, false) })
	b.Run("plain/64KiB", func(b *testing.B) { benchRead(b, device(b, plain), 64<<10, false) })
	b.Run("plain/4KiB-random", func(b *testing.B) { benchRead(b, device(b, plain), 4<<10, true) })
	b.Run("plain/512-random-parallel", func(b *testing.B) {
		dev := device(b, plain)
		b.RunParallel(func(pb *testing.PB) {
			buf := make([]byte, 512)
			r := rand.New(rand.NewPCG(rand.Uint64(), 2))
			for pb.Next() {
				if err := dev.Read(ctx, buf, r.Int64N(dev.Size()/512)*512); err != nil {
					b.Error(err)
				}
			}
		})
	})
	deflate := benchImage(b, "-c")
	b.Run("deflate/2MiB", func(b *testing.B) { benchRead(b, device(b, deflate), 2<<20, false) })
	b.Run("deflate/4KiB", func(b *testing.B) { benchRead(b, device(b, deflate), 4<<10, false) })
	zstd := benchImage(b, "-c", "-o", "compression_type=zstd")
	b.Run("zstd/2MiB", func(b *testing.B) { benchRead(b, device(b, zstd), 2<<20, false) })
}

func BenchmarkLookup(b *testing.B) {
	im := device(b, benchImage(b)).Driver().(*Image)
	r := rand.New(rand.NewPCG(2, 2))
	var m mapping
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := im.lookup(ctx, r.Int64N(im.Size()), 4096, 0, &m); err != nil {
			b.Fatal(err)
		}
	}
}
