package inspect

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"byre/qcow2/layout"
)

// Reference is another file that the image asks for.
type Reference struct {
	Kind   string // "backing file", "data file"
	Name   string // as stored
	Format string // as stored, "" if none
	Traits []string
}

// Safety is what a program should know before it opens an image of a stranger.
type Safety struct {
	References   []Reference
	Incompatible []string // names of feature bits that are set
	Compatible   []string
	Autoclear    []string
	Oddities     []string // what is wrong, or rarely seen
}

// Safety judges the image by its metadata alone. No table of more than the snapshot table and the bitmap directory is
// walked: contradictions between tables are check's to find.
func (f *File) Safety(ctx context.Context) *Safety {
	s := &Safety{Oddities: append([]string{}, f.Problems...)}
	h := f.Header
	if h == nil {
		return s
	}
	f.references(s)
	f.features(s)
	f.oddHeader(s)
	f.oddExtensions(s)
	if f.usable() == nil {
		f.oddTables(s)
		f.oddSnapshots(ctx, s)
		f.oddBitmaps(ctx, s)
		f.oddEncryption(ctx, s)
	}
	return s
}

func (s *Safety) odd(format string, args ...any) {
	s.Oddities = append(s.Oddities, fmt.Sprintf(format, args...))
}

func (f *File) references(s *Safety) {
	h := f.Header
	if h.BackingFile != "" || h.BackingFileOffset != 0 {
		r := Reference{Kind: "backing file", Name: h.BackingFile, Format: h.BackingFormat, Traits: nameTraits(h.BackingFile, true)}
		if h.BackingFormat == "" {
			r.Traits = append(r.Traits, "no format recorded: would be probed")
		}
		s.References = append(s.References, r)
	}
	if h.HasIncompatible(layout.IncompatDataFile) || h.DataFile != "" {
		r := Reference{Kind: "data file", Name: h.DataFile, Traits: nameTraits(h.DataFile, false)}
		switch {
		case !h.HasIncompatible(layout.IncompatDataFile):
			r.Traits = append(r.Traits, "named, but the feature bit is not set")
		case h.DataFile == "":
			r.Traits = append(r.Traits, "not named: has to be given when the image is opened")
		}
		s.References = append(s.References, r)
	}
}

// nameTraits says what is special about a name. parsed names may be protocols or option trees.
func nameTraits(name string, parsed bool) (out []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	i := strings.IndexAny(name, ":/")
	protocol := ""
	if parsed && i > 0 && name[i] == ':' {
		protocol = name[:i]
	}
	add(protocol == "json", "an option tree, which can name any driver and file")
	add(protocol != "" && protocol != "json" && protocol != "file", "protocol %s", protocol)
	path := strings.TrimPrefix(name, "file:")
	add(strings.HasPrefix(path, "/"), "absolute path")
	for _, dir := range []string{"/dev/", "/proc/", "/sys/", "/etc/", "/run/", "/var/run/"} {
		add(strings.HasPrefix(path, dir), "lies in the system folder %s", dir)
	}
	add(protocol == "" && strings.Contains("/"+path+"/", "/../"), "leaves the folder of the image")
	add(strings.ContainsFunc(name, unicode.IsControl), "has control characters")
	add(!utf8.ValidString(name), "is no valid UTF-8")
	add(len(name) > layout.MaxBackingName, "longer than %d bytes", layout.MaxBackingName)
	return out
}

func (f *File) features(s *Safety) {
	h := f.Header
	s.Incompatible = h.BitNames(layout.FeatureIncompatible, h.Incompatible)
	s.Compatible = h.BitNames(layout.FeatureCompatible, h.Compatible)
	s.Autoclear = h.BitNames(layout.FeatureAutoclear, h.Autoclear)
	for _, x := range []struct {
		kind       string
		set, known uint64
		means      string
	}{
		{"incompatible", h.Incompatible, layout.IncompatKnown, "the image cannot be opened"},
		{"compatible", h.Compatible, layout.CompatKnown, "can be ignored"},
		{"autoclear", h.Autoclear, layout.AutoclearKnown, "is cleared by the first writer"},
	} {
		if u := x.set &^ x.known; u != 0 {
			s.odd("unknown %s feature bits %#x: %s", x.kind, u, x.means)
		}
	}
	if h.HasIncompatible(layout.IncompatDirty) {
		s.odd("dirty: refcounts may be stale and are rebuilt before the first write")
	}
	if h.HasIncompatible(layout.IncompatCorrupt) {
		s.odd("marked corrupt: it is not written before a repair")
	}
	for _, n := range h.FeatureNames {
		for _, std := range layout.StandardFeatureNames(3, 1<<16) {
			if n.Kind == std.Kind && n.Bit == std.Bit && n.Name != std.Name {
				s.odd("the feature name table calls bit %d %q, which is %q", n.Bit, n.Name, std.Name)
			}
		}
	}
}

func (f *File) oddHeader(s *Safety) {
	h := f.Header
	if h.Size%layout.SectorSize != 0 {
		s.odd("the virtual size %d is no multiple of %d", h.Size, layout.SectorSize)
	}
	if h.Version >= 3 && h.HeaderLength != layout.HeaderSizeV3 && h.HeaderLength != layout.HeaderSizeV3Min {
		s.odd("a header of %d bytes, longer than any known: it has fields that are not understood", h.HeaderLength)
	}
	if h.Padding != [7]byte{} {
		s.odd("the padding behind the compression type is not zero")
	}
	for _, b := range h.UnknownFields {
		if b != 0 {
			s.odd("unknown header fields are not zero")
			break
		}
	}
	if h.BackingFileOffset != 0 && h.BackingFileSize == 0 {
		s.odd("the backing file name has no characters")
	}
}

func (f *File) oddExtensions(s *Safety) {
	end := int64(f.Header.HeaderLength)
	for _, e := range f.Extensions {
		if ExtensionName(e.Type) == "" {
			s.odd("unknown header extension %#x of %d bytes", e.Type, len(e.Data))
		}
		end = e.Offset + (int64(len(e.Data))+7)&^7
	}
	// What stands in cluster 0 behind everything that is known belongs to nothing.
	end += 8
	if o := int64(f.Header.BackingFileOffset); o > 0 {
		end = max(end, o+int64(f.Header.BackingFileSize))
	}
	stray := 0
	for i := end; i < int64(len(f.cluster0)); i++ {
		if f.cluster0[i] != 0 {
			stray++
		}
	}
	if stray > 0 {
		s.odd("%d bytes in the header cluster belong to nothing that is known", stray)
	}
}

func (f *File) oddTables(s *Safety) {
	h, g, size := f.Header, f.Header.Geometry(), f.dev.Size()
	for _, t := range []struct {
		name string
		off  layout.HostOffset
		n    int64
	}{
		{"L1 table", h.L1TableOffset, int64(h.L1Size) * 8},
		{"refcount table", h.RefcountTableOffset, int64(h.RefcountTableClusters) << h.ClusterBits},
	} {
		if end, ok := layout.RangeEnd(t.off, t.n); !ok || t.n > 0 && int64(end) > size {
			s.odd("the %s of %d bytes at %v is not wholly in the file of %d bytes", t.name, t.n, t.off, size)
		}
	}
	if f.Valid {
		if need := g.L1Needed(h.VirtualSize()); int64(h.L1Size) > need && h.NbSnapshots == 0 {
			s.odd("the L1 table has %d entries more than the virtual size needs", int64(h.L1Size)-need)
		}
	}
	if v := h.VirtualSize(); size > 0 && v/size >= 1<<20 {
		s.odd("the virtual size is %d times the size of the file", v/size)
	}
}

func (f *File) oddSnapshots(ctx context.Context, s *Safety) {
	h := f.Header
	for r, err := range f.Snapshots(ctx) {
		if err != nil {
			s.odd("snapshot table: %v", err)
			return
		}
		for _, p := range r.Problems {
			s.odd("snapshot %q: %s", r.Name, p)
		}
		if r.HasDiskSize() && r.DiskSize != uint64(h.VirtualSize()) {
			s.odd("snapshot %q has a disk of %d bytes, not of the image's %d", r.Name, r.DiskSize, h.VirtualSize())
		}
		if r.VMStateSize > 0 {
			s.odd("snapshot %q holds %d bytes of the state of a virtual machine", r.Name, r.VMStateSize)
		}
		if len(r.UnknownExtra) > 0 {
			s.odd("snapshot %q has %d bytes of extra data that are not understood", r.Name, len(r.UnknownExtra))
		}
	}
}

func (f *File) oddBitmaps(ctx context.Context, s *Safety) {
	h := f.Header
	if h.Bitmaps == nil {
		if h.HasAutoclear(layout.AutoclearBitmaps) {
			s.odd("the bitmaps feature bit is set, but there are no bitmaps")
		}
		return
	}
	if !h.HasAutoclear(layout.AutoclearBitmaps) {
		s.odd("there are bitmaps, but their feature bit says that they are not valid")
	}
	dir, err := f.Bitmaps(ctx)
	if err != nil {
		s.odd("bitmap directory: %v", err)
	}
	for i := range dir {
		b := &dir[i]
		if err := b.Validate(h.Geometry(), h.VirtualSize(), h.Bitmaps.DirectoryOffset); err != nil {
			s.odd("bitmap %q: %v", b.Name, err)
		}
		if b.InUse() {
			s.odd("bitmap %q is in use, or was when its user was killed", b.Name)
		}
	}
}

func (f *File) oddEncryption(ctx context.Context, s *Safety) {
	switch f.Header.CryptMethod {
	case layout.CryptAES:
		s.odd("encrypted with the legacy AES method, which protects little")
	case layout.CryptLUKS:
		if _, err := f.LUKS(ctx); err != nil {
			s.odd("encryption header: %v", err)
		}
	}
}
