// Package inspect shows what an image file holds, entry by entry, however broken it is: header, extensions, tables,
// refcounts, snapshots, bitmaps, and what of it refers to other files or is out of the ordinary.
//
// It reads the one device it is given and nothing else: no backing file, no data file, no name is ever opened. Unlike
// the engine it goes on after an error where that is possible, and says what was wrong. Work and memory are bounded by
// what the file holds: tables are read in pieces of at most 1 MiB, holes are skipped.
//
// What may enter: decoding and judging single structures. What may not: checking them against each other
// (qcow2/check), output (cli).
package inspect

import (
	"context"
	"errors"
	"fmt"

	"byre/block"
	"byre/qcow2/layout"
)

// File is an image file that is looked at.
type File struct {
	dev      *block.Device
	cluster0 []byte

	// Header has whatever of the header could be decoded; nil if not even its fixed fields can be.
	Header *layout.Header
	// Valid: an ordinary open would accept header and extensions.
	Valid bool
	// Problems say what contradicts the format in header and extensions, in the order found.
	Problems []string
	// Extensions are the header extensions as stored, in order.
	Extensions []Extension
}

// Extension is one header extension.
type Extension struct {
	Type   uint32
	Offset int64 // of its data
	Data   []byte
}

// Open reads cluster 0 of dev, which stays the caller's. The error is for a device that cannot be read or does not
// begin like a qcow2 image; everything else is in Problems.
func Open(ctx context.Context, dev *block.Device) (*File, error) {
	f := &File{dev: dev}
	first := make([]byte, min(512, dev.Size()))
	if err := read(ctx, dev, first, 0); err != nil {
		return nil, err
	}
	n, err := layout.Cluster0Size(first)
	var le *layout.Error
	if errors.As(err, &le) && le.Kind == layout.NotQcow2 {
		return nil, block.Errorf(block.KindInvalid, "inspect", dev.Path(), 0, "not a qcow2 image")
	}
	if err != nil {
		f.problem("%v", err)
		f.cluster0 = first
		return f, nil
	}
	f.cluster0 = make([]byte, min(int64(n), dev.Size()))
	if err := read(ctx, dev, f.cluster0, 0); err != nil {
		return nil, err
	}
	f.decode()
	return f, nil
}

func read(ctx context.Context, dev *block.Device, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	return dev.Read(ctx, p, off)
}

func (f *File) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

// decode parses strictly if it can, and otherwise takes what there is.
func (f *File) decode() {
	h, err := layout.ParseHeader(f.cluster0, layout.Strict)
	f.Valid = err == nil
	if err != nil {
		f.problem("%v", err)
		h, err = layout.ParseHeader(f.cluster0, layout.CheckMode)
	}
	if err != nil {
		h, _ = layout.DecodeFixed(f.cluster0)
	}
	f.Header = h
	if h == nil {
		return
	}
	f.walkExtensions()
	if h.BackingFile == "" && h.BackingFileOffset > 0 {
		h.BackingFile = f.bytesAt(int64(h.BackingFileOffset), int64(h.BackingFileSize))
	}
	if int64(h.ClusterSize()) > int64(len(f.cluster0)) {
		f.problem("the file ends inside the header cluster")
	}
	if f.Valid {
		if err := h.OverlapError(); err != nil {
			f.problem("%v", err)
		}
	}
}

// bytesAt is what cluster 0 has of a range, as text.
func (f *File) bytesAt(off, n int64) string {
	size := int64(len(f.cluster0))
	if off < 0 || off >= size || n <= 0 {
		return ""
	}
	return string(f.cluster0[off:min(size, off+min(n, size))])
}

// walkExtensions lists the extensions and, where strict parsing failed, takes the names out of them.
func (f *File) walkExtensions() {
	h := f.Header
	end := int64(len(f.cluster0))
	if o := int64(h.BackingFileOffset); o > 0 && o < end {
		end = o
	}
	seen := map[uint32]bool{}
	for at := int64(h.HeaderLength); at+8 <= end; {
		typ := uint32(layout.Word(f.cluster0[at:], 0) >> 32)
		n := int64(uint32(layout.Word(f.cluster0[at:], 0)))
		at += 8
		if typ == layout.ExtEnd {
			return
		}
		if n > end-at {
			f.problem("header extension %#x at %#x: %d bytes do not fit into the %d that are left", typ, at-8, n, end-at)
			return
		}
		if seen[typ] {
			f.problem("header extension %#x at %#x: there is one of this type already", typ, at-8)
		}
		seen[typ] = true
		e := Extension{Type: typ, Offset: at, Data: f.cluster0[at : at+n]}
		f.Extensions = append(f.Extensions, e)
		switch {
		case typ == layout.ExtBackingFormat && h.BackingFormat == "":
			h.BackingFormat = string(e.Data)
		case typ == layout.ExtDataFile && h.DataFile == "":
			h.DataFile = string(e.Data)
		}
		at += (n + 7) &^ 7
	}
}

// usable tells whether the header's geometry can be used to read tables.
func (f *File) usable() error {
	h := f.Header
	if h == nil {
		return block.Errorf(block.KindCorrupt, "inspect", f.dev.Path(), 0, "the header cannot be decoded")
	}
	if err := h.Geometry().Validate(); err != nil {
		return &block.Error{Kind: block.KindCorrupt, Op: "inspect", Path: f.dev.Path(), Offset: 0, Err: err}
	}
	return nil
}

// Device is the device that is looked at.
func (f *File) Device() *block.Device { return f.dev }

// ExtensionName is what an extension type is called, "" if it is unknown.
func ExtensionName(typ uint32) string {
	switch typ {
	case layout.ExtBackingFormat:
		return "backing format"
	case layout.ExtFeatureNames:
		return "feature names"
	case layout.ExtBitmaps:
		return "bitmaps"
	case layout.ExtCrypto:
		return "encryption header"
	case layout.ExtDataFile:
		return "data file"
	}
	return ""
}
