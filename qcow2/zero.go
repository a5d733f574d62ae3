package qcow2

import (
	"context"

	"byre/block"
)

func (im *Image) readOnly(op string, off int64) error {
	return block.Errorf(block.KindInvalid, op, im.path, off, "the image is open for reading only")
}
func (im *Image) ZeroAt(_ context.Context, off, _ int64, _ block.Flags) error {
	return im.readOnly("write zeroes", off)
}

// DiscardAt implements block.Driver.
func (im *Image) DiscardAt(_ context.Context, off, _ int64) error {
	return im.readOnly("discard", off)
}

// Resize implements block.Driver.
func (im *Image) Resize(context.Context, int64, block.ResizeOptions) error {
	return im.readOnly("resize", block.NoOffset)
}
func (w *writer) writeCompressed(context.Context, [][]byte, int64) error { return nil }
