package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/check"
	"byre/qcow2/layout"
)

// repairDirty repairs an image whose last writer kept refcounts in memory and did not end properly (qcow2-format §8.6).
// An image on which corruptions remain is refused for writing; reading needs no repair. h is the header as read; the
// result is the header after the repair.
func repairDirty(ctx context.Context, file *block.Device, h *layout.Header) (*layout.Header, error) {
	if !h.HasIncompatible(layout.IncompatDirty) || h.HasIncompatible(layout.IncompatCorrupt) {
		return h, nil
	}
	res, err := check.Run(ctx, file, check.Options{Repair: check.All})
	if err != nil {
		return nil, err
	}
	if res.Corruptions > 0 || res.Errors > 0 {
		return nil, block.Errorf(block.KindCorrupt, "open", file.Path(), block.NoOffset,
			"the refcounts are stale and could not be repaired: %d corruptions and %d errors remain; the image can be opened for reading only",
			res.Corruptions, res.Errors)
	}
	return ReadHeader(ctx, file, false)
}
