//go:build linux

package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAllocatedSizeLeavesHolesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.AllocatedSize(t.Context()); err != nil || n < 8192 || n > 1<<20 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestReadingLeavesTheAccessTimeAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	// An access time older than the modification is what even relatime mounts would renew.
	if err := os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1.1e9, 0)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.ReadvAt(t.Context(), [][]byte{make([]byte, 4096)}, 0); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Atim.Sec != 1e9 {
		t.Errorf("access time %d, %v", st.Atim.Sec, err)
	}
}
