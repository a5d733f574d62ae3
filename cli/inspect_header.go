package cli

import (
	"bufio"
	"fmt"

	"byre/image"
	"byre/qcow2/inspect"
	"byre/qcow2/layout"
)

// headerFields shows header, extensions, snapshots, bitmaps and encryption.
func (o *options) headerFields(f *inspect.File) image.Fields {
	out := image.Fields{{Name: "valid", Value: f.Valid}}
	if h := f.Header; h != nil {
		out = append(out, image.Field{Name: "header", Value: fixedFields(h)},
			image.Field{Name: "features", Value: featureFields(h)},
			image.Field{Name: "extensions", Value: extensionFields(f)})
		if h.BackingFileOffset != 0 || h.BackingFile != "" {
			out = append(out, image.Field{Name: "backing-file", Value: h.BackingFile})
		}
		out = append(out, o.listFields(f)...)
	}
	return append(out, image.Field{Name: "problems", Value: texts(f.Problems)})
}

func fixedFields(h *layout.Header) image.Fields {
	num := func(name string, v uint64) image.Field { return image.Field{Name: name, Value: hugeNumber(v)} }
	off := func(name string, v layout.HostOffset) image.Field {
		return image.Field{Name: name, Value: hexOf(int64(v))}
	}
	out := image.Fields{
		num("version", uint64(h.Version)),
		off("backing-file-offset", h.BackingFileOffset),
		num("backing-file-size", uint64(h.BackingFileSize)),
		num("cluster-bits", uint64(h.ClusterBits)),
		num("size", h.Size),
		num("crypt-method", uint64(h.CryptMethod)),
		num("l1-size", uint64(h.L1Size)),
		off("l1-table-offset", h.L1TableOffset),
		off("refcount-table-offset", h.RefcountTableOffset),
		num("refcount-table-clusters", uint64(h.RefcountTableClusters)),
		num("nb-snapshots", uint64(h.NbSnapshots)),
		off("snapshots-offset", h.SnapshotsOffset),
	}
	if h.Version < 3 {
		return out
	}
	out = append(out,
		image.Field{Name: "incompatible-features", Value: hexOf(int64(h.Incompatible))},
		image.Field{Name: "compatible-features", Value: hexOf(int64(h.Compatible))},
		image.Field{Name: "autoclear-features", Value: hexOf(int64(h.Autoclear))},
		num("refcount-order", uint64(h.RefcountOrder)),
		num("header-length", uint64(h.HeaderLength)))
	if h.HeaderLength > layout.HeaderSizeV3Min {
		out = append(out, num("compression-type", uint64(h.CompressionType)))
	}
	if h.Padding != [7]byte{} {
		out = append(out, image.Field{Name: "padding", Value: fmt.Sprintf("%x", h.Padding)})
	}
	if len(h.UnknownFields) > 0 {
		out = append(out, image.Field{Name: "unknown-fields", Value: hexBytes(h.UnknownFields)})
	}
	return out
}

func featureFields(h *layout.Header) image.Fields {
	return image.Fields{
		{Name: "incompatible", Value: texts(h.BitNames(layout.FeatureIncompatible, h.Incompatible))},
		{Name: "compatible", Value: texts(h.BitNames(layout.FeatureCompatible, h.Compatible))},
		{Name: "autoclear", Value: texts(h.BitNames(layout.FeatureAutoclear, h.Autoclear))},
	}
}

// texts makes a list that is never null.
func texts(list []string) []any {
	out := []any{}
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// hexBytes shows bytes, the first 64 of them.
func hexBytes(b []byte) string {
	if len(b) > 64 {
		return fmt.Sprintf("%x… (%d bytes)", b[:64], len(b))
	}
	return fmt.Sprintf("%x", b)
}

func extensionFields(f *inspect.File) []any {
	out := []any{}
	for _, e := range f.Extensions {
		x := image.Fields{{Name: "type", Value: hexOf(int64(e.Type))}}
		name := inspect.ExtensionName(e.Type)
		if name != "" {
			x = append(x, image.Field{Name: "name", Value: name})
		}
		x = append(x, image.Field{Name: "offset", Value: hexOf(e.Offset)}, image.Field{Name: "length", Value: int64(len(e.Data))})
		switch e.Type {
		case layout.ExtBackingFormat, layout.ExtDataFile:
			x = append(x, image.Field{Name: "value", Value: string(e.Data)})
		case layout.ExtFeatureNames:
		default:
			x = append(x, image.Field{Name: "bytes", Value: hexBytes(e.Data)})
		}
		out = append(out, x)
	}
	return out
}

// listFields shows snapshots, bitmaps and the encryption header, each with what is wrong with it.
func (o *options) listFields(f *inspect.File) (out image.Fields) {
	ctx := o.c.Context
	snapshots := []any{}
	for s, err := range f.Snapshots(ctx) {
		if err != nil {
			snapshots = append(snapshots, image.Fields{{Name: "problem", Value: err.Error()}})
			break
		}
		x := image.Fields{{Name: "id", Value: s.ID}, {Name: "name", Value: s.Name}, {Name: "offset", Value: hexOf(int64(s.Offset))},
			{Name: "l1-table-offset", Value: hexOf(int64(s.L1TableOffset))}, {Name: "l1-size", Value: int64(s.L1Size)},
			{Name: "date-sec", Value: int64(s.DateSec)}, {Name: "date-nsec", Value: int64(s.DateNsec)},
			{Name: "vm-clock-nsec", Value: hugeNumber(s.VMClockNsec)}, {Name: "vm-state-size", Value: hugeNumber(s.VMStateSize)}}
		if s.HasDiskSize() {
			x = append(x, image.Field{Name: "disk-size", Value: hugeNumber(s.DiskSize)})
		}
		if s.ICount != layout.NoICount {
			x = append(x, image.Field{Name: "icount", Value: hugeNumber(s.ICount)})
		}
		x = append(x, image.Field{Name: "extra-size", Value: int64(s.ExtraSize)})
		for _, p := range s.Problems {
			x = addProblem(x, p)
		}
		snapshots = append(snapshots, x)
	}
	if len(snapshots) > 0 {
		out = append(out, image.Field{Name: "snapshots", Value: snapshots})
	}
	return append(append(out, o.bitmapFields(f)...), o.luksFields(f)...)
}

func (o *options) bitmapFields(f *inspect.File) image.Fields {
	dir, err := f.Bitmaps(o.c.Context)
	if f.Header.Bitmaps == nil {
		return nil
	}
	bitmaps := []any{}
	for i := range dir {
		b := &dir[i]
		x := image.Fields{{Name: "name", Value: b.Name}, {Name: "table-offset", Value: hexOf(int64(b.TableOffset))},
			{Name: "table-size", Value: int64(b.TableSize)}, {Name: "flags", Value: hexOf(int64(b.Flags))},
			{Name: "type", Value: int64(b.Type)}, {Name: "granularity-bits", Value: int64(b.GranularityBits)}}
		if len(b.Extra) > 0 {
			x = append(x, image.Field{Name: "extra", Value: hexBytes(b.Extra)})
		}
		if err := b.Validate(f.Header.Geometry(), f.Header.VirtualSize(), f.Header.Bitmaps.DirectoryOffset); err != nil {
			x = addProblem(x, err.Error())
		}
		bitmaps = append(bitmaps, x)
	}
	if err != nil {
		bitmaps = append(bitmaps, image.Fields{{Name: "problem", Value: err.Error()}})
	}
	return image.Fields{{Name: "bitmaps", Value: bitmaps}}
}

func (o *options) luksFields(f *inspect.File) image.Fields {
	l, err := f.LUKS(o.c.Context)
	switch {
	case err != nil && f.Header.CryptMethod == layout.CryptLUKS:
		return image.Fields{{Name: "luks", Value: image.Fields{{Name: "problem", Value: err.Error()}}}}
	case l == nil:
		return nil
	}
	return image.Fields{{Name: "luks", Value: image.LUKSFields(l)}}
}

// safety prints what a program should know before it opens an image of a stranger.
func (o *options) safety(w *bufio.Writer, st *image.Image) error {
	format := o.format
	if format == "" {
		front := make([]byte, min(image.ProbeSize, st.Size()))
		if n, err := st.ReadAt(front, 0); n < len(front) {
			return err
		}
		format = image.Probe(front, st.Filename())
	}
	out := image.Fields{{Name: "filename", Value: st.Filename()}, {Name: "format", Value: format}}
	var err error
	switch format {
	case "qcow2":
		out, err = o.safetyQCOW2(out, st)
	case "raw":
		out = append(out, image.Field{Name: "examined", Value: true}, image.Field{Name: "self-contained", Value: true},
			image.Field{Name: "references", Value: []any{}}, image.Field{Name: "oddities", Value: []any{}})
	default:
		out = append(out, image.Field{Name: "examined", Value: false}, image.Field{Name: "self-contained", Value: false},
			image.Field{Name: "references", Value: []any{}},
			image.Field{Name: "oddities", Value: texts([]string{"images of format " + format + " are not examined: they may refer to other files"})})
	}
	if err != nil {
		return err
	}
	if o.json {
		writeJSON(w, out, 0)
		w.WriteByte('\n')
		return nil
	}
	writeQuoted(w, out, 0)
	return nil
}

func (o *options) safetyQCOW2(out image.Fields, st *image.Image) (image.Fields, error) {
	f, err := inspect.Open(o.c.Context, st.Device())
	if err != nil {
		return nil, err
	}
	s := f.Safety(o.c.Context)
	refs := []any{}
	for _, r := range s.References {
		x := image.Fields{{Name: "kind", Value: r.Kind}, {Name: "name", Value: r.Name}}
		if r.Format != "" {
			x = append(x, image.Field{Name: "format", Value: r.Format})
		}
		refs = append(refs, append(x, image.Field{Name: "traits", Value: texts(r.Traits)}))
	}
	out = append(out, image.Field{Name: "examined", Value: f.Header != nil},
		image.Field{Name: "valid", Value: f.Valid},
		image.Field{Name: "self-contained", Value: f.Header != nil && len(refs) == 0},
		image.Field{Name: "references", Value: refs})
	if h := f.Header; h != nil {
		out = append(out, image.Field{Name: "version", Value: int64(h.Version)}, image.Field{Name: "virtual-size", Value: hugeNumber(h.Size)},
			image.Field{Name: "encryption", Value: encryptionName(h.CryptMethod)}, image.Field{Name: "snapshots", Value: int64(h.NbSnapshots)},
			image.Field{Name: "features", Value: image.Fields{{Name: "incompatible", Value: texts(s.Incompatible)},
				{Name: "compatible", Value: texts(s.Compatible)}, {Name: "autoclear", Value: texts(s.Autoclear)}}})
	}
	return append(out, image.Field{Name: "oddities", Value: texts(s.Oddities)}), nil
}

func encryptionName(method uint32) string {
	switch method {
	case layout.CryptNone:
		return "none"
	case layout.CryptAES:
		return "aes"
	case layout.CryptLUKS:
		return "luks"
	}
	return fmt.Sprintf("unknown method %d", method)
}
