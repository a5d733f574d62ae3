// Package uring speaks io_uring to the Linux kernel by raw system calls: it sets a ring up, maps its queues,
// places submission entries, enters the kernel and takes completions. It knows nothing of files, retries or
// goroutines that wait; package ioqueue builds that on top.
//
// A [Ring] has two halves. The submission half (Push, PrepXxx through [SQE], Flush's argument) belongs to
// whoever holds the caller's lock; the completion half (Reap) belongs to one goroutine at a time. Enter may run
// on any number of threads at once, also while others push: the kernel orders them.
//
// Memory: the kernel copies entries and vectors while Enter submits them (IORING_FEAT_SUBMIT_STABLE, demanded
// by New), but reads or writes the data buffers until the completion arrives. Those must not move or be freed:
// heap memory that something reachable points to does not move in Go, stack memory does.
//
// On other systems, or where the kernel refuses (seccomp filters, the io_uring_disabled sysctl, old kernels),
// New returns an error that wraps [ErrUnsupported] and the caller falls back.
package uring

import "errors"

// ErrUnsupported says that this system offers no usable io_uring. Errors of New wrap it together with the
// cause the kernel gave.
var ErrUnsupported = errors.New("io_uring is not available")
