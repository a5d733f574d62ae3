package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"byre/block"
	"byre/image"
)

func init() {
	register(verb{
		name: "resize", summary: "make an image's disk larger or smaller", operand: "FILE [+|-]SIZE",
		common: optObject | optImageOpts | optFormat | optQuiet, max: -1,
		opts: []opt{
			{long: "preallocation", arg: needArg, name: "MODE", help: "what to reserve when growing: off, metadata, falloc, full"},
			{long: "shrink", help: "allow to make it smaller; what is cut off is lost"},
			{long: "progress", arg: optArg, name: "FORM", help: "show progress of preallocation: plain, auto (a bar on a terminal) or none"},
		},
		note: "+SIZE and -SIZE are relative to the present size.",
		run:  runResize,
	})
}

func runResize(c *call) int {
	size, ok := cutSize(c)
	o, code, done := c.parse()
	if done {
		return code
	}
	if !ok {
		return c.usageErrorf("Not enough arguments")
	}
	if len(o.args) != 1 {
		return c.usageErrorf("Expecting image file name and size")
	}
	var ro block.ResizeOptions
	if o.has("preallocation") {
		mode, ok := parsePreallocMode(o.value("preallocation", ""))
		if !ok {
			return c.errorf("Invalid preallocation mode '%s'", o.value("preallocation", ""))
		}
		ro.Prealloc = mode
	}
	n, err := image.ParseSize(strings.TrimLeft(size, "+-"))
	if err != nil {
		return c.errorf("Invalid size '%s': a size is a number of bytes, or one with a suffix k, M, G, T, P or E for powers of 1024", size)
	}
	im, err := o.open(o.args[0], image.Writable())
	if err != nil {
		return c.openErrorf(o.args[0], err)
	}
	code = c.resize(o, im, size, n, ro)
	if err := im.Close(); err != nil && code == 0 {
		return c.errorf("%v", err)
	}
	return code
}

// cutSize takes the last word off the arguments: it is the size even if it looks like an option.
func cutSize(c *call) (string, bool) {
	n := len(c.args)
	if n == 0 || c.args[n-1] == "-h" || c.args[n-1] == "--help" || n < 2 {
		return "", false
	}
	size := c.args[n-1]
	c.args = c.args[:n-1]
	return size, true
}

func parsePreallocMode(name string) (block.PreallocMode, bool) {
	for m := block.PreallocOff; m <= block.PreallocFull; m++ {
		if m.String() == name {
			return m, true
		}
	}
	return 0, false
}

// newSize is the size that is asked for.
func newSize(old int64, given string, n int64) (int64, error) {
	switch given[0] {
	case '+':
		if n > math.MaxInt64-old {
			return 0, errors.New("the new size is too large")
		}
		n += old
	case '-':
		n = old - n
	}
	if n <= 0 {
		return 0, errors.New("New image size must be positive")
	}
	return n, nil
}

func (c *call) resize(o *options, im *image.Image, given string, n int64, ro block.ResizeOptions) int {
	old := im.Size()
	size, err := newSize(old, given, n)
	if err != nil {
		return c.errorf("%v", err)
	}
	if size <= old && ro.Prealloc != block.PreallocOff {
		return c.errorf("Preallocation can only be used for growing images")
	}
	if size < old && !o.has("shrink") {
		c.errorf("Use the --shrink option to make an image smaller")
		return c.errorf("warning: all data behind the new end of %d bytes will be lost", size)
	}
	if size > math.MaxInt64-511 {
		return c.errorf("the new size is too large")
	}
	size = (size + 511) &^ 511
	if o.has("progress") {
		form, err := parseProgress(o.value("progress", ""))
		if err != nil {
			return c.errorf("%v", err)
		}
		p := c.startProgress(form, "resize")
		defer p.finish()
		ro.Progress = func(done, total int64) { p.set(done, total) }
	}
	if err := im.Resize(c.Context, size, ro); err != nil {
		return c.errorf("%v", err)
	}
	if !o.quiet {
		fmt.Fprintln(c.Stdout, "Image resized.")
	}
	return 0
}
