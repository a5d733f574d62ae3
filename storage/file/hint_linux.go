package file

import "unsafe"

// ExtentSizeHint is the unit in bytes in which the file system was asked to allocate for this file, 0 if it was not.
func (f *File) ExtentSizeHint() int64 {
	var a fsxattr
	if f.dev || ioctl(f.FD(), fsGetXattr, unsafe.Pointer(&a)) != nil {
		return 0
	}
	return int64(a.extsize)
}
