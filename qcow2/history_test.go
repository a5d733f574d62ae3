package qcow2

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"byre/block"
)

// flavour is a kind of image that random histories run over.
type flavour struct {
	name string
	o    CreateOptions
	base bool // raw backing file, shorter than the disk
	open Options
}

// flavours has small clusters and small disks, so that tables grow and clusters are shared and reused all the time.
func flavours() []flavour {
	unmap := WriteOptions{Discard: true}
	const k = 1 << 10
	return []flavour{
		{"plain 512", CreateOptions{Size: 96 * k, ClusterSize: 512}, false, Options{Write: unmap}},
		{"plain 4K", CreateOptions{Size: 256 * k, ClusterSize: 4 * k}, false, Options{}},
		{"backing 512 refcount 1", CreateOptions{Size: 96 * k, ClusterSize: 512, RefcountBits: 1}, true, Options{}},
		{"backing 1K refcount 2", CreateOptions{Size: 128 * k, ClusterSize: k, RefcountBits: 2}, true, Options{Write: unmap}},
		{"backing 512 refcount 64", CreateOptions{Size: 96 * k, ClusterSize: 512, RefcountBits: 64}, true, Options{Write: unmap}},
		{"backing 4K refcount 8", CreateOptions{Size: 256 * k, ClusterSize: 4 * k, RefcountBits: 8}, true, Options{}},
		{"version 2", CreateOptions{Size: 96 * k, ClusterSize: 512, Version: 2}, false, Options{Write: unmap}},
		{"version 2 backing", CreateOptions{Size: 96 * k, ClusterSize: 512, Version: 2}, true, Options{Write: unmap}},
		{"extended", CreateOptions{Size: 512 * k, ClusterSize: 16 * k, ExtendedL2: true}, false, Options{Write: unmap}},
		{"extended backing", CreateOptions{Size: 512 * k, ClusterSize: 16 * k, ExtendedL2: true, CompressionType: 1}, true, Options{}},
		{"lazy", CreateOptions{Size: 96 * k, ClusterSize: 512, LazyRefcounts: true}, true, Options{Write: unmap}},
		{"lazy extended", CreateOptions{Size: 512 * k, ClusterSize: 16 * k, LazyRefcounts: true, ExtendedL2: true}, true, Options{}},
		{"data file", CreateOptions{Size: 96 * k, ClusterSize: 512, DataFile: "data"}, false, Options{Write: unmap}},
		{"data file backing extended", CreateOptions{Size: 512 * k, ClusterSize: 16 * k, DataFile: "data", ExtendedL2: true}, true, Options{}},
		{"raw data file", CreateOptions{Size: 96 * k, ClusterSize: 512, DataFile: "data", DataFileRaw: true}, false, Options{Write: unmap}},
		{"preallocated", CreateOptions{Size: 256 * k, ClusterSize: 4 * k, Prealloc: block.PreallocMetadata}, false, Options{Write: unmap}},
		{"keep places", CreateOptions{Size: 96 * k, ClusterSize: 512}, true, Options{Write: WriteOptions{Discard: true, DiscardNoUnref: true}}},
		{"zero ranges, strict", CreateOptions{Size: 512 * k, ClusterSize: 16 * k, ExtendedL2: true}, true,
			Options{Write: WriteOptions{ZeroPolicy: ZeroRange, Dependency: DependencyStrict, Overlap: OverlapAll}}},
	}
}

// opKind is what a step of a history does.
type opKind int

const (
	doWrite opKind = iota
	doZero
	doZeroUnmap
	doDiscard
	doCompressed
	doFlush
	doResize
	doReopen
	doSnapshot
	doApply
	doDelete
	numOps
)

var opNames = [numOps]string{"write", "zero", "zero-unmap", "discard", "compressed", "flush", "resize", "reopen",
	"snapshot", "apply", "delete"}

// op is a step.
type op struct {
	kind opKind
	off  int64
	n    int64 // bytes; new size of a resize
	data []byte
	name string // of a snapshot
}

func (o op) String() string {
	if o.name != "" {
		return opNames[o.kind] + " " + o.name
	}
	return fmt.Sprintf("%s %#x+%#x", opNames[o.kind], o.off, o.n)
}

// randomOp makes up a step for a disk of the size that it has by then.
func randomOp(rnd *rand.Rand, b *bench, weights [numOps]int) op {
	total := 0
	for _, w := range weights {
		total += w
	}
	pick := rnd.IntN(total)
	var o op
	for i, w := range weights {
		if pick < w {
			o.kind = opKind(i)
			break
		}
		pick -= w
	}
	size := int64(len(b.model))
	cs := b.im.geo.ClusterSize()
	switch o.kind {
	case doFlush, doReopen:
		return o
	case doSnapshot:
		b.snapshots++
		o.name = fmt.Sprint("s", b.snapshots)
		return o
	case doApply, doDelete:
		names := slices.Sorted(maps.Keys(b.saved))
		if len(names) == 0 {
			o.kind = doFlush
			return o
		}
		o.name = names[rnd.IntN(len(names))]
		return o
	case doResize:
		o.n = min(max(size+(rnd.Int64N(9)-4)*cs/2, 2*cs), 2*size+cs) &^ 511
		return o
	case doCompressed:
		o.off = rnd.Int64N(size/cs) * cs
		o.n = cs
		o.data = randomBytes(rnd, cs)
		return o
	}
	o.n = 1 + rnd.Int64N(cs*int64(1+rnd.IntN(6)))
	switch rnd.IntN(4) {
	case 0:
		o.n = min(o.n, 511)
	case 1, 2:
		o.n = (o.n + 511) &^ 511
	}
	o.n = min(o.n, size)
	o.off = rnd.Int64N(size - o.n + 1)
	switch rnd.IntN(4) {
	case 0, 1:
		o.off &^= 511
	case 2: // whole clusters
		o.off &^= cs - 1
		o.n = min((o.n+cs-1)&^(cs-1), size-o.off)
	}
	if o.kind == doWrite {
		o.data = randomBytes(rnd, o.n)
	}
	return o
}

// do carries out a step on image and model.
func (b *bench) do(o op) error {
	cs := b.im.geo.ClusterSize()
	size := int64(len(b.model))
	b.refused = false
	switch o.kind {
	case doWrite:
		if err := b.dev.Write(b.ctx, o.data, o.off, 0); err != nil {
			return err
		}
		copy(b.model[o.off:], o.data)
	case doZero, doZeroUnmap:
		var f block.Flags
		if o.kind == doZeroUnmap {
			f = block.MayUnmap
		}
		if err := b.dev.Zero(b.ctx, o.off, o.n, f); err != nil {
			return err
		}
		clear(b.model[o.off : o.off+o.n])
	case doDiscard:
		if err := b.dev.Discard(b.ctx, o.off, o.n); err != nil {
			return err
		}
		if b.im.geo.Version == 2 && b.base != nil {
			return nil
		}
		from, to := (o.off+cs-1)&^(cs-1), o.off+o.n
		if to < size {
			to &^= cs - 1
		}
		if from < to {
			clear(b.model[from:to])
		}
	case doCompressed:
		err := b.dev.Write(b.ctx, o.data, o.off, block.Compressed)
		if b.im.geo.DataFile {
			if !errors.Is(err, block.ErrUnsupported) {
				return fmt.Errorf("compressed write with a data file: %w", err)
			}
			return nil
		}
		if errors.Is(err, block.ErrIO) { // has a place already
			return nil
		}
		if err != nil {
			return err
		}
		copy(b.model[o.off:], o.data)
	case doFlush:
		return b.dev.Flush(b.ctx)
	case doResize:
		err := b.dev.Resize(b.ctx, o.n, block.ResizeOptions{})
		if errors.Is(err, block.ErrUnsupported) && b.im.geo.Version == 2 {
			b.refused = true
			return nil
		}
		if err != nil {
			return err
		}
		if o.n <= size {
			b.model = b.model[:o.n:o.n]
		} else {
			b.model = append(b.model, make([]byte, o.n-size)...)
		}
	case doReopen:
		b.reopen()
	case doSnapshot, doApply, doDelete:
		return b.doSnapshotOp(o)
	}
	return nil
}

// doSnapshotOp does so with the operations on internal snapshots. Refusals that the format imposes are no failures.
func (b *bench) doSnapshotOp(o op) error {
	var err error
	switch o.kind {
	case doSnapshot:
		if len(b.saved) >= 4 {
			b.refused = true
			return nil
		}
		if _, err = b.im.CreateSnapshot(b.ctx, SnapshotOptions{Name: o.name}); err == nil {
			b.saved[o.name] = slices.Clone(b.model)
		}
	case doApply:
		if err = b.im.ApplySnapshot(b.ctx, o.name); err == nil {
			b.model = slices.Clone(b.saved[o.name])
		}
	case doDelete:
		if err = b.im.DeleteSnapshot(b.ctx, "", o.name); err == nil {
			delete(b.saved, o.name)
		}
	}
	if errors.Is(err, block.ErrUnsupported) && (b.im.geo.DataFile || b.im.geo.RefcountOrder < 3) {
		b.refused = true
		return nil
	}
	return err
}
