package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"byre/block"
)

// Options describe a workload. Sizes and offsets are bytes.
type Options struct {
	Mode  Mode
	Count int64 // requests to measure; 0 sends none, unless Duration is set, which it then does not limit
	Depth int   // requests in flight, at least 1
	// Size of a request and the distance to the next one; Step 0 means Size. Random modes start requests at
	// multiples of Step behind Offset.
	Size, Step, Offset int64
	// FlushInterval, if not 0, flushes whenever the number of requests still to be sent is a multiple of it, with the
	// queue drained before, unless NoDrain. It must be at least Depth.
	FlushInterval int64
	NoDrain       bool
	Pattern       byte
	Seed          uint64
	ReadShare     float64 // of mode Mix, 0…1
	// Warmup are requests or a time before the measurement; the measured requests follow those.
	Warmup     int64
	WarmupTime time.Duration
	// Duration ends the measurement after this time.
	Duration time.Duration
	// Verify stamps what is written and reads it back after the measurement; in read modes each request is compared with
	// what an equally seeded run wrote. With PatternSet, the pattern takes the place of the stamps.
	Verify     bool
	PatternSet bool
	// Latency measures each request.
	Latency bool
}

// Usage is what the process used: seconds and counts.
type Usage struct {
	User, System                      float64
	VoluntarySwitches, ForcedSwitches int64
}

// Result is what a run measured.
type Result struct {
	Requests, Reads, Writes, Bytes int64
	Flushes                        int64
	// Elapsed is the time of the requests and drained flushes, without warm-up, undrained flushes that are still
	// running at the end, and verification.
	Elapsed  time.Duration
	Usage    Usage
	Latency  *Latency // nil if not asked for, or without requests
	Counters map[string]int64
	Verified int64 // bytes compared
}

// MaxDepth bounds the number of workers, maxBuffers their memory.
const (
	MaxDepth   = 1 << 20
	maxBuffers = 64 << 30
)

// validate refuses what can never be right.
func (o *Options) validate() error {
	switch {
	case o.Depth < 1 || o.Depth > MaxDepth:
		return fmt.Errorf("queue depth %d is not between 1 and %d", o.Depth, MaxDepth)
	case o.Count < 0 || o.Size < 0 || o.Step < 0 || o.Offset < 0 || o.Warmup < 0 || o.WarmupTime < 0 || o.Duration < 0:
		return errors.New("negative count, size, offset or time")
	case o.Size > math.MaxInt32:
		return fmt.Errorf("request size %d is larger than %d", o.Size, math.MaxInt32)
	case int64(o.Depth)*o.Size > maxBuffers:
		return fmt.Errorf("%d requests of %d bytes in flight need more than %d bytes of buffers", o.Depth, o.Size, int64(maxBuffers))
	case o.FlushInterval < 0 || o.FlushInterval > 0 && o.FlushInterval < int64(o.Depth):
		return errors.New("the flush interval is smaller than the queue depth")
	case o.ReadShare < 0 || o.ReadShare > 1:
		return errors.New("the share of reads is not between 0 and 1")
	}
	return nil
}

// Run executes the workload on dev and measures it. The first failed request ends the run with its error.
func Run(ctx context.Context, dev *block.Device, o Options) (*Result, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	w := newWorkload(dev, &o)
	defer func() { giveBack(w.pattern) }()
	var first int64
	if o.Warmup > 0 || o.WarmupTime > 0 {
		p := w.phase(first, o.Warmup, o.WarmupTime)
		if err := p.run(ctx); err != nil {
			return nil, err
		}
		first = p.end()
	}
	p := w.phase(first, o.Count, o.Duration)
	p.latency = o.Latency
	counters := countersOf(dev)
	before := usageNow()
	start := time.Now()
	err := p.run(ctx)
	res := p.result()
	res.Elapsed = p.finished.Sub(start)
	res.Usage = usageNow().minus(before)
	res.Counters = minus(countersOf(dev), counters)
	if err != nil {
		return nil, err
	}
	if o.Verify && o.Mode.Writes() {
		if res.Verified, err = w.readBack(ctx, p.end()); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (u Usage) minus(o Usage) Usage {
	return Usage{u.User - o.User, u.System - o.System, u.VoluntarySwitches - o.VoluntarySwitches, u.ForcedSwitches - o.ForcedSwitches}
}

// countersOf sums what the layers of the device count of themselves.
func countersOf(dev *block.Device) map[string]int64 {
	sum := map[string]int64{}
	seen := map[*block.Device]bool{}
	var walk func(d *block.Device)
	walk = func(d *block.Device) {
		if d == nil || seen[d] {
			return
		}
		seen[d] = true
		if c, ok := d.Driver().(block.Counter); ok {
			c.Counters(func(name string, n int64) { sum[name] += n })
		}
		if c, ok := d.Driver().(block.Chained); ok {
			walk(c.File())
			walk(c.DataFile())
			walk(c.Backing())
		}
	}
	walk(dev)
	return sum
}

func minus(a, b map[string]int64) map[string]int64 {
	for name := range a {
		a[name] -= b[name]
	}
	return a
}
