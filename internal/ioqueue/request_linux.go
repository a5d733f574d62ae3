package ioqueue

import "golang.org/x/sys/unix"

// Op is what a request does.
type Op uint8

// Operations. A Kernel need not know the last two.
const (
	OpRead Op = iota
	OpWrite
	OpFdatasync
	OpFallocate
)

// Request is one operation on the file. The exported fields belong to the caller before and after Do, to the queue
// during it. Requests are made to be used again: keep them in a pool. A Request must not be copied after its first use.
type Request struct {
	Op  Op
	RWF uint32       // RWF_ flags of a read or write; the mode of a fallocate
	Off int64        // byte offset
	Len int64        // length of a fallocate, bytes
	Iov []unix.Iovec // buffers of a read or write, 1 to IOV_MAX of them

	wake       chan struct{} // capacity 1: a token says that the request has ended, or that it is to lead
	res        int64         // byte count or negated errno
	lead       bool          // guarded by Queue.mu
	prev, next *Request      // in one of the queue's lists
}

// list is a doubly linked list through the requests themselves.
type list struct {
	head, tail *Request
	n          int
}

func (l *list) pushBack(r *Request) {
	r.prev, r.next = l.tail, nil
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
	l.n++
}

func (l *list) remove(r *Request) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.n--
}
