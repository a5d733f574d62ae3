package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"byre/block"
	"byre/image"
	"byre/job"
)

func init() {
	register(verb{
		name: "convert", summary: "copy one or several images into a new one", operand: "FILE… TARGET",
		common: optObject | optImageOpts | optFormat | optForceShare | optCache | optSrcCache | optQuiet | optProgress | optAIO | optPolicies,
		max:    -1,
		opts: []opt{
			{short: 'O', long: "output-format", arg: needArg, name: "FMT", help: "format of TARGET; default: raw"},
			{short: 'o', long: "options", arg: needArg, name: "OPTIONS", help: "creation options of TARGET, name=value,…; 'help' lists them"},
			{short: 'B', long: "backing", arg: needArg, name: "FILE", help: "backing file of TARGET; what FILE does not hold itself is not copied"},
			{short: 'F', long: "backing-format", arg: needArg, name: "FMT", help: "format of the backing file"},
			{short: 'c', long: "compress", help: "compress TARGET"},
			{short: 'n', long: "no-create", help: "write into an existing TARGET"},
			{long: "target-is-zero", help: "with -n: TARGET reads as zeros now"},
			{long: "target-image-opts", help: "with -n: TARGET is an option string"},
			{short: 'l', long: "snapshot", arg: needArg, name: "SNAPSHOT", help: "copy an internal snapshot: ID_OR_NAME, or snapshot.id=ID,snapshot.name=NAME"},
			{short: 'S', long: "sparse-size", arg: needArg, name: "SIZE", help: "leave out runs of zeros of at least SIZE (default 4k); 0: allocate everything"},
			{short: 'm', long: "parallel", arg: needArg, name: "COUNT", help: "work on 1 to 16 pieces at once; default: by the number of processors"},
			{short: 'W', long: "out-of-order", help: "write in any order (raw targets always are)"},
			{short: 'C', long: "copy-range", help: "let the host copy where it can, without a look for zeros"},
			{short: 'r', long: "rate-limit", arg: needArg, name: "SIZE", help: "copy at most SIZE bytes a second"},
			{long: "salvage", help: "go on after read errors; what is unreadable becomes zeros"},
			{long: "bitmaps", help: "copy the persistent bitmaps too (qcow2 targets)"},
			{long: "skip-broken-bitmaps", help: "with --bitmaps: leave out inconsistent ones"},
		},
		note: `Several FILEs are copied one behind the other. The default cache mode of TARGET is unsafe (nothing is flushed);
with any other everything is flushed once, at the end. A TARGET that was made is removed again if the conversion
fails or is interrupted.`,
		run: runConvert,
	})
}

// conversion is a run of convert.
type conversion struct {
	c   *call
	o   *options
	job job.ConvertOptions

	outFormat string // "" with --target-image-opts
	sources   []*image.Image
	target    string
	create    map[string]string // creation options
}

func runConvert(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	v := &conversion{c: c, o: o}
	if help, err := v.decode(); err != nil {
		return c.errorf("%v", err)
	} else if help {
		return c.printCreateOptions(v.outFormat)
	}
	if len(o.args) < 2 {
		return c.usageErrorf("Expecting %s", c.verb.operand)
	}
	v.target = o.args[len(o.args)-1]
	defer v.closeSources()
	if err := v.openSources(); err != nil {
		return c.errorf("%v", err)
	}
	if err := v.run(); err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

// decode checks the options that the common parser does not know. help says that the creation options were asked for.
func (v *conversion) decode() (help bool, err error) {
	o := v.o
	v.outFormat = o.value("output-format", "raw")
	if o.has("target-image-opts") && !o.has("output-format") {
		v.outFormat = ""
	}
	if v.create, help, err = parseCreateOptions(o.values("options")); err != nil || help {
		return help, err
	}
	if err := v.decodeNumbers(); err != nil {
		return false, err
	}
	v.job.Compress = o.has("compress")
	v.job.TargetIsZero = o.has("target-is-zero")
	if o.has("copy-range") {
		v.job.Offload = job.OffloadCopy
	} else if o.has("sparse-size") {
		v.job.Offload = job.OffloadNever
	}
	if o.has("salvage") {
		v.job.Salvage = func(off, n int64, err error) {
			fmt.Fprintf(v.c.Stderr, "%s: warning: %d bytes at offset %d are unreadable and become zeros: %v\n", v.c.prog, n, off, err)
		}
	}
	return false, v.contradictions()
}

func (v *conversion) decodeNumbers() error {
	o := v.o
	v.job.Sparse = 4096
	if o.has("sparse-size") {
		n, err := image.ParseSize(o.value("sparse-size", ""))
		if err != nil || n < 0 || n%512 != 0 || n > maxSparse {
			return fmt.Errorf("invalid sparse size '%s': a multiple of 512 up to %d, or 0 to allocate everything", o.value("sparse-size", ""), int64(maxSparse))
		}
		v.job.Sparse = n
	}
	if o.has("parallel") {
		n, err := strconv.Atoi(o.value("parallel", ""))
		if err != nil || n < 1 || n > 16 {
			return fmt.Errorf("invalid number of pieces '%s' for -m: it can be 1 to 16", o.value("parallel", ""))
		}
		v.job.Workers = n
	}
	if o.has("rate-limit") {
		n, err := image.ParseSize(o.value("rate-limit", ""))
		if err != nil || n < 0 {
			return fmt.Errorf("invalid rate limit '%s': bytes a second, with a suffix k, M, G, T, P or E for powers of 1024", o.value("rate-limit", ""))
		}
		v.job.Rate = n
	}
	return nil
}

// maxSparse is the longest run of zeros that can be asked for.
const maxSparse = 16 << 20

// backing tells whether the target is to have a backing file.
func (v *conversion) backing() bool { return v.o.has("backing") || v.create["backing_file"] != "" }

// contradictions finds options that do not go together.
func (v *conversion) contradictions() error {
	o := v.o
	backing := v.backing()
	for _, rule := range []struct {
		wrong bool
		msg   string
	}{
		{o.has("copy-range") && o.has("compress"), "-C (copy-range) does not go with -c (compress): the host cannot compress"},
		{o.has("copy-range") && o.has("sparse-size"), "-C (copy-range) does not go with -S (sparse-size): the host does not look for zeros"},
		{o.has("target-image-opts") && !o.has("no-create"), "--target-image-opts goes with -n only"},
		{o.has("target-is-zero") && !o.has("no-create"), "--target-is-zero goes with -n only"},
		{o.has("no-create") && len(v.create) > 0, "-o has no effect with -n, as nothing is created"},
		{backing && len(o.args) > 2, "a target with a backing file goes with a single source only"},
		{o.has("backing-format") && !backing, "-F names the format of a backing file (-B), and there is none"},
		{o.has("snapshot") && len(o.args) > 2, "a snapshot (-l) goes with a single source only"},
		{o.has("skip-broken-bitmaps") && !o.has("bitmaps"), "--skip-broken-bitmaps goes with --bitmaps only"},
		{o.has("bitmaps") && len(o.args) > 2, "--bitmaps goes with a single source only"},
		{o.has("bitmaps") && v.outFormat == "raw", "--bitmaps needs a qcow2 target: raw images hold no bitmaps"},
		{o.has("compress") && v.outFormat == "raw", "-c (compress) needs a qcow2 target: raw images hold no compressed data"},
		{backing && v.outFormat == "raw", "-B (backing) needs a qcow2 target: raw images have no backing file"},
	} {
		if rule.wrong {
			return errors.New(rule.msg)
		}
	}
	return nil
}

// openSources opens all inputs.
func (v *conversion) openSources() error {
	for _, name := range v.o.args[:len(v.o.args)-1] {
		opts := []image.Option{image.WithCache(v.o.cacheMode(v.o.srcCache, image.CacheWriteback))}
		if v.o.has("snapshot") {
			id, err := v.o.snapshotID(name, v.o.value("snapshot", ""))
			if err != nil {
				return err
			}
			opts = append(opts, image.WithSnapshot(id))
		}
		im, err := v.o.open(name, opts...)
		if err != nil {
			return fmt.Errorf("Could not open '%s': %s", name, reason(err, name))
		}
		v.sources = append(v.sources, im)
	}
	return nil
}

func (v *conversion) closeSources() {
	for _, im := range v.sources {
		im.Close()
	}
}

// devices are the guest disks of the sources, and their size together.
func (v *conversion) devices() (devs []*block.Device, size int64) {
	for _, im := range v.sources {
		devs = append(devs, im.Device())
		size += im.Size()
	}
	return devs, size
}

// snapshotID finds out which snapshot a -l parameter means: an id or name as it is, or the one whose id and name are
// the ones given.
func (o *options) snapshotID(file, param string) (string, error) {
	if !strings.HasPrefix(param, "snapshot.") {
		return param, nil
	}
	t, err := image.ParseOptionString(param)
	if err != nil {
		return "", err
	}
	id, name := t["snapshot.id"], t["snapshot.name"]
	for k := range t {
		if k != "snapshot.id" && k != "snapshot.name" {
			return "", fmt.Errorf("-l (snapshot) has no parameter '%s'", k)
		}
	}
	im, err := o.open(file, image.MetadataOnly())
	if err != nil {
		return "", fmt.Errorf("Could not open '%s': %s", file, reason(err, file))
	}
	defer im.Close()
	for _, s := range im.Snapshots() {
		if (id == nil || id == s.ID) && (name == nil || name == s.Name) {
			return s.ID, nil
		}
	}
	return "", fmt.Errorf("'%s' has no snapshot with %s", file, strings.ReplaceAll(param, "snapshot.", ""))
}

// run makes the target, copies, and takes the target away again if that fails.
func (v *conversion) run() error {
	t, err := v.prepareTarget()
	if err != nil {
		return err
	}
	p := v.c.startProgress(v.o.progress, "convert")
	v.job.Progress, v.job.ByOffset = p.set, v.o.progress == progressNone
	err = v.copy(t)
	if err == nil {
		p.complete()
	}
	p.finish()
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) && v.c.Context.Err() != nil {
		err = errors.New("interrupted")
	}
	return t.abandon(err)
}

// copy fills and closes the target.
func (v *conversion) copy(t *convertTarget) error {
	if err := t.open(); err != nil {
		return err
	}
	devs, size := v.devices()
	err := v.fits(t, size)
	if err == nil {
		v.suit(t)
		t.touched = true
		err = job.Convert(v.c.Context, t.image.Device(), devs, v.job)
	}
	if err == nil {
		err = t.image.Flush(v.c.Context)
	}
	if e := t.image.Close(); err == nil {
		err = e
	}
	return err
}

func (v *conversion) fits(t *convertTarget, size int64) error {
	if have := t.image.Size(); have < size {
		return fmt.Errorf("the target '%s' is smaller than the input: %d bytes, not %d", v.target, have, size)
	}
	return nil
}

// suit chooses what depends on the open target.
func (v *conversion) suit(t *convertTarget) {
	dev := t.image.Device()
	if t.created && dev.Geometry().ZeroInit {
		v.job.TargetIsZero = true
	}
	v.job.InOrder = t.image.Format() != "raw" && !v.o.has("out-of-order")
	if c, ok := dev.Driver().(block.Chained); ok && c.Backing() != nil && v.backing() {
		v.job.KeepBacking, v.job.BackingSize = true, c.Backing().Size()
	}
}
