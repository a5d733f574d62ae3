package job

import (
	"context"
	"runtime"

	"byre/block"

	"golang.org/x/sync/errgroup"
)

// Offload says whether the host may copy by itself.
type Offload uint8

const (
	// OffloadShare lets source and target share space where the file system can (reflinks), and copies the rest.
	OffloadShare Offload = iota
	// OffloadCopy has the host copy whatever it can, without a look for zeros.
	OffloadCopy
	// OffloadNever moves all data through memory.
	OffloadNever
)

// ConvertOptions say how Convert copies. Sizes are bytes.
type ConvertOptions struct {
	// Sparse is the least number of consecutive zeros in data that are left out of the target, or given back by it; a
	// multiple of 512. With 0 nothing is left out: what is zero is written, and takes space.
	Sparse int64
	// Workers is how many units move at once; 0 chooses by the number of processors.
	Workers int
	// InOrder writes in the order of offsets: the layout of a target that places what it is given one after the other
	// follows from the contents alone then. Reading and compressing stay parallel.
	InOrder bool
	// Compress stores each cluster of the target compressed.
	Compress bool
	// TargetIsZero promises that all of the target reads as zeros now.
	TargetIsZero bool
	// KeepBacking says that the target has a backing file of BackingSize bytes that shows what lies below the top
	// layer of the one source: what that layer does not decide is not copied.
	KeepBacking bool
	BackingSize int64
	Offload     Offload
	// Salvage, if not nil, makes unreadable ranges zeros in the target and hears about each. Calls may overlap.
	Salvage func(off, n int64, err error)
	// Rate limits the bytes copied per second; 0 is no limit.
	Rate int64
	// Progress, if not nil, hears how much of the data has been copied, in the order of offsets. It costs a walk over
	// all extents in advance, unless ByOffset makes it tell offsets and the size instead. Calls do not overlap.
	Progress func(done, total int64)
	ByOffset bool
}

const (
	defaultUnit  = 1 << 20
	compressUnit = 256 << 10
	maxUnit      = 16 << 20
	offloadUnit  = 4 << 20
	shareUnit    = 256 << 20
	blockSize    = 4096 // sharing wants offsets in units of the file system's blocks, which are this or fail
)

// maxMemory bounds the memory of all workers together, as far as it is theirs.
const maxMemory = 64 << 20

// converter is one run of Convert.
type converter struct {
	o    ConvertOptions
	src  *concat
	dst  *block.Device
	unit int64 // longest unit that goes through memory, a multiple of align
	// align is the unit in which the target allocates: ranges of data are widened to it. 1 if it has none.
	align int64
	grain int64 // unit in which zeros are found in data
	// targetZero: what is not written reads as zeros.
	targetZero bool
	copier     bool       // the host may be able to copy into the target
	share      shareState // planner only
	seq        *sequence
	limit      *limiter
	done       int64 // bytes of data, under seq
	total      int64
}

// Convert copies the devices srcs, one behind the other, to the start of dst, which must be large enough; what dst has
// behind them stays. It does not flush. When it fails, also because ctx ended, part of dst has been written.
func Convert(ctx context.Context, dst *block.Device, srcs []*block.Device, o ConvertOptions) error {
	c, err := newConverter(dst, srcs, o)
	if err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	return c.run(ctx)
}

func newConverter(dst *block.Device, srcs []*block.Device, o ConvertOptions) (*converter, error) {
	src, err := newConcat(srcs)
	if err != nil {
		return nil, err
	}
	if src.size > dst.Size() {
		return nil, block.Errorf(block.KindOutOfBounds, "convert", dst.Path(), block.NoOffset,
			"the target has %d bytes, the source %d", dst.Size(), src.size)
	}
	if o.KeepBacking && len(srcs) != 1 {
		return nil, block.Errorf(block.KindInvalid, "convert", dst.Path(), block.NoOffset, "a backing file goes with a single source only")
	}
	if o.Sparse < 0 || o.Sparse%512 != 0 {
		return nil, block.Errorf(block.KindInvalid, "convert", dst.Path(), block.NoOffset, "runs of zeros are counted in sectors of 512 bytes")
	}
	c := &converter{o: o, src: src, dst: dst, seq: newSequence(), limit: newLimiter(o.Rate)}
	c.measure()
	_, c.copier = dst.Driver().(block.RangeCopier)
	c.copier = c.copier && o.Offload != OffloadNever && !o.Compress
	return c, nil
}

// measure chooses the sizes that the target and the options suggest.
func (c *converter) measure() {
	g := c.dst.Geometry()
	c.align = max(g.ClusterSize, 1)
	c.unit = max(defaultUnit, c.align)
	if c.o.Compress {
		c.unit = max(compressUnit, c.align)
	}
	if c.o.Offload == OffloadCopy {
		c.unit = max(c.unit, offloadUnit)
	}
	if c.o.Sparse > c.unit && !c.o.Compress { // so that runs of that length are seen
		c.unit = min((c.o.Sparse+c.align-1)/c.align*c.align, max(maxUnit, c.align))
	}
	c.grain = max(c.align, g.ZeroAlign, g.RequestAlign)
	switch {
	case c.align > 1:
	case c.o.Sparse >= blockSize || c.o.Sparse == 0:
		c.grain = max(c.grain, blockSize)
	default:
		c.grain = max(c.grain, 512)
	}
	c.grain = min(c.grain, c.unit)
}

// workers is how many units move at once.
func (c *converter) workers() int {
	n := c.o.Workers
	if n <= 0 {
		n = max(2*runtime.GOMAXPROCS(0), 8)
	}
	return max(1, min(n, int(maxMemory/c.workerMemory())))
}

// workerMemory is about what a worker takes. A compressor keeps tables and some copies of what it works on.
func (c *converter) workerMemory() int64 {
	if c.o.Compress {
		return 2*c.unit + 2<<20 + 8*c.align
	}
	return c.unit
}

// prepare makes the target read as zeros if that is quick, and counts the data for the progress.
func (c *converter) prepare(ctx context.Context) error {
	c.targetZero = c.o.TargetIsZero && c.o.Sparse > 0 && !c.o.KeepBacking
	if !c.targetZero && c.o.Sparse > 0 && !c.o.KeepBacking && c.dst.Geometry().QuickZero {
		err := c.zero(ctx, 0, c.src.size, block.MayUnmap|block.NoFallback)
		if err != nil && block.KindOf(err) != block.KindUnsupported {
			return err
		}
		c.targetZero = err == nil
	}
	if c.o.Progress == nil {
		return nil
	}
	if c.o.ByOffset {
		c.total = c.src.size
		return nil
	}
	return c.walk(ctx, func(r region) error {
		if c.counts(r.kind) {
			c.total += r.to - r.from
		}
		return nil
	})
}

// run starts the planner and the workers and waits for all.
func (c *converter) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	n := c.workers()
	units := make(chan unit, n)
	g.Go(func() error {
		defer close(units)
		return c.plan(ctx, units)
	})
	for range n {
		g.Go(func() error { return c.work(ctx, units) })
	}
	return g.Wait()
}

// counts tells whether a region is part of what the progress counts.
func (c *converter) counts(k regionKind) bool {
	return k == regionData || k == regionZero && c.o.Sparse == 0
}

// zero makes a range of the target read as zeros.
func (c *converter) zero(ctx context.Context, off, n int64, flags block.Flags) error {
	limit := c.dst.Geometry().MaxZero
	if limit <= 0 {
		limit = 1 << 40
	}
	for n > 0 {
		step := min(n, limit)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := c.dst.Zero(ctx, off, step, flags); err != nil {
			return err
		}
		off, n = off+step, n-step
	}
	return nil
}
