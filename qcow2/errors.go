package qcow2

import (
	"errors"

	"byre/block"
	"byre/qcow2/layout"
)

// wrapLayout gives an error of the codec its kind, file and operation.
func wrapLayout(op, path string, err error) error {
	var e *layout.Error
	if !errors.As(err, &e) {
		return err
	}
	kind := block.KindCorrupt
	switch e.Kind {
	case layout.Unsupported:
		kind = block.KindUnsupported
	case layout.NotQcow2:
		kind = block.KindInvalid
	}
	return &block.Error{Kind: kind, Op: op, Path: path, Offset: int64(e.Offset), Msg: e.What + ": " + e.Msg}
}

// corrupt makes an error about the image file's contents at off.
func (im *Image) corrupt(op string, off layout.HostOffset, format string, args ...any) error {
	return block.Errorf(block.KindCorrupt, op, im.path, int64(off), format, args...)
}
