package check

import (
	"context"
	"errors"
	"runtime"

	"byre/block"
	"byre/qcow2/layout"
)

// Level says what a run may change (qcow2-format §11.3).
type Level uint8

const (
	// Nothing: report only.
	Nothing Level = iota
	// Leaks: lower refcounts that are too high; when nothing else is wrong, also put the COPIED flags right.
	Leaks
	// All: whatever can be repaired.
	All
)

// Options of a run. The zero value reports nothing and changes nothing.
type Options struct {
	// Repair: what may be changed. Anything but Nothing needs a device that can be written, and nobody else may use it.
	Repair Level
	// Report, if not nil, hears of each finding, in a fixed order, from one goroutine at a time.
	Report func(f *Finding)
	// Progress, if not nil, hears of work done and work known so far, in bytes of metadata.
	Progress func(done, total int64)
	// Workers: how many goroutines read and decode; 0 = one per core.
	Workers int
	// Discard gives the host space of clusters back that a repair frees.
	Discard bool
}

// Result sums a run up. What was repaired is not counted in Corruptions and Leaks.
type Result struct {
	Corruptions int64
	Leaks       int64 // clusters whose refcount is too high
	Errors      int64 // parts that could not be judged

	CorruptionsFixed int64
	LeaksFixed       int64

	ImageEnd           int64 // bytes: behind the last cluster that is referred to or counted
	TotalClusters      int64 // of the virtual disk
	AllocatedClusters  int64 // that the active state has a place for, VM state included
	FragmentedClusters int64 // whose place does not follow that of the cluster before; compressed ones always
	CompressedClusters int64
}

// Clean tells whether nothing is wrong (any more).
func (r *Result) Clean() bool { return r.Corruptions == 0 && r.Leaks == 0 && r.Errors == 0 }

// ErrRebuildNeeded: level Leaks cannot repair this image, because its refcount structures must be rebuilt first (level All).
var ErrRebuildNeeded = errors.New("the refcount structures must be rebuilt, which only a full repair does")

// Run checks the image file on dev, and repairs it as far as o allows. dev is the storage of the qcow2 file itself; an
// external data file is not needed.
//
// An error means that the check could not be carried through (unreadable or unusable header, failed reads or writes,
// ErrRebuildNeeded, a context that ended): the result then says how far it came, and nothing in it is final. Findings are not errors.
//
// Durability: when a repairing run returns nil, its changes are flushed. A run that is cut off leaves an image that another run can
// repair. A repairing run changes the image in ways that invalidate everything cached of it, header included.
func Run(ctx context.Context, dev *block.Device, o Options) (Result, error) {
	c := &checker{ctx: ctx, dev: dev, opt: o, workers: o.Workers}
	if c.workers <= 0 {
		c.workers = runtime.GOMAXPROCS(0)
	}
	if o.Repair != Nothing && dev.Geometry().ReadOnly {
		return c.res, block.Errorf(block.KindInvalid, "repair", dev.Path(), block.NoOffset, "opened read-only")
	}
	err := c.run()
	if err == nil && o.Progress != nil {
		done := max(c.work.done, c.work.total, 1)
		o.Progress(done, done)
	}
	return c.res, err
}

// checker is one run.
type checker struct {
	ctx     context.Context
	dev     *block.Device
	opt     Options
	workers int
	quiet   bool // count findings, do not report them again

	hdr      *layout.Header
	g        layout.Geometry
	fileSize int64 // exact length of the file
	size     int64 // the same in whole sectors: what references are measured by
	clusters int64 // counters that matter: whole clusters of the file, and beyond where something legal refers there

	res    Result
	counts *counts
	// dangling has what broken entries refer to behind the end of the file: a repair must not put anything there.
	dangling *counts

	snaps     []snapshot
	snapTable tableState // of the snapshot table as found

	l2s        []l2Ref
	structures []structure // what must stand alone, for overlap checks
	guard      []guarded   // the same as sorted byte ranges

	table     []layout.RefTableEntry
	skipBlock map[int64]bool // table entries whose block cannot be used
	rebuild   bool           // refcounts cannot be put right in place
	stored    storedCache
	extendTo  int64 // the file ends inside a structure that reaches up to here

	freed []interval // clusters whose space may be given back after the next flush
	work  struct{ done, total int64 }
}

// tableState keeps the findings about the snapshot table apart until the table is rewritten.
type tableState struct {
	corruptions int64
	rewrite     bool
	bytes       int64 // length of the table in the file
}

func (c *checker) run() error {
	if err := c.readHeader(); err != nil {
		return err
	}
	if c.opt.Repair != Nothing {
		if err := c.clearAutoclear(); err != nil {
			return err
		}
	}
	if err := c.readSnapshotTable(); err != nil {
		return err
	}
	if err := c.refcounts(); err != nil {
		c.res.Corruptions += c.snapTable.corruptions
		return err
	}
	if err := c.rewriteSnapshotTable(); err != nil {
		return err
	}
	if c.opt.Repair == Nothing {
		return nil
	}
	if c.res.Errors == 0 && c.res.Corruptions == 0 {
		if err := c.markClean(); err != nil {
			return err
		}
	}
	return c.flush("repair")
}

// refcounts is the body of a run: count, compare, repair, judge COPIED.
func (c *checker) refcounts() error {
	c.res.TotalClusters = c.g.Clusters(c.hdr.VirtualSize())
	if err := c.count(); err != nil {
		return err
	}
	before := c.res
	if err := c.compare(Nothing); err != nil {
		return err
	}
	if err := c.tableShared(); err != nil {
		return err
	}
	switch {
	case c.rebuild && c.opt.Repair == All:
		if err := c.rebuildAndRecount(before); err != nil {
			return err
		}
	case c.rebuild && c.opt.Repair == Leaks:
		c.report(&Finding{Class: Failure, Kind: RebuildNeeded})
		return block.Errorf(block.KindCorrupt, "repair", c.dev.Path(), block.NoOffset, "%w", ErrRebuildNeeded)
	case c.opt.Repair != Nothing && (c.res.Leaks > 0 || c.res.Corruptions > 0):
		end := c.res.ImageEnd
		c.res = before
		if err := c.compare(c.opt.Repair); err != nil {
			return err
		}
		c.res.ImageEnd = max(end, c.res.ImageEnd)
	}
	if err := c.separateL1(); err != nil {
		return err
	}
	if err := c.overlaps(); err != nil {
		return err
	}
	return c.copied()
}

// report passes a finding on and counts it, unless the run is counting anew what it already reported.
func (c *checker) report(f *Finding) {
	switch {
	case f.Class == Note:
	case f.Class == Failure:
		c.res.Errors++
	case f.Fixing && f.Class == Leak:
		c.res.LeaksFixed++
	case f.Fixing:
		c.res.CorruptionsFixed++
	case f.Class == Leak:
		c.res.Leaks++
	default:
		c.res.Corruptions++
	}
	if f.Kind == BeyondEOF && f.Offset >= 0 && f.Offset < int64(layout.MaxTableOffset) && f.Offset != int64(c.hdr.RefcountTableOffset) {
		first := f.Offset >> c.g.ClusterBits
		c.dangling.add(first, (f.Offset+min(f.Length, layout.MaxL1Bytes)-1)>>c.g.ClusterBits-first+1, 1, nil)
	}
	if c.opt.Report != nil && !c.quiet {
		c.opt.Report(f)
	}
}

// failed reports that something could not be read or written and returns the error that ends the run.
func (c *checker) failed(kind Kind, what string, off int64, err error) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	f := Finding{Class: Failure, Kind: kind, Offset: off}
	e := block.Errorf(block.KindOf(err), what, c.dev.Path(), off, "%w", err)
	f.Text = "ERROR: " + e.Error()
	c.report(&f)
	return e
}

func (c *checker) progress(n int64) {
	c.work.done += n
	if c.opt.Progress != nil {
		c.opt.Progress(c.work.done, max(c.work.total, c.work.done))
	}
}

func (c *checker) flush(op string) error {
	if err := c.dev.Flush(c.ctx); err != nil {
		return c.failed(RepairFailed, op, block.NoOffset, err)
	}
	return nil
}

func (c *checker) readHeader() error {
	c.fileSize = c.dev.Size()
	c.size = (c.fileSize + layout.SectorSize - 1) &^ (layout.SectorSize - 1)
	first := make([]byte, min(c.fileSize, layout.HeaderSizeV3))
	if err := c.read(first, 0); err != nil {
		return c.failed(ReadError, "read header", 0, err)
	}
	n, err := layout.Cluster0Size(first)
	if err != nil {
		return c.headerError(err)
	}
	buf := make([]byte, min(c.fileSize, int64(n)))
	if err := c.read(buf, 0); err != nil {
		return c.failed(ReadError, "read header", 0, err)
	}
	if c.hdr, err = layout.ParseHeader(buf, layout.CheckMode); err != nil {
		return c.headerError(err)
	}
	c.g = c.hdr.Geometry()
	if err := c.g.Validate(); err != nil {
		return c.headerError(err)
	}
	return nil
}

// headerError dresses what the codec says about the header.
func (c *checker) headerError(err error) error {
	kind, off := block.KindCorrupt, int64(block.NoOffset)
	var e *layout.Error
	if errors.As(err, &e) {
		if e.Kind != layout.Corrupt {
			kind = block.KindUnsupported
		}
		off = int64(e.Offset)
	}
	return block.Errorf(kind, "check", c.dev.Path(), off, "%w", err)
}

// clearAutoclear does the duty of every writer: features that are not understood here stop holding (§1.7).
func (c *checker) clearAutoclear() error {
	if c.hdr.Version < 3 || c.hdr.Autoclear&^layout.AutoclearKnown == 0 {
		return nil
	}
	c.hdr.Autoclear &= layout.AutoclearKnown
	if err := c.poke(layout.Poke{Offset: 88, Length: 8}); err != nil {
		return err
	}
	return c.flush("clear unknown autoclear bits")
}

// markClean clears the dirty and the corrupt bit, with everything that they stood for durable before.
func (c *checker) markClean() error {
	const bits = layout.IncompatDirty | layout.IncompatCorrupt
	if c.hdr.Version < 3 || !c.hdr.HasIncompatible(bits) {
		return nil
	}
	if err := c.flush("repair"); err != nil {
		return err
	}
	c.hdr.Incompatible &^= bits
	return c.poke(layout.PokeIncompatible)
}

// poke writes a part of the fixed header as c.hdr has it now.
func (c *checker) poke(p layout.Poke) error {
	if err := c.dev.Write(c.ctx, c.hdr.EncodePoke(p), int64(p.Offset), 0); err != nil {
		return c.failed(RepairFailed, "write header", int64(p.Offset), err)
	}
	return nil
}
