//go:build linux

package file

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"byre/block"
	"byre/internal/iobuf"
	"byre/internal/testenv"
)

// mounted makes a file system of the kind on a loop device and returns its directory.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	testenv.Root(t)
	dir, err := os.MkdirTemp("", "mnt-file-")
	if err != nil {
		t.Fatal(err)
	}
	backing := filepath.Join(dir, "backing")
	mnt := filepath.Join(dir, "mnt")
	if err := os.WriteFile(backing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, 640<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	dev := strings.TrimSpace(testenv.Run(t, "losetup", "--find", "--show", "--direct-io=on", backing))
	t.Cleanup(func() {
		testenv.Run(t, "losetup", "--detach", dev)
		os.RemoveAll(dir)
	})
	testenv.Run(t, "mkfs."+kind, "-q", dev)
	testenv.Run(t, "mount", dev, mnt)
	t.Cleanup(func() {
		// A ring that was closed is taken down by the kernel in its own time, and may hold a file until then.
		for range 100 {
			if exec.Command("umount", mnt).Run() == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		testenv.Run(t, "umount", mnt)
	})
	return mnt
}

// An extending fallocate that runs beside direct writes further out has cost data on XFS: what lies behind the new end
// as the fallocate saw it was cut off.
func TestDirectWritesAmongZeroWritesBeyondTheEndLoseNothing(t *testing.T) {
	rounds, pieces := 1, int64(768)
	if os.Getenv("BYRE_LONG") != "" {
		rounds, pieces = 20, 4096
	}
	for _, kind := range []string{"xfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			dir := mounted(t, kind)
			for _, e := range []Engine{EngineThreads, EngineNative, EngineIOUring} {
				t.Run(e.String(), func(t *testing.T) {
					o := Options{Engine: e, Cache: CacheNone}
					available(t, o)
					for round := range rounds {
						mix(t, filepath.Join(dir, fmt.Sprint(e, round)), o, round, pieces)
					}
				})
			}
		})
	}
}

const mixStep = 64 << 10

// mix writes 4 KiB in every 64 KiB of a fresh file from 64 goroutines, with zero-writes around and before.
func mix(t *testing.T, path string, o Options, round int, pieces int64) {
	t.Helper()
	f, err := Create(ctx, path, o, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := block.NewDevice(f)
	defer os.Remove(path)
	defer d.Close()
	stamp := func(p []byte, i int64) {
		for k := range p {
			p[k] = byte(i) ^ byte(i>>8) ^ byte(round) | 1
		}
	}
	place := func(i int64) int64 { return i*mixStep + i%15*4096 }
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			buf := iobuf.Get(4096)
			defer iobuf.Put(buf)
			for i := next.Add(1) - 1; i < pieces; i = next.Add(1) - 1 {
				stamp(buf, i)
				var err error
				switch i % 3 {
				case 0: // the whole step, then data into it
					err = d.Zero(ctx, i*mixStep, mixStep, 0)
				case 1: // quickly or not at all
					if err = d.Zero(ctx, i*mixStep, mixStep, block.NoFallback); block.KindOf(err) == block.KindUnsupported {
						err = nil
					}
				}
				if err == nil {
					err = d.Write(ctx, buf, place(i), 0)
				}
				if end := place(i) + 4096; err == nil && i%3 == 2 && end < (i+1)*mixStep { // what is behind, afterwards
					err = d.Zero(ctx, end, (i+1)*mixStep-end, block.MayUnmap)
				}
				if err != nil {
					t.Errorf("step %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	got, want := iobuf.Get(mixStep), make([]byte, mixStep)
	defer iobuf.Put(got)
	for i := range pieces {
		n := min(mixStep, d.Size()-i*mixStep)
		clear(want)
		stamp(want[place(i)-i*mixStep:][:4096], i)
		if err := d.Read(ctx, got[:n], i*mixStep); err != nil {
			t.Fatal(err)
		}
		for k := range got[:n] {
			if got[k] != want[k] {
				t.Fatalf("round %d: byte %d is %#x, want %#x", round, i*mixStep+int64(k), got[k], want[k])
			}
		}
		if n < mixStep && i != pieces-1 {
			t.Fatalf("the file ends at %d", d.Size())
		}
	}
}
