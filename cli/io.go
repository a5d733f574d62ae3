package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"byre/block"
	"byre/image"
	"byre/ioshell"
	"byre/storage/fault"
)

func init() {
	register(verb{
		name:    "io",
		summary: "run commands that read, write and break an image, as qemu-io does",
		operand: "[FILE]",
		common:  optFormat | optImageOpts | optObject | optForceShare | optAIO | optPolicies,
		opts:    ioOpts,
		max:     1,
		note:    "'-c help' lists the commands. Without -c they are read from standard input.",
		run:     runIO,
	})
	personalities["qemu-io"] = runIOPersonality
}

var ioOpts = []opt{
	{short: 'c', long: "cmd", arg: needArg, name: "COMMAND", help: "run COMMAND; may be repeated"},
	{short: 'r', long: "read-only", help: "open FILE read-only"},
	{short: 's', long: "snapshot", help: "changes go to a temporary file and are lost"},
	{short: 'n', long: "nocache", help: "past the page cache, short for -t none"},
	{short: 'C', long: "copy-on-read", help: "what is read from a backing file is stored in FILE"},
	{short: 'm', long: "misalign", help: "give requests memory that is not aligned"},
	{short: 'k', long: "native-aio", help: "like -i native"},
	{short: 't', long: "cache", arg: needArg, name: "CACHE", help: "cache mode; default: every write is followed by a flush"},
	{short: 'd', long: "discard", arg: needArg, name: "MODE", help: "ignore (off) or unmap (on)"},
	{short: 'T', long: "trace", arg: needArg, name: "TRACE", help: "accepted for compatibility; there are no trace points"},
}

// runIOPersonality is the program when it is called qemu-io: one verb without a name.
func runIOPersonality(c *call) int {
	for _, a := range c.args {
		if a == "-V" || a == "--version" {
			return printVersion(c)
		}
	}
	for i := range verbs {
		if verbs[i].name == "io" {
			c.verb = &verbs[i]
		}
	}
	return c.verb.run(c)
}

func runIO(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	spec := ioshell.OpenSpec{ImageOpts: o.imageOpts, Format: o.format, ForceShare: o.forceShare, AIO: o.aio,
		Cache: o.value("cache", ""), Discard: o.value("discard", ""), ReadOnly: o.has("read-only"),
		Snapshot: o.has("snapshot"), CopyOnRead: o.has("copy-on-read")}
	if o.has("nocache") {
		spec.Cache = "none"
	}
	if o.has("native-aio") {
		spec.AIO = "native"
	}
	switch {
	case spec.Cache != "" && checkCache(spec.Cache) != nil:
		return c.errorf("Invalid cache option: %s", spec.Cache)
	case spec.Discard != "" && checkDiscard(spec.Discard) != nil:
		return c.errorf("Invalid discard option: %s", spec.Discard)
	}
	opener := &ioOpener{o: o}
	sh := ioshell.New(ioshell.Config{Prog: c.prog, In: c.Stdin, Out: c.Stdout, Err: c.Stderr, Open: opener.open,
		Alloc: ioAllocator(o.has("misalign")), CheckCache: checkCache, CheckAIO: checkAIO, CheckDiscard: checkDiscard})
	opener.sh = sh
	if len(o.args) == 1 {
		spec.Name = o.args[0]
		if !sh.Open(c.Context, spec) {
			return 1
		}
	}
	if !sh.Run(c.Context, o.values("cmd")) {
		return 1
	}
	return 0
}

// ioAllocator gives request buffers; misaligned ones begin in the middle of a sector.
func ioAllocator(misalign bool) func(int) []byte {
	if !misalign {
		return nil
	}
	return func(n int) []byte { return make([]byte, n+16)[16:] }
}

func checkCache(s string) error {
	_, err := image.ParseCacheMode(s)
	return err
}

func checkAIO(s string) error {
	if slices.Contains([]string{"threads", "native", "io_uring"}, s) {
		return nil
	}
	return errors.New("unknown engine")
}

func checkDiscard(s string) error {
	if slices.Contains([]string{"ignore", "off", "unmap", "on"}, s) {
		return nil
	}
	return errors.New("unknown mode")
}

// ioOpener opens images for the shell with the options of the command line that hold for all of them.
type ioOpener struct {
	o  *options
	sh *ioshell.Shell
}

func (p *ioOpener) open(ctx context.Context, spec ioshell.OpenSpec) (*ioshell.Image, error) {
	opts, err := p.imageOptions(spec)
	if err != nil {
		return nil, err
	}
	name := spec.Name
	if name == "" {
		name, opts = spec.Options, append(opts, image.WithOptionString())
	}
	cleanup := func() {}
	if spec.Snapshot {
		if name, cleanup, err = temporaryOverlay(ctx, name, opts); err != nil {
			return nil, err
		}
		opts = append(p.o.shared(), image.WithFormat("qcow2"), image.WithGate(image.AllowReferences))
		spec.ReadOnly = false
	}
	if !spec.ReadOnly {
		opts = append(opts, image.Writable())
	}
	im, err := image.Open(ctx, name, opts...)
	if err != nil {
		cleanup()
		return nil, err
	}
	return p.wrap(im, spec, cleanup), nil
}

// imageOptions translates what the shell asks for.
func (p *ioOpener) imageOptions(spec ioshell.OpenSpec) ([]image.Option, error) {
	opts := p.o.shared()
	mode := image.CacheWriteback
	if spec.Cache != "" {
		m, err := image.ParseCacheMode(spec.Cache)
		if err != nil {
			return nil, err
		}
		mode = hostMode(m)
	}
	opts = append(opts, image.WithCache(mode))
	if spec.AIO != "" {
		opts = append(opts, image.WithAIO(spec.AIO))
	}
	if spec.Format != "" {
		opts = append(opts, image.WithFormat(spec.Format))
	}
	if spec.ImageOpts {
		opts = append(opts, image.WithOptionString())
	}
	if spec.ForceShare {
		opts = append(opts, image.WithForceShare())
	}
	if spec.Discard == "unmap" || spec.Discard == "on" {
		opts = append(opts, image.WithOption("discard", "unmap"))
	}
	if spec.Options != "" && spec.Name != "" {
		tree, err := image.ParseOptionString(spec.Options)
		if err != nil {
			return nil, err
		}
		for key, value := range tree {
			opts = append(opts, image.WithOption(key, value))
		}
	}
	return opts, nil
}

// hostMode takes the flush after every write off a cache mode: the shell does that on top, once for each request.
func hostMode(m image.CacheMode) image.CacheMode {
	switch m {
	case image.CacheWritethrough:
		return image.CacheWriteback
	case image.CacheDirectsync:
		return image.CacheNone
	}
	return m
}

func writethrough(cache string) bool {
	return cache == "" || cache == "writethrough" || cache == "directsync"
}

func (p *ioOpener) wrap(im *image.Image, spec ioshell.OpenSpec, cleanup func()) *ioshell.Image {
	dev := im.Device()
	out := &ioshell.Image{Dev: dev, FormatName: im.Format(), Writethrough: writethrough(spec.Cache),
		Close: func() error {
			defer cleanup()
			return im.Close()
		}}
	if spec.CopyOnRead && !dev.Geometry().ReadOnly {
		out.Dev = ioshell.CopyOnRead(dev)
	}
	if q := im.QCOW2(); q != nil {
		out.VMStateOffset = q.VMStateOffset()
	}
	out.Info = func(w io.Writer) error { return writeSpecific(p.o.c.Context, w, im) }
	out.Reopen = func(ctx context.Context, r ioshell.ReopenSpec) error { return p.reopen(ctx, out, spec, r) }
	if f := findFault(dev); f != nil {
		f.SetLog(shellWriter{p.sh})
		out.Breakpoints = breakpoints{f}
	}
	return out
}

// writeSpecific prints what only this format has, as the info command of the shell does.
func writeSpecific(ctx context.Context, w io.Writer, im *image.Image) error {
	i, err := im.Info(ctx)
	if err != nil || len(i.Specific) == 0 {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "Format specific information:")
	writeFields(out, i.Specific, 4)
	return out.Flush()
}

// reopen closes the image and opens it in the other way that is asked for; if that fails, as it was.
func (p *ioOpener) reopen(ctx context.Context, img *ioshell.Image, spec ioshell.OpenSpec, r ioshell.ReopenSpec) error {
	next := spec
	next.ReadOnly = r.ReadOnly || spec.ReadOnly && !r.ReadWrite
	if r.Cache != "" {
		next.Cache = r.Cache
	}
	if r.Options != "" {
		next.Options = strings.Trim(spec.Options+","+r.Options, ",")
	}
	if err := img.Close(); err != nil {
		return err
	}
	err := p.replace(ctx, img, next)
	if err != nil && p.replace(ctx, img, spec) != nil {
		img.Close = func() error { return nil } // it is closed and stays so
	}
	return err
}

// replace opens an image in the place of img, which is closed.
func (p *ioOpener) replace(ctx context.Context, img *ioshell.Image, spec ioshell.OpenSpec) error {
	changed, err := p.open(ctx, spec)
	if err != nil {
		return err
	}
	*img = *changed
	img.Reopen = func(ctx context.Context, r ioshell.ReopenSpec) error { return p.reopen(ctx, img, spec, r) }
	return nil
}

// shellWriter sends whole lines of a lower layer through the shell's output lock.
type shellWriter struct{ sh *ioshell.Shell }

func (w shellWriter) Write(b []byte) (int, error) {
	w.sh.Printf("%s", b)
	return len(b), nil
}

// findFault looks for the layer that suspends requests, from the top down along the image files.
func findFault(dev *block.Device) *fault.Driver {
	for dev != nil {
		if f, ok := dev.Driver().(*fault.Driver); ok {
			return f
		}
		chain, ok := dev.Driver().(block.Chained)
		if !ok {
			return nil
		}
		dev = chain.File()
	}
	return nil
}

// breakpoints names events and reports as the shell's language does.
type breakpoints struct{ f *fault.Driver }

func (b breakpoints) Break(event, tag string) error {
	e, ok := block.ParseEvent(event)
	if !ok {
		return syscall.ENOENT
	}
	b.f.Break(e, tag)
	return nil
}

func (b breakpoints) RemoveBreak(tag string) error { return found(b.f.RemoveBreak(tag)) }
func (b breakpoints) Resume(tag string) error      { return found(b.f.Resume(tag)) }
func (b breakpoints) Suspended(tag string) bool    { return b.f.Suspended(tag) }

func found(yes bool) error {
	if yes {
		return nil
	}
	return syscall.ENOENT
}

// temporaryOverlay makes an image over name that takes all changes and vanishes at close.
func temporaryOverlay(ctx context.Context, name string, opts []image.Option) (overlay string, cleanup func(), err error) {
	base, err := image.Open(ctx, name, opts...)
	if err != nil {
		return "", nil, err
	}
	size, format, file := base.Size(), base.Format(), base.Filename()
	if err := base.Close(); err != nil {
		return "", nil, err
	}
	if !strings.Contains(file, ":") && !strings.HasPrefix(file, "/") {
		wd, err := os.Getwd()
		if err != nil {
			return "", nil, err
		}
		file = wd + "/" + file
	}
	f, err := os.CreateTemp("", "byre-io-*.qcow2")
	if err != nil {
		return "", nil, err
	}
	cleanup = func() { os.Remove(f.Name()) }
	if err = f.Close(); err == nil {
		err = image.Create(ctx, f.Name(), image.CreateOptions{Format: "qcow2", Size: size, BackingFile: file, BackingFormat: format,
			Unchecked: true}, image.WithGate(image.AllowReferences))
	}
	if err != nil {
		cleanup()
		return "", nil, fmt.Errorf("make a temporary overlay: %w", err)
	}
	return f.Name(), cleanup, nil
}
