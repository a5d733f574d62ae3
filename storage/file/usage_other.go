//go:build !linux

package file

import "context"

// AllocatedSize is the host space that the file takes, in bytes. On this system that is taken to be its length.
func (f *File) AllocatedSize(context.Context) (int64, error) { return f.Size(), nil }

// ExtentSizeHint is 0: this system has none.
func (f *File) ExtentSizeHint() int64 { return 0 }
