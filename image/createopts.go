package image

import (
	"slices"
	"strconv"
	"strings"

	"byre/block"
)

// OptKind is the type of a creation option.
type OptKind uint8

const (
	OptString OptKind = iota
	OptSize           // bytes, with suffixes
	OptBool           // on or off
	OptNumber
)

func (k OptKind) String() string {
	return [...]string{"<str>", "<size>", "<bool (on/off)>", "<num>"}[k]
}

// CreateOption describes one option of `create -o`.
type CreateOption struct {
	Name string
	Kind OptKind
	Help string
	def  string // shown by Describe although it was not given
}

// createFormats are the formats that can be created, with their options in the order in which Describe lists them.
var createFormats = map[string][]CreateOption{
	"qcow2": {
		{Name: "encryption", Kind: OptBool, Help: "encrypt with the legacy AES method (same as encrypt.format=aes)"},
		{Name: "encrypt.format", Help: "encryption method: aes, luks"},
		{Name: "encrypt.key-secret", Help: "id of the secret that holds the passphrase"},
		{Name: "encrypt.cipher-alg", Help: "cipher of LUKS"},
		{Name: "encrypt.cipher-mode", Help: "cipher mode of LUKS"},
		{Name: "encrypt.ivgen-alg", Help: "IV generator of LUKS"},
		{Name: "encrypt.ivgen-hash-alg", Help: "hash of the IV generator of LUKS"},
		{Name: "encrypt.hash-alg", Help: "hash of LUKS"},
		{Name: "encrypt.iter-time", Kind: OptNumber, Help: "milliseconds that unlocking a LUKS key slot shall take"},
		{Name: "cluster_size", Kind: OptSize, Help: "unit of allocation, 512 to 2M", def: "65536"},
		{Name: "extended_l2", Kind: OptBool, Help: "clusters with 32 subclusters each", def: "off"},
		{Name: "preallocation", Help: "what to reserve: off, metadata, falloc, full"},
		{Name: "compression_type", Help: "how compressed clusters are stored: zlib, zstd", def: "zlib"},
		{Name: "size", Kind: OptSize, Help: "virtual size"},
		{Name: "compat", Help: "format version: 0.10 (v2) or 1.1 (v3)"},
		{Name: "data_file", Help: "file that holds the data, so that the image holds metadata only"},
		{Name: "data_file_raw", Kind: OptBool, Help: "the data file alone is a valid raw image"},
		{Name: "backing_file", Help: "image that this one starts from"},
		{Name: "backing_fmt", Help: "format of the backing file"},
		{Name: "lazy_refcounts", Kind: OptBool, Help: "postpone refcount updates", def: "off"},
		{Name: "refcount_bits", Kind: OptNumber, Help: "width of a refcount in bits", def: "16"},
		{Name: "nocow", Kind: OptBool, Help: "switch copy-on-write of the host file off (btrfs)"},
		{Name: "extent_size_hint", Kind: OptSize, Help: "allocation unit of the host file (XFS), 0 for none"},
	},
	"raw": {
		{Name: "size", Kind: OptSize, Help: "virtual size"},
		{Name: "nocow", Kind: OptBool, Help: "switch copy-on-write of the host file off (btrfs)"},
		{Name: "preallocation", Help: "what to reserve: off, falloc, full"},
		{Name: "extent_size_hint", Kind: OptSize, Help: "allocation unit of the host file (XFS), 0 for none"},
	},
}

// CreateFormats lists the formats that Create makes.
func CreateFormats() []string { return []string{"qcow2", "raw"} }

// CreateOptionsOf lists the options of a format by name; false if it cannot be created.
func CreateOptionsOf(format string) ([]CreateOption, bool) {
	opts, ok := createFormats[format]
	opts = slices.Clone(opts)
	slices.SortFunc(opts, func(a, b CreateOption) int { return strings.Compare(a.Name, b.Name) })
	return opts, ok
}

// checkOptions normalises the values of creation options ("on", numbers of bytes) and refuses what the format does not
// know.
func checkOptions(format string, given map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range given {
		i := slices.IndexFunc(createFormats[format], func(o CreateOption) bool { return o.Name == k })
		if i < 0 {
			return nil, invalidf("format %s has no creation option %q", format, k)
		}
		norm, err := createFormats[format][i].normalise(v)
		if err != nil {
			return nil, err
		}
		out[k] = norm
	}
	return out, nil
}

func (o *CreateOption) normalise(v string) (string, error) {
	switch o.Kind {
	case OptSize:
		n, err := ParseSize(v)
		if err != nil {
			return "", invalidf("creation option %q wants a size: %w", o.Name, err)
		}
		return strconv.FormatInt(n, 10), nil
	case OptNumber:
		n, err := strconv.ParseUint(v, 0, 63)
		if err != nil {
			return "", invalidf("creation option %q wants a number, not %q", o.Name, v)
		}
		return strconv.FormatUint(n, 10), nil
	case OptBool:
		if v != "on" && v != "off" {
			return "", invalidf("creation option %q wants on or off, not %q", o.Name, v)
		}
	}
	return v, nil
}

func parsePrealloc(v string, allowed ...block.PreallocMode) (block.PreallocMode, error) {
	for _, m := range allowed {
		if v == m.String() {
			return m, nil
		}
	}
	if v == "" {
		return block.PreallocOff, nil
	}
	return 0, invalidf("creation option \"preallocation\" cannot be %q", v)
}
