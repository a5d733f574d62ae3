package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"byre/block"
	"byre/image"
)

// common says which of the options that many verbs share a verb has. Every verb has -h and --untrusted.
type common uint16

const (
	optFormat     common = 1 << iota // -f
	optImageOpts                     // --image-opts
	optForceShare                    // -U
	optObject                        // --object
	optCache                         // -t, of what the verb writes (or opens)
	optSrcCache                      // -T, of what it reads
	optAIO                           // -i
	optQuiet                         // -q
	optProgress                      // -p
	optOutput                        // --output=human|json
	optPolicies                      // --zero-policy, --dependency of what is written
)

// commonOpts are the common options as getopt and the help see them.
var commonOpts = []struct {
	bit common
	opt opt
}{
	{optObject, opt{long: "object", arg: needArg, name: "OBJECT", help: "define an object, such as secret,id=ID,file=PATH"}},
	{optImageOpts, opt{long: "image-opts", help: "FILE is an option string, such as driver=qcow2,file.filename=PATH"}},
	{optFormat, opt{short: 'f', long: "format", arg: needArg, name: "FMT", help: "format of FILE; default: probe it"}},
	{optForceShare, opt{short: 'U', long: "force-share", help: "read even if somebody else is writing (what is read may be torn)"}},
	{optCache, opt{short: 't', long: "cache", arg: needArg, name: "CACHE", help: "cache mode: none, writeback, writethrough, directsync, unsafe"}},
	{optSrcCache, opt{short: 'T', long: "source-cache", arg: needArg, name: "CACHE", help: "cache mode of what is read"}},
	{optAIO, opt{short: 'i', long: "aio", arg: needArg, name: "ENGINE", help: "I/O engine: threads, native, io_uring"}},
	{optQuiet, opt{short: 'q', long: "quiet", help: "print errors only"}},
	{optProgress, opt{short: 'p', long: "progress", arg: optArg, name: "FORM", help: "show progress: plain (default), auto (a bar on a terminal), none"}},
	{optOutput, opt{long: "output", arg: needArg, name: "FORM", help: "print for people (human) or programs (json)"}},
	{optPolicies, opt{long: "zero-policy", arg: needArg, name: "POLICY",
		help: "how zeros get into new clusters: auto, range (zero-range), write"}},
	{optPolicies, opt{long: "dependency", arg: needArg, name: "RULE",
		help: "which writes to one cluster wait for each other: strict, relaxed, joined"}},
	{0, opt{long: "untrusted", help: "open no file that an image refers to"}},
	{0, opt{short: 'h', long: "help", help: "print this help"}},
}

// list gives all options of a verb.
func (v *verb) list() []opt {
	out := slices.Clone(v.opts)
	for _, o := range commonOpts {
		if o.bit == 0 || v.common&o.bit != 0 {
			out = append(out, o.opt)
		}
	}
	return out
}

// options is a parsed command line: the common options decoded, the verb's own by key.
type options struct {
	c    *call
	args []string // operands
	own  []parsed // the verb's own options in order

	format     string // -f
	imageOpts  bool
	forceShare bool
	cache      string // -t as given; "" if not
	srcCache   string // -T as given
	aio        string // -i as given
	quiet      bool
	progress   progressForm // -p; none with -q
	json       bool         // --output=json
	untrusted  bool
	secrets    secrets
	zeroPolicy string
	dependency string
}

// parse reads the command line of c's verb. If done, the verb has been answered (help, usage error) and code is its
// exit code.
func (c *call) parse() (o *options, code int, done bool) {
	o = &options{c: c, secrets: secrets{}}
	got, operands, err := getopt(c.args, c.verb.list())
	if err != nil {
		return nil, c.usageErrorf("%v", err), true
	}
	for _, p := range got {
		if p.key == "help" {
			return nil, printVerbHelp(c, c.verb), true
		}
	}
	for _, p := range got {
		if err := o.take(p); err != nil {
			return nil, c.errorf("%v", err), true
		}
	}
	if o.quiet {
		o.progress = progressNone
	}
	if o.imageOpts && o.format != "" {
		return nil, c.errorf("--image-opts and --format are mutually exclusive"), true
	}
	v := c.verb
	switch o.args = operands; {
	case len(operands) < v.min:
		return nil, c.usageErrorf("Expecting %s", v.operand), true
	case v.max >= 0 && len(operands) > v.max:
		return nil, c.usageErrorf("Too many arguments: unexpected '%s'", operands[v.max]), true
	}
	return o, 0, false
}

// take decodes one option.
func (o *options) take(p parsed) (err error) {
	isOwn := slices.ContainsFunc(o.c.verb.opts, func(own opt) bool { return own.key() == p.key })
	if isOwn {
		o.own = append(o.own, p)
		return nil
	}
	switch p.key {
	case "format":
		o.format = p.value
	case "image-opts":
		o.imageOpts = true
	case "force-share":
		o.forceShare = true
	case "object":
		err = o.secrets.define(p.value)
	case "cache":
		o.cache = p.value
		_, err = image.ParseCacheMode(p.value)
	case "source-cache":
		o.srcCache = p.value
		_, err = image.ParseCacheMode(p.value)
	case "aio":
		o.aio = p.value
		err = isOneOf(p, "threads", "native", "io_uring")
	case "quiet":
		o.quiet = true
	case "progress":
		o.progress, err = parseProgress(p.value)
	case "output":
		o.json = p.value == "json"
		if !o.json && p.value != "human" {
			err = errors.New("--output wants human or json")
		}
	case "zero-policy":
		o.zeroPolicy = p.value
		err = isOneOf(p, "auto", "range", "write")
	case "dependency":
		o.dependency = p.value
		err = isOneOf(p, "strict", "relaxed", "joined")
	case "untrusted":
		o.untrusted = true
	default:
		panic("cli: option " + p.key + " was parsed but is not handled")
	}
	return err
}

// isOneOf checks the value of an option that has a set of them.
func isOneOf(p parsed, allowed ...string) error {
	if slices.Contains(allowed, p.value) {
		return nil
	}
	return fmt.Errorf("--%s: '%s' is not one of %s", p.key, p.value, strings.Join(allowed, ", "))
}

// has tells whether one of the verb's own options was given.
func (o *options) has(key string) bool {
	return slices.ContainsFunc(o.own, func(p parsed) bool { return p.key == key })
}

// value gives the last value of one of the verb's own options, or def.
func (o *options) value(key, def string) string {
	for _, p := range slices.Backward(o.own) {
		if p.key == key {
			return p.value
		}
	}
	return def
}

// values gives all values of one of the verb's own options.
func (o *options) values(key string) (out []string) {
	for _, p := range o.own {
		if p.key == key {
			out = append(out, p.value)
		}
	}
	return out
}

// size gives one of the verb's own options as a number of bytes with the usual suffixes, or def.
func (o *options) size(key string, def int64) (int64, error) {
	s := o.value(key, "")
	if !o.has(key) {
		return def, nil
	}
	n, err := image.ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", key, err)
	}
	return n, nil
}

// shared are the image options that hold for every image the run opens: the gate, secrets, warnings, the engine.
func (o *options) shared() []image.Option {
	opts := []image.Option{image.WithGate(image.AllowReferences), image.WithWarnings(o.c.warn),
		image.WithSecrets(o.secrets.find), image.WithZeroPolicy(o.zeroPolicy), image.WithDependency(o.dependency)}
	if o.untrusted {
		opts[0] = image.WithGate(image.DenyReferences)
	}
	if o.aio != "" {
		opts = append(opts, image.WithAIO(o.aio))
	}
	return opts
}

// open opens an image as -f, --image-opts, -U, --untrusted and the like ask for. Cache modes are the verb's to choose:
// image.WithCache(o.cacheMode(o.cache, image.CacheWriteback)). extra wins.
func (o *options) open(name string, extra ...image.Option) (*image.Image, error) {
	return image.Open(o.c.Context, name, o.openOptions(extra...)...)
}

// openOptions are the options that open uses.
func (o *options) openOptions(extra ...image.Option) []image.Option {
	opts := o.shared()
	if o.format != "" {
		opts = append(opts, image.WithFormat(o.format))
	}
	if o.imageOpts {
		opts = append(opts, image.WithOptionString())
	}
	if o.forceShare {
		opts = append(opts, image.WithForceShare())
	}
	return append(opts, extra...)
}

// cacheMode decodes -t or -T (checked by parse already); def if it was not given.
func (o *options) cacheMode(given string, def image.CacheMode) image.CacheMode {
	if m, err := image.ParseCacheMode(given); err == nil {
		return m
	}
	return def
}

// openErrorf prints that an image could not be opened and returns 1.
func (c *call) openErrorf(name string, err error) int {
	return c.errorf("Could not open '%s': %s", name, reason(err, name))
}

// reason is an error's text without what the sentence before it already says: the name, and that it was being opened.
func reason(err error, name string) string {
	var e *block.Error
	if !errors.As(err, &e) || e != err {
		return err.Error()
	}
	short := *e
	if short.Path == name {
		short.Path = ""
	}
	if short.Op == "open" {
		short.Op = ""
	}
	if errors.Is(err, fs.ErrNotExist) && short.Path == "" {
		return "No such file or directory"
	}
	return short.Error()
}

// warn prints what Open found odd.
func (c *call) warn(w image.Warning) {
	if w.Kind != image.WarnGuessedRaw {
		fmt.Fprintf(c.Stderr, "%s: warning: %s\n", c.prog, w)
		return
	}
	// Tools look for these three lines.
	fmt.Fprintf(c.Stderr, "WARNING: Image format was not specified for '%s' and probing guessed raw.\n", w.Path)
	fmt.Fprint(c.Stderr, "         Automatically detecting the format is dangerous for raw images, "+
		"write operations on block 0 will be restricted.\n"+
		"         Specify the 'raw' format explicitly to remove the restrictions.\n")
}
