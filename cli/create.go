package cli

import (
	"fmt"

	"byre/image"
)

func init() {
	register(verb{
		name: "create", summary: "make a new image", operand: "FILE [SIZE]",
		common: optObject | optQuiet, max: 2,
		opts: []opt{
			{short: 'f', long: "format", arg: needArg, name: "FMT", help: "format of the new image (raw)"},
			{short: 'b', long: "backing", arg: needArg, name: "FILE", help: "image that the new one starts from"},
			{short: 'F', long: "backing-format", arg: needArg, name: "FMT", help: "format of the backing file"},
			{short: 'u', long: "backing-unsafe", help: "do not look at the backing file; SIZE must be given"},
			{short: 'o', long: "options", arg: needArg, name: "NAME=VALUE,…", help: "options of the format; -o help lists them"},
			{long: "progress", arg: optArg, name: "FORM", help: "show progress of preallocation: plain, auto (a bar on a terminal) or none"},
		},
		run: runCreate,
	})
}

func runCreate(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	plan := image.CreateOptions{Format: o.value("format", "raw"), Size: -1, BackingFile: o.value("backing", ""),
		BackingFormat: o.value("backing-format", ""), Unchecked: o.has("backing-unsafe")}
	given, help, err := parseCreateOptions(o.values("options"))
	if help {
		return c.printCreateOptions(plan.Format)
	}
	if len(o.args) == 0 {
		return c.usageErrorf("Expecting image file name")
	}
	name := o.args[0]
	if err != nil {
		return c.errorf("%s: %v", name, err)
	}
	plan.Options = given
	if len(o.args) == 2 {
		if plan.Size, err = image.ParseSize(o.args[1]); err != nil {
			c.errorf("Invalid image size '%s': %v", o.args[1], err)
			return c.errorf("a size is a number of bytes, or one with a suffix k, M, G, T, P or E for powers of 1024")
		}
		if _, twice := given["size"]; twice {
			return c.errorf("%s: the size is given twice, behind the name and as an option", name)
		}
	}
	form := progressNone
	if o.has("progress") {
		if form, err = parseProgress(o.value("progress", "")); err != nil {
			return c.errorf("%v", err)
		}
	}
	return c.create(o, name, plan, form)
}

func (c *call) create(o *options, name string, plan image.CreateOptions, form progressForm) int {
	if form != progressNone {
		p := c.startProgress(form, "create")
		defer p.finish()
		plan.Progress = func(done, total int64) { p.set(done, total) }
	}
	n, err := image.NewCreation(c.Context, name, plan, o.shared()...)
	if err != nil {
		return c.errorf("%s: %s", name, reason(err, name))
	}
	if !o.quiet {
		fmt.Fprintf(c.Stdout, "Formatting '%s', %s\n", name, n.Describe())
	}
	if err := n.Run(c.Context); err != nil {
		return c.errorf("%s: %s", name, reason(err, name))
	}
	return 0
}
