package file

import (
	"sync/atomic"

	"byre/block"
)

var _ block.Counter = (*File)(nil)

// counts are what a measurement asks for.
type counts struct {
	syscalls atomic.Int64 // but for those of the queue in use
	flushes  atomic.Int64 // fdatasyncs, not the writes that are durable by themselves
}

// Counters implements block.Counter: "syscalls" and "flushes".
func (f *File) Counters(add func(name string, n int64)) {
	n := f.counts.syscalls.Load()
	if e, ok := f.eng.(*queued); ok {
		if q := e.queue.Load(); q != nil {
			n += q.Entries()
		}
	}
	add("syscalls", n)
	add("flushes", f.counts.flushes.Load())
}
