package cli

import (
	"bufio"
	"fmt"

	"byre/image"
	"byre/qcow2"
)

func init() {
	register(verb{
		name: "snapshot", summary: "list, take, apply or delete internal snapshots", operand: "FILE",
		common: optObject | optImageOpts | optFormat | optForceShare | optQuiet, max: 1,
		opts: []opt{
			{short: 'l', long: "list", help: "list the snapshots (what is done if nothing is asked for)"},
			{short: 'a', long: "apply", arg: needArg, name: "SNAPSHOT", help: "make the disk what it was then; ids are looked up before names"},
			{short: 'c', long: "create", arg: needArg, name: "NAME", help: "take a snapshot"},
			{short: 'd', long: "delete", arg: needArg, name: "NAME", help: "delete the first snapshot of that name"},
		},
		run: runSnapshot,
	})
}

func runSnapshot(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	action := ""
	for _, p := range o.own {
		if action != "" {
			return c.usageErrorf("Cannot mix '-l', '-a', '-c', '-d'")
		}
		action = p.key
	}
	if len(o.args) != 1 {
		return c.usageErrorf("Expecting one image file name")
	}
	var opts []image.Option
	if action != "" && action != "list" {
		opts = append(opts, image.Writable())
	}
	im, err := o.open(o.args[0], opts...)
	if err != nil {
		return c.openErrorf(o.args[0], err)
	}
	code = c.snapshot(im, action, o.value(action, ""))
	if err := im.Close(); err != nil && code == 0 {
		return c.errorf("%v", err)
	}
	return code
}

func (c *call) snapshot(im *image.Image, action, name string) int {
	if action == "" || action == "list" {
		c.listSnapshots(im.Snapshots())
		return 0
	}
	q := im.QCOW2()
	if q == nil {
		return c.errorf("Could not %s snapshot '%s': images of format %s have no snapshots", action, name, im.Format())
	}
	var err error
	switch action {
	case "create":
		_, err = q.CreateSnapshot(c.Context, qcow2.SnapshotOptions{Name: name})
	case "apply":
		err = q.ApplySnapshot(c.Context, name)
	case "delete":
		err = q.DeleteSnapshot(c.Context, "", name)
	}
	if err != nil {
		return c.errorf("Could not %s snapshot '%s': %v", action, name, err)
	}
	return 0
}

func (c *call) listSnapshots(list []image.Snapshot) {
	if len(list) == 0 {
		return
	}
	w := bufio.NewWriter(c.Stdout)
	defer w.Flush()
	fmt.Fprintf(w, "Snapshot list:\n%s\n", snapshotHeader())
	for i := range list {
		fmt.Fprintf(w, "%s\n", snapshotRow(&list[i]))
	}
}
