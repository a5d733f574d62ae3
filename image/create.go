package image

import (
	"context"
	"os"
	"strconv"
	"strings"

	"byre/block"
	"byre/qcow2"
	"byre/qcow2/layout"
	"byre/storage/file"
)

// CreateOptions describe a new image.
type CreateOptions struct {
	Format string // "qcow2" or "raw"
	// Size is the virtual size in bytes, rounded up to whole sectors; -1 takes it from the option "size" or from the
	// backing file.
	Size int64
	// BackingFile is the name to store, BackingFormat its format, which must be named: guessing the format of a raw
	// file again at each open is a way to be deceived by its contents.
	BackingFile, BackingFormat string
	// Options are creation options by name ("cluster_size": "2M"); CreateOptionsOf lists them.
	Options map[string]string
	// Unchecked stores the name of a backing file without opening it; Size must be given then.
	Unchecked bool
	// Progress, if not nil, hears bytes done and the total of a long preallocation.
	Progress func(done, total int64)
}

// Creation is a checked plan of a new image. Nothing has been written yet.
type Creation struct {
	name    string
	path    string // of the host file
	o       CreateOptions
	values  map[string]string // options, normalised
	size    int64
	fileOpt file.Options
}

// Create makes an image. Whatever the file held is lost; a file that did not exist is removed again on failure. The
// result is durable. opts matter for opening the backing file (gate, secrets) and for the new file (cache mode, engine).
func Create(ctx context.Context, name string, o CreateOptions, opts ...Option) error {
	c, err := NewCreation(ctx, name, o, opts...)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// NewCreation checks everything that can be checked without touching the file: options, the backing file, the size.
func NewCreation(ctx context.Context, name string, o CreateOptions, opts ...Option) (*Creation, error) {
	if _, ok := createFormats[o.Format]; !ok {
		if _, known := drivers[o.Format]; known {
			return nil, unsupportedCreate(o.Format)
		}
		return nil, unknownDriver(o.Format, "")
	}
	values, err := checkOptions(o.Format, o.Options)
	if err != nil {
		return nil, err
	}
	c := &Creation{name: name, o: o, values: values, size: o.Size}
	t, err := nameTree(name, true)
	if err != nil {
		return nil, err
	}
	if !isStorageDriver(t["driver"]) || t["filename"] == nil {
		return nil, &block.Error{Kind: block.KindUnsupported, Op: "create", Path: name, Offset: block.NoOffset,
			Msg: "images can be created in files and block devices only"}
	}
	c.path, _ = t["filename"].(string)
	cfg := newConfig(opts)
	c.fileOpt = file.Options{Cache: cfg.cache.Below(), NoLock: cfg.noLock}
	if cfg.aio != "" {
		if c.fileOpt.Engine, err = file.ParseEngine(cfg.aio); err != nil {
			return nil, invalidf("%w", err)
		}
	}
	if err := c.backing(ctx, opts); err != nil {
		return nil, err
	}
	if err := c.decideSize(); err != nil {
		return nil, err
	}
	return c, nil
}

func unsupportedCreate(format string) error {
	return &block.Error{Kind: block.KindUnsupported, Op: "create", Offset: block.NoOffset,
		Msg: "images of format '" + format + "' cannot be created"}
}

// backing merges the two ways to name a backing file and opens it for its size.
func (c *Creation) backing(ctx context.Context, opts []Option) error {
	for _, m := range []struct{ field, key string }{{c.o.BackingFile, "backing_file"}, {c.o.BackingFormat, "backing_fmt"}} {
		if m.field == "" {
			continue
		}
		if c.o.Format == "raw" {
			return invalidf("images of format raw have no backing file")
		}
		if v, twice := c.values[m.key]; twice && v != m.field {
			return invalidf("%s is given twice, as %q and as %q", m.key, v, m.field)
		}
		c.values[m.key] = m.field
	}
	name, format := c.values["backing_file"], c.values["backing_fmt"]
	if name == "" {
		delete(c.values, "backing_file")
		return nil
	}
	full := combine(c.path, name)
	if same(full, c.path) {
		return invalidf("%s cannot be its own backing file", c.path)
	}
	if format == "" {
		return c.missingFormat(ctx, full, opts)
	}
	if _, ok := drivers[format]; !ok {
		return unknownDriver(format, full)
	}
	if c.o.Unchecked {
		return nil
	}
	im, err := Open(ctx, full, append(opts[:len(opts):len(opts)], withBackingRole(format)...)...)
	if err != nil {
		return errOpen(block.KindOf(err), full, "backing file: %w", err)
	}
	defer im.Close()
	if _, given := c.values["size"]; c.size < 0 && !given {
		c.size = im.Size()
	}
	return nil
}

// withBackingRole are the options with which a backing file is looked at, whatever the new image is to be opened with.
func withBackingRole(format string) []Option {
	return []Option{func(c *config) { *c = config{gate: c.gate, secrets: c.secrets, warn: c.warn} }, WithFormat(format)}
}

// missingFormat is the error for a backing file without a format. It says what the format would be, so that the user
// can judge.
func (c *Creation) missingFormat(ctx context.Context, full string, opts []Option) error {
	msg := "a backing file needs its format named (-F, backing_fmt)"
	if !c.o.Unchecked {
		im, err := Open(ctx, full, append(opts[:len(opts):len(opts)], withBackingRole("")...)...)
		if err != nil {
			return errOpen(block.KindOf(err), full, "backing file: %w", err)
		}
		defer im.Close()
		msg += "\nDetected format of " + im.Format() + "."
	}
	return invalidf("%s", msg)
}

// same tells whether two names are one file.
func same(a, b string) bool {
	if a == b {
		return true
	}
	ia, erra := os.Stat(a)
	ib, errb := os.Stat(b)
	return erra == nil && errb == nil && os.SameFile(ia, ib)
}

func (c *Creation) decideSize() error {
	if v, ok := c.values["size"]; ok {
		n, _ := strconv.ParseInt(v, 10, 64)
		if c.o.Size >= 0 && c.o.Size != n {
			return invalidf("the size is given twice, as %d and as %d", c.o.Size, n)
		}
		c.size = n
	}
	if c.size < 0 {
		return invalidf("a new image needs a size")
	}
	c.values["size"] = strconv.FormatInt(c.size, 10)
	return nil
}

// Size is the virtual size that the image will have, before rounding up to whole sectors.
func (c *Creation) Size() int64 { return c.size }

// Describe lists the format and the options that decide, "fmt=qcow2 cluster_size=65536 …", as tools parse it.
func (c *Creation) Describe() string {
	parts := []string{"fmt=" + c.o.Format}
	for _, o := range createFormats[c.o.Format] {
		v, ok := c.values[o.Name]
		if !ok {
			v = o.def
		}
		if ok || v != "" {
			parts = append(parts, o.Name+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

// Run makes the image.
func (c *Creation) Run(ctx context.Context) error {
	hint, _ := strconv.ParseInt(c.values["extent_size_hint"], 10, 64)
	c.fileOpt.ExtentSizeHint = hint
	if c.o.Format == "raw" {
		return c.runRaw(ctx)
	}
	return c.runQCOW2(ctx)
}

func (c *Creation) runRaw(ctx context.Context) error {
	mode, err := parsePrealloc(c.values["preallocation"], block.PreallocOff, block.PreallocFalloc, block.PreallocFull)
	if err != nil {
		return err
	}
	size := c.size
	if size > 1<<63-512 {
		return invalidf("a size of %d bytes is not possible", size)
	}
	f, err := file.Create(ctx, c.path, c.fileOpt, file.CreateOptions{Size: (size + 511) &^ 511, Prealloc: mode,
		NoCOW: c.values["nocow"] == "on", Progress: c.o.Progress})
	if err != nil {
		return err
	}
	if err := f.Flush(ctx); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (c *Creation) runQCOW2(ctx context.Context) error {
	o, err := c.qcow2Options()
	if err != nil {
		return err
	}
	dev, undo, err := c.makeFile(ctx, c.path)
	if err != nil {
		return err
	}
	var undoData func()
	if o.DataFile != "" {
		if o.Data, undoData, err = c.makeFile(ctx, combine(c.path, o.DataFile)); err != nil {
			dev.Close()
			undo()
			return err
		}
	}
	err = qcow2.Create(ctx, dev, o)
	if o.Data != nil {
		if e := o.Data.Close(); err == nil {
			err = e
		}
		if err != nil {
			undoData()
		}
	}
	if e := dev.Close(); err == nil {
		err = e
	}
	if err != nil {
		undo()
	}
	return err
}

// makeFile makes or empties a host file; undo removes one that was not there before.
func (c *Creation) makeFile(ctx context.Context, path string) (dev *block.Device, undo func(), err error) {
	_, statErr := os.Stat(path)
	f, err := file.Create(ctx, path, c.fileOpt, file.CreateOptions{NoCOW: c.values["nocow"] == "on"})
	if err != nil {
		return nil, nil, err
	}
	return block.NewDevice(f), func() {
		if os.IsNotExist(statErr) {
			os.Remove(path)
		}
	}, nil
}

// qcow2Options translates the values.
func (c *Creation) qcow2Options() (o qcow2.CreateOptions, err error) {
	num := func(key string) int64 {
		n, _ := strconv.ParseInt(c.values[key], 10, 64)
		return n
	}
	if c.values["encryption"] == "on" || c.values["encrypt.format"] != "" {
		return o, &block.Error{Kind: block.KindUnsupported, Op: "create", Path: c.path, Offset: block.NoOffset,
			Msg: "encrypted images cannot be created yet"}
	}
	o = qcow2.CreateOptions{
		Size:          c.size,
		ClusterSize:   num("cluster_size"),
		BackingFile:   c.values["backing_file"],
		BackingFormat: c.values["backing_fmt"],
		LazyRefcounts: c.values["lazy_refcounts"] == "on",
		RefcountBits:  int(num("refcount_bits")),
		ExtendedL2:    c.values["extended_l2"] == "on",
		DataFile:      c.values["data_file"],
		DataFileRaw:   c.values["data_file_raw"] == "on",
		Progress:      c.o.Progress,
	}
	if v, ok := c.values["cluster_size"]; ok && v == "0" {
		return o, invalidf("a cluster size of 0 is not possible")
	}
	if v, ok := c.values["refcount_bits"]; ok && v == "0" {
		return o, invalidf("refcounts of 0 bits are not possible")
	}
	if o.Prealloc, err = parsePrealloc(c.values["preallocation"], block.PreallocOff, block.PreallocMetadata,
		block.PreallocFalloc, block.PreallocFull); err != nil {
		return o, err
	}
	switch v := c.values["compat"]; v {
	case "", "1.1", "v3":
		o.Version = 3
	case "0.10", "v2":
		o.Version = 2
	default:
		return o, invalidf("compat %q is neither 0.10 (v2) nor 1.1 (v3)", v)
	}
	switch v := c.values["compression_type"]; v {
	case "", "zlib":
		o.CompressionType = layout.CompressionDeflate
	case "zstd":
		o.CompressionType = layout.CompressionZstd
	default:
		return o, invalidf("compression type %q is neither zlib nor zstd", v)
	}
	return o, nil
}
