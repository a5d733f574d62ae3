package cli

import (
	"bufio"
	"fmt"
	"io"

	"byre/image"
	"byre/qcow2/check"
)

func init() {
	register(verb{
		name: "check", summary: "find what is wrong with an image's metadata, repair it", operand: "one image file name",
		common: optObject | optImageOpts | optFormat | optForceShare | optQuiet | optProgress | optOutput | optSrcCache, min: 1, max: 1,
		opts: []opt{{short: 'r', long: "repair", arg: needArg, name: "WHAT",
			help: "repair 'leaks' (space that nothing refers to) or 'all' (whatever can be repaired)"}},
		note: "Exit status: 0 sound, or sound after the repair; 1 could not be checked; 2 corrupt; 3 only leaks; 63 the format has no checks.",
		run:  runCheck,
	})
}

const exitNoChecks = 63

func runCheck(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	level := check.Nothing
	opts := []image.Option{image.WithCache(o.cacheMode(o.srcCache, image.CacheWriteback))}
	if o.has("repair") {
		switch what := o.value("repair", ""); what {
		case "leaks":
			level = check.Leaks
		case "all":
			level = check.All
		default:
			return c.usageErrorf("Unknown option value for -r (expecting 'leaks' or 'all'): %s", what)
		}
		opts = append(opts, image.Writable())
	}
	im, err := image.OpenForCheck(c.Context, o.args[0], o.openOptions(opts...)...)
	if err != nil {
		return c.openErrorf(o.args[0], err)
	}
	defer im.Close()
	if !im.HasChecks() {
		c.errorf("This image format does not support checks")
		return exitNoChecks
	}
	v := &checkVerb{call: c, o: o, im: im, out: bufio.NewWriterSize(c.Stdout, 4096)}
	defer v.out.Flush()
	return v.run(level)
}

// checkVerb is one run of the verb.
type checkVerb struct {
	*call
	o   *options
	im  *image.Checkable
	out *bufio.Writer
}

func (v *checkVerb) run(level check.Level) int {
	r, err := v.pass(level)
	if err == nil && r.CorruptionsFixed+r.LeaksFixed > 0 {
		if !v.o.json {
			v.printf("The following inconsistencies were found and repaired:\n\n    %d leaked clusters\n    %d corruptions\n\n"+
				"Double checking the fixed image now...\n", r.LeaksFixed, r.CorruptionsFixed)
			v.out.Flush()
		}
		fixed := r
		if r, err = v.pass(check.Nothing); err == nil {
			r.LeaksFixed, r.CorruptionsFixed = fixed.LeaksFixed, fixed.CorruptionsFixed
		}
	}
	if err != nil {
		return v.errorf("Check failed: %v", err)
	}
	if v.o.json {
		v.printJSON(&r)
	} else {
		v.printHuman(&r)
	}
	switch {
	case r.Errors > 0:
		v.out.Flush()
		return v.errorf("Check failed")
	case r.Corruptions > 0:
		return 2
	case r.Leaks > 0:
		return 3
	}
	return 0
}

// pass checks once. Findings go to standard error as they come.
func (v *checkVerb) pass(level check.Level) (check.Result, error) {
	lines := bufio.NewWriterSize(v.Stderr, 32<<10)
	defer lines.Flush()
	o := check.Options{Repair: level, Discard: true, Report: func(f *check.Finding) {
		lines.WriteString(f.String())
		lines.WriteByte('\n')
	}}
	if v.o.progress != progressNone && !v.o.quiet && !v.o.json {
		o.Progress = percentPrinter(v.Stdout)
		defer fmt.Fprintln(v.Stdout)
	}
	return v.im.Check(v.Context, o)
}

// percentPrinter prints progress as the real tools do, when the hundredths change.
func percentPrinter(w io.Writer) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		if total <= 0 {
			return
		}
		if n := int64(float64(done) / float64(total) * 10000); n != last {
			last = n
			fmt.Fprintf(w, "    (%.2f/100%%)\r", float64(n)/100)
		}
	}
}

func (v *checkVerb) printf(format string, args ...any) {
	if !v.o.quiet {
		fmt.Fprintf(v.out, format, args...)
	}
}

func (v *checkVerb) printHuman(r *check.Result) {
	if r.Clean() {
		v.printf("No errors were found on the image.\n")
	}
	if r.Corruptions > 0 {
		v.printf("\n%d errors were found on the image.\n"+
			"Data may be corrupted, or further writes to the image may corrupt it.\n", r.Corruptions)
	}
	if r.Leaks > 0 {
		v.printf("\n%d leaked clusters were found on the image.\nThis means waste of disk space, but no harm to data.\n", r.Leaks)
	}
	if r.Errors > 0 {
		v.printf("\n%d internal errors have occurred during the check.\n", r.Errors)
	}
	if r.TotalClusters > 0 && r.AllocatedClusters > 0 {
		percent := func(n, of int64) float64 { return float64(n) * 100 / float64(of) }
		v.printf("%d/%d = %.2f%% allocated, %.2f%% fragmented, %.2f%% compressed clusters\n", r.AllocatedClusters, r.TotalClusters,
			percent(r.AllocatedClusters, r.TotalClusters), percent(r.FragmentedClusters, r.AllocatedClusters),
			percent(r.CompressedClusters, r.AllocatedClusters))
	}
	if r.ImageEnd > 0 {
		v.printf("Image end offset: %d\n", r.ImageEnd)
	}
}

// printJSON prints the keys in the order of the real tool; counts of zero are left out, but for those that are always there.
func (v *checkVerb) printJSON(r *check.Result) {
	if v.o.quiet {
		return
	}
	var f image.Fields
	add := func(name string, n int64) {
		if n != 0 {
			f = append(f, image.Field{Name: name, Value: n})
		}
	}
	add("image-end-offset", r.ImageEnd)
	add("compressed-clusters", r.CompressedClusters)
	add("total-clusters", r.TotalClusters)
	add("corruptions", r.Corruptions)
	add("corruptions-fixed", r.CorruptionsFixed)
	f = append(f, image.Field{Name: "check-errors", Value: r.Errors})
	add("leaks", r.Leaks)
	add("leaks-fixed", r.LeaksFixed)
	add("allocated-clusters", r.AllocatedClusters)
	f = append(f, image.Field{Name: "filename", Value: v.o.args[0]}, image.Field{Name: "format", Value: v.im.Format()})
	add("fragmented-clusters", r.FragmentedClusters)
	writeJSON(v.out, f, 0)
	v.out.WriteByte('\n')
}
