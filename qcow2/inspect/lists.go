package inspect

import (
	"context"
	"errors"
	"iter"

	"byre/block"
	"byre/qcow2/layout"
)

// SnapshotRecord is an entry of the snapshot table.
type SnapshotRecord struct {
	layout.Snapshot
	Offset   layout.HostOffset // of the entry in the file
	Problems []string
}

// Snapshots lists the snapshot table. It ends after the first entry that cannot be decoded.
func (f *File) Snapshots(ctx context.Context) iter.Seq2[SnapshotRecord, error] {
	return func(yield func(SnapshotRecord, error) bool) {
		if err := f.usable(); err != nil {
			yield(SnapshotRecord{}, err)
			return
		}
		h := f.Header
		at, used := h.SnapshotsOffset, int64(0)
		for i := range int64(h.NbSnapshots) {
			if i >= layout.MaxSnapshots || used > layout.MaxSnapshotTable {
				yield(SnapshotRecord{}, f.corrupt(at, "the snapshot table goes beyond its limits after %d entries", i))
				return
			}
			r, n, err := f.snapshot(ctx, at)
			if err != nil {
				yield(SnapshotRecord{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
			at, used = at+layout.HostOffset(n), used+int64(n)
		}
	}
}

func (f *File) snapshot(ctx context.Context, at layout.HostOffset) (r SnapshotRecord, n int, err error) {
	fixed := make([]byte, 40)
	if at <= 0 || int64(at) > f.dev.Size()-40 {
		return r, 0, f.corrupt(at, "a snapshot table entry lies beyond the end of the file")
	}
	if err := f.dev.Read(ctx, fixed, int64(at)); err != nil {
		return r, 0, err
	}
	size, _ := layout.SnapshotEntrySize(fixed)
	if size > layout.MaxSnapshotExtra+2*65536+64 {
		return r, 0, f.corrupt(at, "a snapshot table entry of %d bytes is above the limits", size)
	}
	b := make([]byte, size)
	got, err := f.dev.ReadAtContext(ctx, b, int64(at))
	if got < len(b) && ctx.Err() != nil {
		return r, 0, err
	}
	r.Offset = at
	r.Snapshot, n, err = layout.DecodeSnapshot(b[:got], at, layout.SnapshotOptions{})
	if err != nil {
		return r, 0, f.corrupt(at, "%w", err)
	}
	if err := r.ValidateL1(f.Header.Geometry(), at); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	if f.Header.Version >= 3 && r.Incomplete() {
		r.Problems = append(r.Problems, "the entry lacks extra data that version 3 requires")
	}
	return r, n, nil
}

// FindSnapshot looks a snapshot up by id, then by name.
func (f *File) FindSnapshot(ctx context.Context, idOrName string) (SnapshotRecord, error) {
	var named *SnapshotRecord
	for r, err := range f.Snapshots(ctx) {
		if err != nil {
			return r, err
		}
		if r.ID == idOrName {
			return r, nil
		}
		if named == nil && r.Name == idOrName {
			named = &r
		}
	}
	if named == nil {
		return SnapshotRecord{}, block.Errorf(block.KindInvalid, "inspect", f.dev.Path(), block.NoOffset, "no snapshot %q", idOrName)
	}
	return *named, nil
}

// Table is the snapshot's L1 table.
func (r *SnapshotRecord) Table() Table { return Table{r.L1TableOffset, int64(r.L1Size)} }

// Bitmaps reads the directory of persistent bitmaps, also if the image says that it is not valid.
func (f *File) Bitmaps(ctx context.Context) ([]layout.BitmapDirEntry, error) {
	if err := f.usable(); err != nil || f.Header.Bitmaps == nil {
		return nil, err
	}
	x := f.Header.Bitmaps
	end, ok := layout.RangeEnd(x.DirectoryOffset, x.DirectorySize)
	if !ok || x.DirectorySize > layout.MaxBitmapDir || int64(end) > f.dev.Size() {
		return nil, f.corrupt(x.DirectoryOffset, "a bitmap directory of %d bytes does not fit into the file", x.DirectorySize)
	}
	b := make([]byte, x.DirectorySize)
	if err := read(ctx, f.dev, b, int64(x.DirectoryOffset)); err != nil {
		return nil, err
	}
	dir, err := layout.DecodeBitmapDirectory(b, x.DirectoryOffset, int(min(x.Count, layout.MaxBitmaps)))
	if err != nil {
		return nil, f.corrupt(x.DirectoryOffset, "%w", err)
	}
	return dir, nil
}

// LUKS reads the encryption header; nil if there is none.
func (f *File) LUKS(ctx context.Context) (*layout.LUKS, error) {
	if err := f.usable(); err != nil || f.Header.CryptMethod != layout.CryptLUKS {
		return nil, err
	}
	c := f.Header.Crypto
	if c == nil {
		return nil, f.corrupt(32, "encrypted with LUKS, but the encryption header extension is missing")
	}
	b := make([]byte, layout.LUKSHeaderSize)
	if c.Offset < 0 || int64(c.Offset) > f.dev.Size()-int64(len(b)) {
		return nil, f.corrupt(c.Offset, "the encryption header lies beyond the end of the file")
	}
	if err := f.dev.Read(ctx, b, int64(c.Offset)); err != nil {
		return nil, err
	}
	l, err := layout.ParseLUKS(b, c.Offset)
	var le *layout.Error
	if errors.As(err, &le) {
		err = f.corrupt(c.Offset, "%w", err)
	}
	return l, err
}
