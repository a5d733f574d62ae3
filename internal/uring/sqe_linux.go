package uring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// File names the target of an entry: a descriptor, or with Fixed an index into the registered files.
type File struct {
	FD    int32
	Fixed bool
}

func (e *SQE) prep(op Opcode, f File, addr uint64, n uint32, off uint64, opFlags uint32, userData uint64) {
	*e = SQE{opcode: uint8(op), fd: f.FD, addr: addr, len: n, off: off, opFlags: opFlags, userData: userData}
	if f.Fixed {
		e.flags = sqeFixedFile
	}
}

// PrepNop completes at once with result 0.
func (e *SQE) PrepNop(userData uint64) { e.prep(OpNop, File{FD: -1}, 0, 0, 0, 0, userData) }

// PrepReadv reads into iov from byte offset off. iov must not be empty and is copied when the entry is
// submitted; the buffers stay the kernel's until completion. The result is the number of bytes.
func (e *SQE) PrepReadv(f File, iov []unix.Iovec, off int64, rwf uint32, userData uint64) {
	e.prep(OpReadv, f, addrOf(iov), uint32(len(iov)), uint64(off), rwf, userData)
}

// PrepWritev is PrepReadv's counterpart; rwf takes RWF_ flags such as unix.RWF_DSYNC.
func (e *SQE) PrepWritev(f File, iov []unix.Iovec, off int64, rwf uint32, userData uint64) {
	e.prep(OpWritev, f, addrOf(iov), uint32(len(iov)), uint64(off), rwf, userData)
}

// PrepRead reads into one buffer of n bytes at base.
func (e *SQE) PrepRead(f File, base *byte, n int, off int64, rwf uint32, userData uint64) {
	e.prep(OpRead, f, uint64(uintptr(unsafe.Pointer(base))), uint32(n), uint64(off), rwf, userData)
}

// PrepWrite writes one buffer of n bytes at base.
func (e *SQE) PrepWrite(f File, base *byte, n int, off int64, rwf uint32, userData uint64) {
	e.prep(OpWrite, f, uint64(uintptr(unsafe.Pointer(base))), uint32(n), uint64(off), rwf, userData)
}

// PrepReadFixed is PrepRead into a part of registered buffer buf.
func (e *SQE) PrepReadFixed(f File, base *byte, n int, off int64, buf uint16, userData uint64) {
	e.prep(OpReadFixed, f, uint64(uintptr(unsafe.Pointer(base))), uint32(n), uint64(off), 0, userData)
	e.bufIndex = buf
}

// PrepWriteFixed is PrepWrite from a part of registered buffer buf.
func (e *SQE) PrepWriteFixed(f File, base *byte, n int, off int64, rwf uint32, buf uint16, userData uint64) {
	e.prep(OpWriteFixed, f, uint64(uintptr(unsafe.Pointer(base))), uint32(n), uint64(off), rwf, userData)
	e.bufIndex = buf
}

// PrepFsync makes written data durable; with dataOnly only what is needed to read it back (fdatasync). It does
// not cover requests that have not completed when it is submitted.
func (e *SQE) PrepFsync(f File, dataOnly bool, userData uint64) {
	var fl uint32
	if dataOnly {
		fl = fsyncDatasync
	}
	e.prep(OpFsync, f, 0, 0, 0, fl, userData)
}

// PrepFallocate is fallocate(mode, off, n).
func (e *SQE) PrepFallocate(f File, mode uint32, off, n int64, userData uint64) {
	e.prep(OpFallocate, f, uint64(n), mode, uint64(off), 0, userData)
}

func addrOf(iov []unix.Iovec) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(iov))))
}
