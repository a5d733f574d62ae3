package file

import (
	"context"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllocatedSize is the host space that the file takes, in bytes. It is 0 for block devices.
func (f *File) AllocatedSize(context.Context) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.FD(), &st); err != nil {
		return 0, f.fail("query allocated size", -1, err)
	}
	return st.Blocks * 512, nil
}

// ExtentSizeHint is the unit in bytes in which the file system was asked to allocate for this file, 0 if it was not.
func (f *File) ExtentSizeHint() int64 {
	var a fsxattr
	if f.dev || ioctl(f.FD(), fsGetXattr, unsafe.Pointer(&a)) != nil {
		return 0
	}
	return int64(a.extsize)
}
