package qcow2

import (
	"context"

	"byre/block"
)

// The requests that change an image.

func (im *Image) readOnly(op string, off int64) error {
	return block.Errorf(block.KindInvalid, op, im.path, off, "the image is open for reading only")
}

// WritevAt implements block.Driver.
func (im *Image) WritevAt(_ context.Context, _ [][]byte, off int64, _ block.Flags) error {
	return im.readOnly("write", off)
}

// ZeroAt implements block.Driver.
func (im *Image) ZeroAt(_ context.Context, off, _ int64, _ block.Flags) error {
	return im.readOnly("write zeroes", off)
}

// DiscardAt implements block.Driver.
func (im *Image) DiscardAt(_ context.Context, off, _ int64) error {
	return im.readOnly("discard", off)
}

// Flush implements block.Driver.
func (im *Image) Flush(context.Context) error { return nil }

// Resize implements block.Driver.
func (im *Image) Resize(context.Context, int64, block.ResizeOptions) error {
	return im.readOnly("resize", block.NoOffset)
}

// Close implements block.Driver. It closes the file, the data file and the
// backing file too.
func (im *Image) Close() error {
	if im.closed.Swap(true) {
		return block.Errorf(block.KindInvalid, "close", im.path, block.NoOffset, "closed twice")
	}
	im.drop()
	return im.closeDevices()
}
