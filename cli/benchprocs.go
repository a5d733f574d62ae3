package cli

import (
	"runtime"

	"byre/bench"
	"byre/image"
)

// narrow keeps a workload that is nothing but waiting for a kernel queue on one processor, as the classic tool is, and
// returns the way back. With a second one idle, the scheduler wakes it for every batch of requests that ends, which at
// depth 8 costs a fifth of the time and brings nothing. Formats that compute, and flushes, which block a processor,
// want all of them.
func narrow(im *image.Image, b *bench.Options, cache image.CacheMode, engine string) (restore func()) {
	if im.Format() != "raw" || b.Depth == 1 || !cache.Direct() || engine == "threads" || cache.Writethrough() || b.FlushInterval > 0 {
		return func() {}
	}
	before := runtime.GOMAXPROCS(1)
	return func() { runtime.GOMAXPROCS(before) }
}
