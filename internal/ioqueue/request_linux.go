package ioqueue

import "golang.org/x/sys/unix"

// Op is what a request does.
type Op uint8

// Operations. Not every kernel interface knows each; see Kernel.
const (
	OpRead Op = iota
	OpWrite
	OpFdatasync
	OpFallocate
)

// Request is one operation on the file. The exported fields belong to the caller before and after Do, to the queue
// during it. Requests are made to be used again: keep them in a pool.
type Request struct {
	Op  Op
	RWF uint32       // RWF_ flags of a read or write; the mode of a fallocate
	Off int64        // byte offset
	Len int64        // length of a fallocate, bytes
	Iov []unix.Iovec // buffers of a read or write, 1 to IOV_MAX of them
}
