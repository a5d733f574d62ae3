package qcow2

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// loadSnapshots reads the snapshot table. It is read as a stream, so that
// memory follows what the entries really hold.
func (im *Image) loadSnapshots(ctx context.Context, h *layout.Header) error {
	if h.NbSnapshots == 0 || im.opts.CheckMode && h.Validate(layout.Strict) != nil {
		return nil
	}
	list, n, err := readSnapshotTable(ctx, im.file, h.SnapshotsOffset, int(h.NbSnapshots))
	if err != nil {
		if im.opts.CheckMode && block.KindOf(err) != block.KindIO {
			return nil
		}
		return err
	}
	im.mu.Lock()
	im.mu.snapshots, im.mu.snapshotBytes = list, n
	im.mu.Unlock()
	return nil
}

// readSnapshotTable reads count entries at off and returns them and the bytes they take.
func readSnapshotTable(ctx context.Context, file *block.Device, off layout.HostOffset, count int) ([]layout.Snapshot, int64, error) {
	const op = "read snapshot table"
	size := file.Size()
	if int64(off) >= size {
		return nil, 0, block.Errorf(block.KindCorrupt, op, file.Path(), int64(off), "lies beyond the end of the file of %d bytes", size)
	}
	src := &contextReader{ctx: ctx, dev: file, off: int64(off)}
	r := bufio.NewReaderSize(src, 64<<10)
	var list []layout.Snapshot
	var n int64
	buf := make([]byte, 0, 512)
	for range count {
		at := off + layout.HostOffset(n)
		entry, err := readSnapshotEntry(r, buf, file.Path(), at)
		if err != nil {
			return nil, 0, err
		}
		s, used, err := layout.DecodeSnapshot(entry, at, layout.SnapshotOptions{})
		if err != nil {
			return nil, 0, wrapLayout(op, file.Path(), err)
		}
		list, buf = append(list, s), entry[:0]
		if n += int64(used); n > layout.MaxSnapshotTable {
			return nil, 0, block.Errorf(block.KindUnsupported, op, file.Path(), int64(off), "longer than the limit of %d bytes", layout.MaxSnapshotTable)
		}
	}
	return list, n, nil
}

// readSnapshotEntry reads one entry; the padding of the last may be cut off by the end of the file.
func readSnapshotEntry(r *bufio.Reader, buf []byte, path string, at layout.HostOffset) ([]byte, error) {
	fixed, err := r.Peek(40)
	if err == nil {
		n, _ := layout.SnapshotEntrySize(fixed)
		if n > layout.MaxSnapshotExtra+2*65536+64 { // whatever names can be; the decoder says what is wrong
			n = int64(len(fixed))
		}
		buf = append(buf[:0], make([]byte, n)...)
		var got int
		if got, err = io.ReadFull(r, buf); errors.Is(err, io.ErrUnexpectedEOF) {
			return buf[:got], nil
		}
	}
	if err == io.EOF {
		return nil, block.Errorf(block.KindCorrupt, "read snapshot table", path, int64(at), "an entry is cut off by the end of the file")
	}
	return buf, err
}

// contextReader reads a device sequentially.
type contextReader struct {
	ctx context.Context
	dev *block.Device
	off int64
}

func (r *contextReader) Read(p []byte) (int, error) {
	n, err := r.dev.ReadAtContext(r.ctx, p, r.off)
	r.off += int64(n)
	return n, err
}

// Snapshots returns the snapshot table as it is now. The entries share memory
// with the image and must not be changed.
func (im *Image) Snapshots() []layout.Snapshot {
	im.mu.RLock()
	defer im.mu.RUnlock()
	return append([]layout.Snapshot(nil), im.mu.snapshots...)
}

// FindSnapshot returns the snapshot with that id, else the first with that
// name: the order in which snapshots are looked up for reading and for going
// back to them (qcow2-format §4.1).
func (im *Image) FindSnapshot(idOrName string) (layout.Snapshot, error) {
	im.mu.RLock()
	defer im.mu.RUnlock()
	for _, s := range im.mu.snapshots {
		if s.ID == idOrName {
			return s, nil
		}
	}
	for _, s := range im.mu.snapshots {
		if s.Name == idOrName {
			return s, nil
		}
	}
	return layout.Snapshot{}, block.Errorf(block.KindInvalid, "open snapshot", im.path, block.NoOffset, "no snapshot %q", idOrName)
}

// Snapshot is an internal snapshot as a read-only disk of its own size. It
// shares caches, file and backing file with its image, which must stay open
// longer; Close lets go of the snapshot only.
type Snapshot struct {
	view
	info   layout.Snapshot
	closed atomic.Bool
}

var _ block.Driver = (*Snapshot)(nil)
var _ block.Chained = (*Snapshot)(nil)

// OpenSnapshot opens a snapshot by id or name.
func (im *Image) OpenSnapshot(idOrName string) (*Snapshot, error) {
	info, err := im.FindSnapshot(idOrName)
	if err != nil {
		return nil, err
	}
	if err := info.ValidateL1(im.geo, layout.HostOffset(block.NoOffset)); err != nil {
		return nil, wrapLayout("open snapshot", im.path, err)
	}
	size := im.Size()
	if info.HasDiskSize() {
		size = int64(info.DiskSize &^ (layout.SectorSize - 1))
	}
	if info.DiskSize > 1<<63-1 || size > im.geo.MaxDiskSize() {
		return nil, im.corrupt("open snapshot", info.L1TableOffset, "a disk size of %d bytes is above the limit", info.DiskSize)
	}
	s := &Snapshot{info: info}
	s.view.im = im
	s.view.size.Store(size)
	if err := s.view.openL1(info.L1TableOffset, int64(info.L1Size)); err != nil {
		return nil, err
	}
	im.mu.Lock()
	im.mu.views++
	im.mu.Unlock()
	return s, nil
}

// Info is the snapshot's entry in the table.
func (s *Snapshot) Info() layout.Snapshot { return s.info }

// Geometry implements block.Driver: that of the image, read-only.
func (s *Snapshot) Geometry() block.Geometry {
	g := s.im.Geometry()
	g.ReadOnly = true
	return g
}

// Size implements block.Driver: the disk's size when the snapshot was taken.
func (s *Snapshot) Size() int64 { return s.view.size.Load() }

// ReadvAt implements block.Driver.
func (s *Snapshot) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	return s.view.readv(ctx, iov, off)
}

// Extent implements block.Driver.
func (s *Snapshot) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	return s.view.extent(ctx, off, n, q)
}

// Backing implements block.Chained.
func (s *Snapshot) Backing() *block.Device { return s.im.Backing() }

// DataFile implements block.Chained.
func (s *Snapshot) DataFile() *block.Device { return s.im.DataFile() }

// File implements block.Chained.
func (s *Snapshot) File() *block.Device { return s.im.File() }

// Close lets go of the snapshot. The image stays open.
func (s *Snapshot) Close() error {
	if s.closed.Swap(true) {
		return block.Errorf(block.KindInvalid, "close", s.im.path, block.NoOffset, "closed twice")
	}
	s.view.l1.Load().close()
	s.im.mu.Lock()
	s.im.mu.views--
	s.im.mu.Unlock()
	return nil
}

func (s *Snapshot) readOnly(op string) error {
	return block.Errorf(block.KindInvalid, op, s.im.path, block.NoOffset, "snapshot %q is read-only", s.info.Name)
}

// WritevAt implements block.Driver: snapshots are read-only.
func (s *Snapshot) WritevAt(context.Context, [][]byte, int64, block.Flags) error {
	return s.readOnly("write")
}

// ZeroAt implements block.Driver: snapshots are read-only.
func (s *Snapshot) ZeroAt(context.Context, int64, int64, block.Flags) error {
	return s.readOnly("write zeroes")
}

// DiscardAt implements block.Driver: snapshots are read-only.
func (s *Snapshot) DiscardAt(context.Context, int64, int64) error { return s.readOnly("discard") }

// Flush implements block.Driver: there is nothing to flush.
func (s *Snapshot) Flush(context.Context) error { return nil }

// Resize implements block.Driver: snapshots are read-only.
func (s *Snapshot) Resize(context.Context, int64, block.ResizeOptions) error {
	return s.readOnly("resize")
}
