package image

import (
	"context"
	"errors"
	"iter"

	"byre/block"
	"byre/qcow2"
)

// Image is an open stack of layers, seen from its top. It is safe for any number of goroutines, except Close.
type Image struct {
	top      *node
	snapshot *block.Device // the snapshot that is shown instead of the active state, or nil
	cfg      *config
}

// Device is the guest's view of the disk.
func (im *Image) Device() *block.Device {
	if im.snapshot != nil {
		return im.snapshot
	}
	return im.top.dev
}

// Layer is one image of a backing chain.
type Layer struct {
	Filename string
	Format   string
	Device   *block.Device // what this layer and those below it hold
}

// Layers lists the backing chain as it is open, the image itself first. With WithSnapshot the first device is that of
// the active state all the same.
func (im *Image) Layers() (out []Layer) {
	for n := im.top; n != nil; n = n.backing {
		out = append(out, Layer{n.name(), n.driver, n.dev})
	}
	return out
}

// QCOW2 is the engine of a qcow2 image, for what only this format has; nil for other formats.
func (im *Image) QCOW2() *qcow2.Image {
	q, _ := im.top.dev.Driver().(*qcow2.Image)
	return q
}

// showSnapshot puts a snapshot in front of the active state.
func (im *Image) showSnapshot(idOrName string) error {
	q := im.QCOW2()
	if q == nil {
		return errOpen(block.KindUnsupported, im.Filename(), "images of format %s have no snapshots", im.Format())
	}
	s, err := q.OpenSnapshot(idOrName)
	if err != nil {
		return err
	}
	im.snapshot = block.NewDevice(s)
	return nil
}

// Size is the virtual size in bytes.
func (im *Image) Size() int64 { return im.Device().Size() }

// Format is the name of the top layer's driver: "qcow2", "raw"…
func (im *Image) Format() string { return im.top.driver }

// Filename is what listings call the image: the plain name where it says everything, else a "json:" name.
func (im *Image) Filename() string { return im.top.name() }

// ReadAt implements io.ReaderAt.
func (im *Image) ReadAt(p []byte, off int64) (int, error) { return im.Device().ReadAt(p, off) }

// WriteAt implements io.WriterAt; the image must be Writable.
func (im *Image) WriteAt(p []byte, off int64) (int, error) { return im.Device().WriteAt(p, off) }

// Flush makes everything that was written before the call durable.
func (im *Image) Flush(ctx context.Context) error { return im.Device().Flush(ctx) }

// Resize changes the virtual size; what growth adds reads as zeros.
func (im *Image) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	return im.Device().Resize(ctx, size, o)
}

// Extents iterates over what is at [off, off+n), in order and without gaps; n is clipped to the end of the disk, and
// adjacent pieces that say the same are one extent. The sequence ends after an error.
func (im *Image) Extents(ctx context.Context, off, n int64, q block.Query) iter.Seq2[block.Extent, error] {
	return Extents(ctx, im.Device(), off, n, q)
}

// Extents is [Image.Extents] for any device.
func Extents(ctx context.Context, dev *block.Device, off, n int64, q block.Query) iter.Seq2[block.Extent, error] {
	return func(yield func(block.Extent, error) bool) {
		var cur block.Extent
		end := min(dev.Size(), off+min(n, dev.Size()))
		for pos := off; pos < end; {
			if err := ctx.Err(); err != nil {
				yield(block.Extent{}, err)
				return
			}
			e, err := dev.Extent(ctx, pos, end-pos, q)
			if err != nil {
				if cur.Length == 0 || yield(cur, nil) {
					yield(block.Extent{}, err)
				}
				return
			}
			pos = e.End()
			switch {
			case cur.Length == 0:
				cur = e
			case mergeable(&cur, &e):
				cur.Length += e.Length
				cur.Flags |= e.Flags & block.EOFExtent
			default:
				if !yield(cur, nil) {
					return
				}
				cur = e
			}
		}
		if cur.Length > 0 {
			yield(cur, nil)
		}
	}
}

// mergeable tells whether b, which follows a, says the same.
func mergeable(a, b *block.Extent) bool {
	if (a.Flags^b.Flags)&^block.EOFExtent != 0 || a.Depth != b.Depth {
		return false
	}
	return a.Flags&block.HasHost == 0 || (a.Host+a.Length == b.Host && a.File == b.File && a.FileExtra == b.FileExtra)
}

// Close makes everything consistent and closes all layers, top first. It must be the last call.
func (im *Image) Close() error {
	var err error
	if im.snapshot != nil {
		err = im.snapshot.Close()
	}
	return errors.Join(err, im.top.dev.Close())
}
