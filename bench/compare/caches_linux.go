package compare

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropCaches writes everything back and empties the page cache of the whole machine. It needs root.
func dropCaches() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0); err != nil {
		return fmt.Errorf("dropping caches: %w", err)
	}
	return nil
}

// dropFile takes a file out of the page cache. One that does not exist has nothing there.
func dropFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dropping a file from the cache: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("dropping a file from the cache: %w", err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping a file from the cache: %s: %w", path, err)
	}
	return nil
}
