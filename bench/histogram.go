package bench

import (
	"math/bits"
	"time"
)

// Each power of two is cut into 1<<subBits buckets, so a percentile is at most 1/64 too high.
const (
	subBits    = 6
	numBuckets = (64 - subBits + 1) << subBits
)

// histogram counts latencies in nanoseconds. Its size is fixed: adding allocates nothing.
type histogram struct {
	buckets  [numBuckets]uint32
	n        int64
	sum      float64
	min, max int64
}

func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// bucketTop is the largest value of a bucket.
func bucketTop(b int) uint64 {
	if b < 2<<subBits {
		return uint64(b)
	}
	shift := b>>subBits - 1
	return (uint64(b-shift<<subBits)+1)<<shift - 1
}

func (h *histogram) add(ns int64) {
	ns = max(ns, 0)
	h.buckets[bucketOf(uint64(ns))]++
	if h.n == 0 || ns < h.min {
		h.min = ns
	}
	h.max = max(h.max, ns)
	h.n++
	h.sum += float64(ns)
}

func (h *histogram) merge(o *histogram) {
	if o.n == 0 {
		return
	}
	for i, c := range o.buckets {
		h.buckets[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// quantile returns the latency that a share q of the requests did not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	want := int64(q*float64(h.n) + 0.5)
	want = min(max(want, 1), h.n)
	seen := int64(0)
	for b, c := range h.buckets {
		seen += int64(c)
		if seen >= want {
			return time.Duration(min(max(int64(bucketTop(b)), h.min), h.max))
		}
	}
	return 0
}

// Latency sums up how long requests took.
type Latency struct {
	Min, Mean, Max                  time.Duration
	P50, P90, P95, P99, P999, P9999 time.Duration
}

func (h *histogram) summary() *Latency {
	if h.n == 0 {
		return nil
	}
	return &Latency{
		Min: time.Duration(h.min), Mean: time.Duration(h.sum / float64(h.n)), Max: time.Duration(h.max),
		P50: h.quantile(0.5), P90: h.quantile(0.9), P95: h.quantile(0.95),
		P99: h.quantile(0.99), P999: h.quantile(0.999), P9999: h.quantile(0.9999),
	}
}
