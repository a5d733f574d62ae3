//go:build linux

package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/storage/conformance"
)

// modes are all pairs of engine and cache mode that can be opened.
func modes() (all []Options) {
	for _, e := range []Engine{EngineThreads, EngineNative, EngineIOUring} {
		for c := range CacheMode(len(cacheNames)) {
			if e == EngineNative && !c.Direct() {
				continue
			}
			all = append(all, Options{Engine: e, Cache: c})
		}
	}
	return all
}

func name(o Options) string { return fmt.Sprintf("%s-%s", o.Engine, o.Cache) }

// quick is a choice of modes that has every engine and every cache mode.
func quick(o Options) bool {
	switch o.Engine {
	case EngineThreads:
		return o.Cache == CacheWriteback || o.Cache == CacheWritethrough
	case EngineNative:
		return o.Cache == CacheNone
	}
	return o.Cache == CacheDirectsync || o.Cache == CacheUnsafe
}

// available skips the test if the kernel does not offer the engine (never in CI).
func available(t *testing.T, o Options) {
	t.Helper()
	var err error
	switch o.Engine {
	case EngineNative:
		err = haveAIO()
	case EngineIOUring:
		err = haveURing()
	}
	if err != nil && testenv.CI() {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
}

// scratch is a directory on a file system with direct I/O.
func scratch(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

func TestRegularFilesConform(t *testing.T) {
	for _, o := range modes() {
		t.Run(name(o), func(t *testing.T) {
			if os.Getenv("BYRE_LONG") == "" && !quick(o) {
				t.Skip("only with BYRE_LONG")
			}
			t.Parallel()
			available(t, o)
			n := 0
			conformance.Run(t, conformance.Maker{
				New: func(t *testing.T, size int64) block.Driver {
					n++
					f, err := Create(ctx, filepath.Join(scratch(t), fmt.Sprint("f", n)), o, CreateOptions{Size: size})
					if err != nil {
						t.Fatal(err)
					}
					return f
				},
				Reopen: func(t *testing.T, path string) block.Driver {
					f, err := Open(ctx, path, o)
					if err != nil {
						t.Fatal(err)
					}
					return f
				},
			})
		})
	}
}

func TestBlockDevicesConform(t *testing.T) {
	testenv.Root(t)
	for _, sector := range []int{512, 4096} {
		for _, o := range modes() {
			t.Run(fmt.Sprintf("%d/%s", sector, name(o)), func(t *testing.T) {
				if os.Getenv("BYRE_LONG") == "" && !quick(o) {
					t.Skip("only with BYRE_LONG")
				}
				t.Parallel()
				available(t, o)
				open := func(t *testing.T, path string) block.Driver {
					f, err := Open(ctx, path, o)
					if err != nil {
						t.Fatal(err)
					}
					if o.Cache.Direct() && f.Geometry().RequestAlign != int64(sector) {
						t.Errorf("alignment is %d, the device has sectors of %d", f.Geometry().RequestAlign, sector)
					}
					return f
				}
				conformance.Run(t, conformance.Maker{
					New: func(t *testing.T, size int64) block.Driver {
						return open(t, loopDevice(t, size, sector))
					},
					Reopen: open,
				})
			})
		}
	}
}

// loopDevice makes a loop device over a file full of noise.
func loopDevice(t *testing.T, size int64, sector int) string {
	t.Helper()
	backing := filepath.Join(scratch(t), "backing")
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(i*7 + i>>9)
	}
	if err := os.WriteFile(backing, noise, 0o600); err != nil {
		t.Fatal(err)
	}
	out := testenv.Run(t, "losetup", "--find", "--show", "--sector-size", fmt.Sprint(sector), backing)
	dev := strings.TrimSpace(out)
	t.Cleanup(func() { testenv.Run(t, "losetup", "--detach", dev) })
	return dev
}
