package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"byre/block"
)

// fake is a driver in memory whose extents, failures and geometry a test sets.
type fake struct {
	data    []byte
	extents []block.Extent // in order, without gaps; nil: one extent of data
	geo     block.Geometry
	badRead map[int64]bool // sectors, by offset, that cannot be read
	badExt  map[int64]bool // offsets at which no extent can be named
	backing *block.Device
	onRead  func(n int) // told of each read, the first is 1

	mu     sync.Mutex
	writes []span // writes and zeroes in the order in which they ended
	reads  []span
	flags  block.Flags // of all writes together
	failAt int64       // a write that touches this offset fails; -1: none
}

type span struct{ off, n int64 }

var errFake = errors.New("the disk is broken")

func newFake(data []byte, extents ...block.Extent) *fake {
	return &fake{data: data, extents: extents, failAt: -1, geo: block.Geometry{Path: "fake", RequestAlign: 1}}
}

func (f *fake) dev() *block.Device { return block.NewDevice(f) }

func (f *fake) Geometry() block.Geometry { return f.geo }
func (f *fake) Size() int64              { return int64(len(f.data)) }

func (f *fake) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	n := int64(0)
	for _, b := range iov {
		n += int64(len(b))
	}
	for at := off / 512 * 512; at < off+n; at += 512 {
		if f.badRead[at] {
			return block.Errorf(block.KindIO, "read", "fake", at, "%w", errFake)
		}
	}
	f.mu.Lock()
	f.reads = append(f.reads, span{off, n})
	if f.onRead != nil {
		f.onRead(len(f.reads))
	}
	f.mu.Unlock()
	for _, b := range iov {
		off += int64(copy(b, f.data[off:]))
	}
	return nil
}

func (f *fake) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flags |= flags
	start := off
	for _, b := range iov {
		if f.failAt >= off && f.failAt < off+int64(len(b)) {
			return block.Errorf(block.KindNoSpace, "write", "fake", off, "%w", errFake)
		}
		off += int64(copy(f.data[off:], b))
	}
	f.writes = append(f.writes, span{start, off - start})
	return nil
}

func (f *fake) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	if flags&block.NoFallback != 0 && !f.geo.QuickZero {
		return block.Errorf(block.KindUnsupported, "zero", "fake", off, "slow")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.data[off : off+n])
	f.writes = append(f.writes, span{off, n})
	return nil
}

func (f *fake) DiscardAt(context.Context, int64, int64) error { return nil }
func (f *fake) Flush(context.Context) error                   { return nil }
func (f *fake) Close() error                                  { return nil }
func (f *fake) Resize(context.Context, int64, block.ResizeOptions) error {
	return errors.New("not here")
}
func (f *fake) File() *block.Device     { return nil }
func (f *fake) DataFile() *block.Device { return nil }
func (f *fake) Backing() *block.Device  { return f.backing }

func (f *fake) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	if f.badExt[off] {
		return block.Extent{}, block.Errorf(block.KindCorrupt, "query extent", "fake", off, "%w", errFake)
	}
	if f.extents == nil {
		return block.Extent{Start: off, Length: n, Flags: block.Data | block.Allocated}, nil
	}
	for _, e := range f.extents {
		if off >= e.Start && off < e.End() {
			if q&block.TopOnly == 0 && e.Flags&block.Allocated == 0 && f.backing != nil {
				e.Flags, e.Depth = block.Data|block.Allocated, 1
			}
			end := min(e.End(), off+n)
			e.Host += off - e.Start
			e.Start, e.Length = off, end-off
			return e, nil
		}
	}
	return block.Extent{}, fmt.Errorf("no extent at %d", off)
}

// sparse makes a driver with an extent for each run of equal flags.
func sparse(data []byte, unit int64, flags []block.ExtentFlags) *fake {
	var out []block.Extent
	for i, fl := range flags {
		start := int64(i) * unit
		n := min(unit, int64(len(data))-start)
		if n <= 0 {
			break
		}
		if k := len(out) - 1; k >= 0 && out[k].Flags == fl {
			out[k].Length += n
		} else {
			out = append(out, block.Extent{Start: start, Length: n, Flags: fl})
		}
	}
	if end := int64(len(flags)) * unit; end < int64(len(data)) {
		out = append(out, block.Extent{Start: end, Length: int64(len(data)) - end, Flags: block.Data | block.Allocated})
	}
	if out == nil {
		out = []block.Extent{{Length: math.MaxInt64, Flags: block.Data | block.Allocated}}
	}
	return newFake(data, out...)
}

// fakeCompressor halves clusters of which the second half repeats the first.
type fakeCompressor struct{ half int }

func (c fakeCompressor) Compress(dst, cluster []byte) ([]byte, bool) {
	if !bytes.Equal(cluster[:c.half], cluster[c.half:]) {
		return dst, false
	}
	return append(dst, cluster[:c.half]...), true
}

func (f *fake) NewCompressor() (block.Compressor, error) {
	return fakeCompressor{int(f.geo.ClusterSize / 2)}, nil
}

func (f *fake) WriteStreams(ctx context.Context, off int64, streams [][]byte) error {
	for _, s := range streams {
		n := min(f.geo.ClusterSize, f.Size()-off)
		if err := f.WritevAt(ctx, [][]byte{append(bytes.Clone(s), s...)[:n]}, off, block.Compressed); err != nil {
			return err
		}
		off += n
	}
	return nil
}
