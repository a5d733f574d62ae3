package cli

import (
	"context"
	"errors"
	"fmt"

	"byre/image"
	"byre/job"
)

func init() {
	register(verb{
		name: "compare", summary: "tell whether two images hold the same", operand: "FILE1 FILE2",
		common: optObject | optImageOpts | optFormat | optForceShare | optSrcCache | optQuiet | optProgress | optAIO,
		min:    2, max: 2,
		opts: []opt{
			{short: 'F', long: "second-format", arg: needArg, name: "FMT", help: "format of FILE2; default: probe it"},
			{short: 's', long: "strict", help: "sizes, allocation and zeros must be the same too"},
		},
		note: `Without -s a longer image is the same as a shorter one if the rest of it is zeros. The exit code is 0 if the
images are the same, 1 if they differ, 2 if one cannot be opened, 3 if it cannot be found out what is allocated, 4 if
data cannot be read.`,
		run: runCompare,
	})
}

// The exit codes of compare.
const (
	compareSame = iota
	compareDiffer
	compareNoOpen
	compareNoExtent
	compareNoData
)

func runCompare(c *call) int {
	o, code, done := c.parse()
	if done {
		if code != 0 {
			code = compareNoOpen // 1 would say that the images differ
		}
		return code
	}
	var ims [2]*image.Image
	for i, name := range o.args {
		im, err := o.openCompared(i, name)
		if err != nil {
			c.openErrorf(name, err)
			return compareNoOpen
		}
		defer im.Close()
		ims[i] = im
	}
	p := c.startProgress(o.progress, "compare")
	jo := job.CompareOptions{Strict: o.has("strict"), Progress: p.set}
	if !o.quiet {
		jo.Longer = func() { fmt.Fprintln(c.Stdout, "Warning: Image size mismatch!") }
	}
	r, err := job.Compare(c.Context, ims[0].Device(), ims[1].Device(), jo)
	if err == nil && !o.quiet {
		printComparison(c, r)
	}
	p.finish()
	switch {
	case err != nil:
		return c.compareFailed(o, err)
	case r.Verdict != job.Identical:
		return compareDiffer
	}
	return compareSame
}

// openCompared opens one of the images. -f and --image-opts hold for both, -F for the second.
func (o *options) openCompared(i int, name string) (*image.Image, error) {
	opts := []image.Option{image.WithCache(o.cacheMode(o.srcCache, image.CacheWriteback))}
	if i == 1 {
		own := *o
		own.format = o.value("second-format", "")
		o = &own
	}
	return o.open(name, opts...)
}

func printComparison(c *call, r job.Comparison) {
	switch r.Verdict {
	case job.Identical:
		fmt.Fprintln(c.Stdout, "Images are identical.")
	case job.ContentDiffers:
		fmt.Fprintf(c.Stdout, "Content mismatch at offset %d!\n", r.Offset)
	case job.SizeDiffers:
		fmt.Fprintln(c.Stdout, "Strict mode: Image size mismatch!")
	case job.StatusDiffers:
		fmt.Fprintf(c.Stdout, "Strict mode: Offset %d block status mismatch!\n", r.Offset)
	}
}

// compareFailed prints a failure and chooses the exit code.
func (c *call) compareFailed(o *options, err error) int {
	var part *job.PartError
	switch {
	case errors.Is(err, context.Canceled):
		c.errorf("interrupted")
	case errors.As(err, &part) && part.Query:
		c.errorf("'%s': cannot find out what is allocated at offset %d: %v", o.args[part.Image], part.Off, part.Err)
		return compareNoExtent
	case errors.As(err, &part):
		c.errorf("'%s': cannot read at offset %d: %v", o.args[part.Image], part.Off, part.Err)
	default:
		c.errorf("%v", err)
	}
	return compareNoData
}
