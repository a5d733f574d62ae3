//go:build linux

package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"

	"golang.org/x/sys/unix"
)

func TestWhatIsNoImageIsRefusedWithoutOpeningIt(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{dir: "directory", fifo: "pipe", "/dev/null": "character device"} {
		_, err := Open(ctx, path, Options{ReadOnly: true}) // would hang on the pipe
		if block.KindOf(err) != block.KindUnsupported || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestNativeDemandsDirectIO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("x"), 0o600)
	for _, c := range []CacheMode{CacheWriteback, CacheWritethrough, CacheUnsafe} {
		_, err := Open(ctx, path, Options{Engine: EngineNative, Cache: c})
		if block.KindOf(err) != block.KindUnsupported || !strings.Contains(err.Error(), `"native" needs direct I/O`) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestAFileWhoseLengthIsNoMultipleOfTheAlignmentReadsZerosBehindItsEnd(t *testing.T) {
	for _, o := range modes() {
		t.Run(name(o), func(t *testing.T) {
			available(t, o)
			path := filepath.Join(scratch(t), "f")
			content := noise(1, 100_001)
			os.WriteFile(path, content, 0o600)
			f, err := Open(ctx, path, o)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Size() != 100_001 {
				t.Errorf("size %d", f.Size())
			}
			unit := f.Geometry().RequestAlign
			n := (100_001 + unit - 1) &^ (unit - 1)
			got := noise(2, int(n))
			if err := f.ReadvAt(ctx, [][]byte{got}, 0); err != nil {
				t.Fatal(err)
			}
			if string(got[:100_001]) != string(content) || strings.Trim(string(got[100_001:]), "\x00") != "" {
				t.Error("contents differ")
			}
		})
	}
}

func TestCreateLeavesNothingBehindWhenItFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	_, err := Create(ctx, path, Options{}, CreateOptions{Size: 1 << 62, Prealloc: block.PreallocFull})
	if err == nil {
		t.Fatal("a file of 4 EiB was written in full")
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there (%v)", err)
	}
	os.WriteFile(path, nil, 0o600)
	if _, err := Create(ctx, path, Options{}, CreateOptions{Exclusive: true}); !errors.Is(err, os.ErrExist) {
		t.Errorf("exclusive creation over a file: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a file that was there before is gone: %v", err)
	}
}

func TestFreshFromCountsIssuedWritesOnly(t *testing.T) {
	f := create(t, Options{}, CreateOptions{})
	step := func(what string, err error, want int64) {
		t.Helper()
		if err != nil || f.FreshFrom() != want {
			t.Errorf("%s: %v, fresh from %d, want %d", what, err, f.FreshFrom(), want)
		}
	}
	step("create", nil, 0)
	step("write", f.WritevAt(ctx, [][]byte{make([]byte, 1000)}, 500, 0), 1500)
	n, err := f.GrowTo(ctx, 10_000)
	step("grow", err, 1500)
	if n < defaultGrowStep/2 {
		t.Errorf("grown to %d only: not a large step", n)
	}
	step("zero", f.ZeroAt(ctx, 4096, 4096, 0), 8192)
	step("discard", f.DiscardAt(ctx, 0, 8192), 8192)
	if err := f.CutTo(ctx, 8191); block.KindOf(err) != block.KindInvalid {
		t.Errorf("cutting what was written: %v", err)
	}
	step("cut", f.CutTo(ctx, 8192), 8192)
	f.Close()
	f, err = Open(ctx, f.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	step("open", nil, 8192)
}

func TestGrowToTakesWhatFitsWhenTheStepDoesNot(t *testing.T) {
	f := create(t, Options{}, CreateOptions{})
	f.host = &shakyHost{fail: func(call int64, what string) error {
		if call == 1 {
			return unix.ENOSPC
		}
		return nil
	}}
	if n, err := f.GrowTo(ctx, 12345); err != nil || n != 12345 {
		t.Errorf("grown to %d, %v", n, err)
	}
	f.host = &shakyHost{fail: func(int64, string) error { return unix.ENOSPC }}
	if n, err := f.GrowTo(ctx, 20000); block.KindOf(err) != block.KindNoSpace || n != 12345 {
		t.Errorf("on a full file system: %d, %v", n, err)
	}
	f.host = &shakyHost{fail: func(_ int64, what string) error {
		if strings.HasPrefix(what, "fallocate") {
			return unix.EOPNOTSUPP
		}
		return nil
	}}
	if n, err := f.GrowTo(ctx, 20000); err != nil || n < 20000 || f.Size() != n {
		t.Errorf("without fallocate: %d, %v", n, err)
	}
}

func TestParseNames(t *testing.T) {
	for _, e := range []Engine{EngineAuto, EngineThreads, EngineNative, EngineIOUring} {
		if got, err := ParseEngine(e.String()); err != nil || got != e {
			t.Errorf("%v: %v, %v", e, got, err)
		}
	}
	for c := range CacheMode(len(cacheNames)) {
		if got, err := ParseCacheMode(c.String()); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if c, err := ParseCacheMode("off"); c != CacheNone || err != nil {
		t.Error("off is not none")
	}
	if _, err := ParseCacheMode("fast"); err == nil || !strings.Contains(err.Error(), "writeback, none") {
		t.Error(err)
	}
	if _, err := ParseEngine("aio"); err == nil || !strings.Contains(err.Error(), "io_uring") {
		t.Error(err)
	}
}
