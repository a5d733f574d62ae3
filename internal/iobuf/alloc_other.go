//go:build !unix

package iobuf

import "unsafe"

func sysAlloc(n int) []byte {
	b := make([]byte, n+Align)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (Align - 1))
	return b[skip : skip+n : skip+n]
}

func hugeAlloc(n int) []byte { return sysAlloc(n) }

func sysFree([]byte) {}
