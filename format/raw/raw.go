// Package raw is the format that adds nothing: the bytes of the file are the bytes of the disk, or a window of them.
//
// The size is that of the file rounded up to whole sectors of 512 bytes; the tail behind the end of the file reads as
// zeros and is written by extending the file. Requests go down as they are, so the device below does what padding its
// storage needs.
package raw

import (
	"context"
	"fmt"
	"math"

	"byre/block"
)

const sector = 512

// Options choose a window of the file, and guard an image whose format is only a guess.
type Options struct {
	Offset int64 // first byte of the window, ≥ 0
	Size   int64 // length of the window, a multiple of 512; with HasSize
	// HasSize fixes the length. Without it the window reaches to the end of the file and follows its size.
	HasSize bool
	// Guess, if not nil, makes the driver refuse writes to the first sector after which Guess finds a format in it.
	// It gets 512 bytes and returns "" if all is well, else the name of the format. It is for images that were probed
	// as raw: a guest could otherwise write a header there that the next probing believes.
	Guess func(first []byte) string
}

// Driver is a [block.Driver]. It owns the device below: Close closes it.
type Driver struct {
	file *block.Device
	opt  Options
	geo  block.Geometry
}

var _ block.Driver = (*Driver)(nil)

// Open makes the driver. On error the device stays open and stays the caller's.
func Open(file *block.Device, opt Options) (*Driver, error) {
	d := &Driver{file: file, opt: opt}
	size := file.Size()
	switch {
	case opt.Offset < 0 || opt.Offset > size:
		return nil, d.errorf(block.KindInvalid, "open", "the window starts at %d, but the file has %d bytes", opt.Offset, size)
	case opt.HasSize && (opt.Size < 0 || opt.Size%sector != 0):
		return nil, d.errorf(block.KindInvalid, "open", "the window's size %d is no multiple of %d", opt.Size, sector)
	case opt.HasSize && opt.Size > roundUp(size)-opt.Offset:
		return nil, d.errorf(block.KindInvalid, "open", "the window of %d bytes at %d ends behind the file of %d bytes",
			opt.Size, opt.Offset, size)
	}
	d.geo = d.geometry()
	return d, nil
}

// geometry passes on what is true of the file and shifts what depends on offsets.
func (d *Driver) geometry() block.Geometry {
	f := d.file.Geometry()
	g := block.Geometry{
		Path:         f.Path,
		RequestAlign: 1,
		MemAlign:     f.MemAlign,
		MaxTransfer:  f.MaxTransfer,
		MaxIovec:     f.MaxIovec,
		OptTransfer:  f.OptTransfer,
		ZeroAlign:    max(f.ZeroAlign, f.RequestAlign),
		MaxZero:      f.MaxZero,
		DiscardAlign: max(f.DiscardAlign, f.RequestAlign),
		MaxDiscard:   f.MaxDiscard,
		ReadOnly:     f.ReadOnly,
		ZeroInit:     f.ZeroInit,
		QuickZero:    f.QuickZero,
		Unmap:        f.Unmap,
	}
	if f.MaxSize > 0 {
		g.MaxSize = f.MaxSize - d.opt.Offset
	}
	if d.opt.HasSize {
		g.MaxSize = max(d.opt.Size, 1)
	}
	return g
}

// Geometry of the window.
func (d *Driver) Geometry() block.Geometry { return d.geo }

// File is the device below.
func (d *Driver) File() *block.Device { return d.file }

// Backing is nil: raw images have none.
func (d *Driver) Backing() *block.Device { return nil }

// DataFile is nil.
func (d *Driver) DataFile() *block.Device { return nil }

// Offset is the first byte of the window in the file.
func (d *Driver) Offset() int64 { return d.opt.Offset }

// Size is the window's length in whole sectors.
func (d *Driver) Size() int64 {
	if d.opt.HasSize {
		return d.opt.Size
	}
	return roundUp(max(d.file.Size()-d.opt.Offset, 0))
}

func roundUp(n int64) int64 {
	if n > math.MaxInt64-sector {
		return n &^ (sector - 1)
	}
	return (n + sector - 1) &^ (sector - 1)
}

// tail tells how many of n bytes at file offset pos exist in the file.
func (d *Driver) tail(pos, n int64) int64 {
	return min(n, max(d.file.Size()-pos, 0))
}

// ReadvAt reads through; what lies behind the end of the file is zeros.
func (d *Driver) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	n := length(iov)
	pos := off + d.opt.Offset
	have := d.tail(pos, n)
	if have == n {
		return d.file.Readv(ctx, iov, pos)
	}
	head, rest := split(iov, have)
	for _, b := range rest {
		clear(b)
	}
	if have == 0 {
		return nil
	}
	return d.file.Readv(ctx, head, pos)
}

// WritevAt writes through.
func (d *Driver) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	if flags&block.Compressed != 0 {
		return d.errorf(block.KindUnsupported, "write", "raw images hold no compressed data")
	}
	if err := d.guard(ctx, iov, off); err != nil {
		return err
	}
	return d.file.Writev(ctx, iov, off+d.opt.Offset, flags)
}

// CopyRange passes on to the file what the guard need not see.
func (d *Driver) CopyRange(ctx context.Context, off int64, src block.Driver, srcOff, n int64, share bool) error {
	if d.opt.Guess != nil && off < sector {
		return d.errorf(block.KindUnsupported, "copy", "the format was only guessed, and the first sector is to be seen")
	}
	return d.file.CopyRange(ctx, off+d.opt.Offset, src, srcOff, n, share)
}

// guard refuses a write that would make the first sector look like another format.
func (d *Driver) guard(ctx context.Context, iov [][]byte, off int64) error {
	if d.opt.Guess == nil || off >= sector {
		return nil
	}
	var first [sector]byte
	if off > 0 || length(iov) < sector {
		if err := d.ReadvAt(ctx, [][]byte{first[:min(sector, d.Size())]}, 0); err != nil {
			return err
		}
	}
	at := int(off)
	for _, b := range iov {
		if at >= sector {
			break
		}
		at += copy(first[at:], b)
	}
	if format := d.opt.Guess(first[:]); format != "" {
		return d.errorf(block.KindInvalid, "write", "refused: the first sector would look like a %s image, and the "+
			"raw format of this one was only guessed; name the format to allow it", format)
	}
	return nil
}

// ZeroAt zeroes through. Zeros in a part of the first sector can be the last step to another format, too.
func (d *Driver) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	if d.opt.Guess != nil && off < sector && n < sector {
		if err := d.guard(ctx, [][]byte{make([]byte, n)}, off); err != nil {
			return err
		}
	}
	return d.file.Zero(ctx, off+d.opt.Offset, n, flags)
}

// DiscardAt discards what the file has of the range.
func (d *Driver) DiscardAt(ctx context.Context, off, n int64) error {
	if n = d.tail(off+d.opt.Offset, n); n == 0 || d.opt.Guess != nil && off < sector && n < sector {
		return nil
	}
	return d.file.Discard(ctx, off+d.opt.Offset, n)
}

// Flush flushes the file.
func (d *Driver) Flush(ctx context.Context) error { return d.file.Flush(ctx) }

// Extent: everything is allocated and lies in the file; the file knows its holes.
func (d *Driver) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	pos := off + d.opt.Offset
	e := block.Extent{Start: off, Length: n, Flags: block.Data | block.Allocated | block.HasHost, Host: pos, File: d.geo.Path}
	have := d.tail(pos, n)
	switch {
	case have == 0:
		e.Flags = block.Zero | block.Allocated | block.HasHost
	case q&block.WantZero == 0:
		e.Length = have
	default:
		below, err := d.file.Extent(ctx, pos, have, q)
		if err != nil {
			return block.Extent{}, err
		}
		e.Length = below.Length
		e.Flags = block.Allocated | block.HasHost | below.Flags&(block.Data|block.Zero)
		if below.Flags&block.HasHost != 0 {
			e.Host, e.File = below.Host, below.File
		}
	}
	if e.End() == d.Size() {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

// Resize resizes the file to the end of the window.
func (d *Driver) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	if d.opt.HasSize {
		return d.errorf(block.KindUnsupported, "resize", "the size of the window is fixed")
	}
	if size > math.MaxInt64-d.opt.Offset {
		return d.errorf(block.KindOutOfBounds, "resize", "%d bytes behind offset %d", size, d.opt.Offset)
	}
	return d.file.Resize(ctx, size+d.opt.Offset, o)
}

// Reopen passes on to the file.
func (d *Driver) Reopen(ctx context.Context, o block.ReopenOptions) error {
	r, ok := d.file.Driver().(block.Reopener)
	if !ok {
		return d.errorf(block.KindUnsupported, "reopen", "the storage below cannot change how it is open")
	}
	if err := r.Reopen(ctx, o); err != nil {
		return err
	}
	d.geo.ReadOnly = o.ReadOnly
	return nil
}

// Close closes the file.
func (d *Driver) Close() error { return d.file.Close() }

func (d *Driver) errorf(k block.Kind, op, format string, args ...any) error {
	return &block.Error{Kind: k, Op: op, Path: d.file.Path(), Offset: block.NoOffset, Msg: fmt.Sprintf(format, args...)}
}

func length(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}

// split cuts a vector after n bytes.
func split(iov [][]byte, n int64) (head, rest [][]byte) {
	for i, b := range iov {
		if int64(len(b)) > n {
			head = append(head[:i:i], b[:n])
			return head, append([][]byte{b[n:]}, iov[i+1:]...)
		}
		head = append(head, b)
		n -= int64(len(b))
	}
	return head, nil
}
