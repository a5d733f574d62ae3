package qcow2

import (
	"bufio"
	"context"
	"io"

	"byre/block"
	"byre/qcow2/layout"
)

// Info is what listings show of an image beyond sizes and names that every
// layer has (qcow2-format Appendix A).
type Info struct {
	Version     uint32 // 2 or 3
	Compat      string // "0.10" or "1.1"
	ClusterSize int64
	VirtualSize int64
	Dirty       bool
	Corrupt     bool

	LazyRefcounts   bool
	RefcountBits    int
	ExtendedL2      bool
	CompressionType string // "zlib" or "zstd"

	BackingFile   string // "" if there is none
	BackingFormat string // "" if not recorded
	HasDataFile   bool
	DataFile      string // name recorded in the image, may be ""
	DataFileRaw   bool

	Incompatible, Compatible, Autoclear uint64 // feature bits as stored

	Snapshots []layout.Snapshot
	// Bitmaps are the persistent bitmaps; nil if there are none or the image
	// says that they are not valid.
	Bitmaps []layout.BitmapDirEntry
	// Encryption is nil for an image in the clear.
	Encryption *EncryptionInfo
}

// EncryptionInfo is what can be told about encryption without a secret.
type EncryptionInfo struct {
	Method uint32       // layout.CryptAES or layout.CryptLUKS
	LUKS   *layout.LUKS // for LUKS
}

// Info describes the image. It reads the bitmap directory and the encryption
// header; nothing else is loaded for it.
func (im *Image) Info(ctx context.Context) (*Info, error) {
	h := im.Header()
	info := &Info{
		Version:         h.Version,
		Compat:          "1.1",
		ClusterSize:     h.ClusterSize(),
		VirtualSize:     im.Size(),
		Dirty:           h.HasIncompatible(layout.IncompatDirty),
		Corrupt:         h.HasIncompatible(layout.IncompatCorrupt),
		LazyRefcounts:   h.HasCompatible(layout.CompatLazyRefcounts),
		RefcountBits:    im.geo.RefcountBits(),
		ExtendedL2:      im.geo.ExtendedL2,
		CompressionType: layout.CompressionName(h.CompressionType),
		BackingFile:     h.BackingFile,
		BackingFormat:   h.BackingFormat,
		HasDataFile:     im.geo.DataFile,
		DataFile:        h.DataFile,
		DataFileRaw:     h.HasAutoclear(layout.AutoclearRawData),
		Incompatible:    h.Incompatible,
		Compatible:      h.Compatible,
		Autoclear:       h.Autoclear,
		Snapshots:       im.Snapshots(),
	}
	if h.Version == 2 {
		info.Compat = "0.10"
	}
	var err error
	if info.Bitmaps, err = im.readBitmaps(ctx, &h); err != nil {
		return nil, err
	}
	if h.CryptMethod != layout.CryptNone {
		info.Encryption = &EncryptionInfo{Method: h.CryptMethod}
		if h.CryptMethod == layout.CryptLUKS {
			if info.Encryption.LUKS, err = im.readLUKS(ctx, &h); err != nil {
				return nil, err
			}
		}
	}
	return info, nil
}

// readBitmaps reads and validates the bitmap directory, if the image has one that is valid.
func (im *Image) readBitmaps(ctx context.Context, h *layout.Header) ([]layout.BitmapDirEntry, error) {
	const op = "read bitmap directory"
	if h.Bitmaps == nil || h.Version < 3 || !h.HasAutoclear(layout.AutoclearBitmaps) {
		return nil, nil
	}
	x := h.Bitmaps
	if end, ok := layout.RangeEnd(x.DirectoryOffset, x.DirectorySize); !ok || int64(end) > im.file.Size() {
		return nil, im.corrupt(op, x.DirectoryOffset, "%d bytes do not fit into the file of %d bytes", x.DirectorySize, im.file.Size())
	}
	dir, err := decodeBitmapDirectory(ctx, im.file, x)
	for i := 0; err == nil && i < len(dir); i++ {
		err = dir[i].Validate(im.geo, h.VirtualSize(), x.DirectoryOffset)
	}
	if err != nil {
		return nil, wrapLayout(op, im.path, err)
	}
	return dir, nil
}

// decodeBitmapDirectory reads the directory entry by entry, so that memory
// follows what the entries really hold, not the length that the header claims.
func decodeBitmapDirectory(ctx context.Context, file *block.Device, x *layout.BitmapsExtension) ([]layout.BitmapDirEntry, error) {
	r := bufio.NewReaderSize(io.LimitReader(&contextReader{ctx: ctx, dev: file, off: int64(x.DirectoryOffset)}, x.DirectorySize), 64<<10)
	d := layout.BitmapDirDecoder{At: x.DirectoryOffset}
	var dir []layout.BitmapDirEntry
	for range x.Count {
		fixed, err := r.Peek(layout.BitmapDirFixed)
		if err != nil && err != io.EOF {
			return nil, err
		}
		b := make([]byte, d.Need(fixed))
		n, err := io.ReadFull(r, b)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		e, err := d.Decode(b[:n])
		if err != nil {
			return nil, err
		}
		dir = append(dir, e)
	}
	return dir, d.Finish(x.DirectorySize)
}

// readLUKS reads the encryption header.
func (im *Image) readLUKS(ctx context.Context, h *layout.Header) (*layout.LUKS, error) {
	const op = "read encryption header"
	n := int64(layout.LUKSHeaderSize)
	if h.Crypto.Length < n || int64(h.Crypto.Offset) > im.file.Size()-n {
		return nil, im.corrupt(op, h.Crypto.Offset, "%d bytes do not hold a LUKS header within the file", h.Crypto.Length)
	}
	b := make([]byte, n)
	if err := im.file.Read(ctx, b, int64(h.Crypto.Offset)); err != nil {
		return nil, err
	}
	l, err := layout.ParseLUKS(b, h.Crypto.Offset)
	if err != nil {
		return nil, wrapLayout(op, im.path, err)
	}
	return l, nil
}
