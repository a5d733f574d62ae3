// Package aio speaks Linux native AIO (io_setup, io_submit, io_getevents) by raw system calls. Completions are
// taken from the ring that the kernel maps into the process, so a goroutine that finds some needs no system call.
//
// Only O_DIRECT files are asynchronous this way: for others io_submit blocks for the whole transfer. It may also
// block for direct writes that allocate space or grow the file.
//
// Submit may run on several threads at once; Reap and Wait belong to one goroutine at a time. Control blocks are
// read while Submit runs, the vectors too, but data buffers stay the kernel's until the completion arrives: they
// must be heap or off-heap memory that stays reachable, never the stack.
package aio

import "errors"

// ErrUnsupported says that this system offers no native AIO; errors of New wrap it.
var ErrUnsupported = errors.New("native AIO of Linux is not available")
