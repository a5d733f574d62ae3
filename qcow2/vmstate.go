package qcow2

import (
	"context"

	"byre/block"
)

// VMStateOffset is the guest offset behind the disk where machine state is kept (qcow2-format §4.2).
func (im *Image) VMStateOffset() int64 { return int64(im.geo.VMStateBase(im.Size())) }

// ReadVMState reads machine state from byte pos of it on. What was never written reads as zeros.
func (im *Image) ReadVMState(ctx context.Context, p []byte, pos int64) error {
	if err := im.checkVMState("read VM state", pos, len(p)); err != nil {
		return err
	}
	return im.view.readv(ctx, [][]byte{p}, im.VMStateOffset()+pos)
}

// WriteVMState writes machine state, to be taken by the next CreateSnapshot. It is durable after a flush.
func (im *Image) WriteVMState(ctx context.Context, p []byte, pos int64) error {
	const op = "write VM state"
	w := im.w
	switch {
	case w == nil:
		return im.readOnly(op, block.NoOffset)
	case im.geo.DataFile:
		return block.Errorf(block.KindUnsupported, op, im.path, block.NoOffset, "an external data file holds no VM state")
	}
	if err := im.checkVMState(op, pos, len(p)); err != nil || len(p) == 0 {
		return err
	}
	off := im.VMStateOffset() + pos
	if need := im.geo.L1Needed(off + int64(len(p))); need > im.view.l1.Load().n {
		if err := w.exclusive(ctx, func() error { return w.growL1(ctx, need) }); err != nil {
			return err
		}
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.writev(ctx, [][]byte{p}, off, int64(len(p))); err != nil {
		return err
	}
	return w.relieve(ctx)
}

func (im *Image) checkVMState(op string, pos int64, n int) error {
	if limit := im.geo.MaxDiskSize() - im.VMStateOffset(); pos < 0 || pos > limit || int64(n) > limit-pos {
		return block.Errorf(block.KindOutOfBounds, op, im.path, block.NoOffset, "%d bytes at %d do not fit behind the disk", n, pos)
	}
	return nil
}
