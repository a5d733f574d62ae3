package cli

import (
	"bufio"
	"fmt"

	"byre/image"
)

func init() {
	register(verb{
		name: "measure", summary: "tell how large the file of a new image will be", operand: "FILE or --size N",
		common: optObject | optImageOpts | optFormat | optForceShare | optOutput, max: 1,
		opts: []opt{
			{short: 'O', long: "output-format", arg: needArg, name: "FMT", help: "format of the new image (raw)"},
			{short: 'o', long: "options", arg: needArg, name: "NAME=VALUE,…", help: "options of the new image; -o help lists them"},
			{short: 'l', long: "snapshot", arg: needArg, name: "SNAPSHOT", help: "measure a copy of an internal snapshot: ID_OR_NAME, or snapshot.id=ID,snapshot.name=NAME"},
			{long: "size", arg: needArg, name: "N", help: "virtual size of an empty new image"},
		},
		run: runMeasure,
	})
}

func runMeasure(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	m := image.MeasureOptions{Format: o.value("output-format", "raw"), Size: -1}
	var help bool
	var err error
	if m.Options, help, err = parseCreateOptions(o.values("options")); err != nil {
		return c.errorf("%v", err)
	} else if help {
		return c.printCreateOptions(m.Format)
	}
	switch {
	case o.has("size") && len(o.args) > 0:
		return c.errorf("--size N cannot be used together with a filename.")
	case !o.has("size") && len(o.args) == 0:
		return c.errorf("Either --size N or one filename must be specified.")
	case len(o.args) == 0 && (o.imageOpts || o.format != "" || o.has("snapshot")):
		return c.errorf("--image-opts, --format (-f) and --snapshot (-l) need a filename.")
	}
	if m.Size, err = o.size("size", -1); err != nil {
		return c.errorf("Invalid image size: %v", err)
	}
	if len(o.args) == 1 {
		im, code := o.measureSource(o.args[0])
		if im == nil {
			return code
		}
		defer im.Close()
		m.Source = im
	}
	r, err := image.Measure(c.Context, m)
	if err != nil {
		return c.errorf("%v", err)
	}
	return c.printMeasurement(&r, o.json)
}

// measureSource opens what is to be copied; nil and the exit code if that fails.
func (o *options) measureSource(name string) (*image.Image, int) {
	var extra []image.Option
	if o.has("snapshot") {
		id, err := o.snapshotID(name, o.value("snapshot", ""))
		if err != nil {
			return nil, o.c.errorf("%v", err)
		}
		extra = append(extra, image.WithSnapshot(id))
	}
	im, err := o.open(name, extra...)
	if err != nil {
		return nil, o.c.openErrorf(name, err)
	}
	return im, 0
}

func (c *call) printMeasurement(m *image.Measurement, json bool) int {
	w := bufio.NewWriter(c.Stdout)
	if json {
		var f image.Fields
		if m.HasBitmaps {
			f = append(f, image.Field{Name: "bitmaps", Value: m.Bitmaps})
		}
		f = append(f, image.Field{Name: "required", Value: m.Required}, image.Field{Name: "fully-allocated", Value: m.FullyAllocated})
		writeJSON(w, f, 0)
		w.WriteByte('\n')
	} else {
		writeMeasurement(w, m)
	}
	if err := w.Flush(); err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

func writeMeasurement(w *bufio.Writer, m *image.Measurement) {
	fmt.Fprintf(w, "required size: %d\nfully allocated size: %d\n", m.Required, m.FullyAllocated)
	if m.HasBitmaps {
		fmt.Fprintf(w, "bitmaps size: %d\n", m.Bitmaps)
	}
}
