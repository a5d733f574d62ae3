package cli

import (
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fileState is contents and times of a file; the access time as it was before the contents were read here.
func fileState(t *testing.T, name string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOATIME, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h := sha256.New()
	if _, err := f.WriteTo(h); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x size %d blocks %d times %v %v %v", h.Sum(nil), st.Size, st.Blocks, st.Atim, st.Mtim, st.Ctim)
}
