package cli

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"byre/image"
)

func init() {
	register(verb{
		name: "info", summary: "show what an image is", operand: "FILE",
		common: optObject | optImageOpts | optFormat | optForceShare | optOutput, min: 1, max: 1,
		opts: []opt{{long: "backing-chain", help: "show every image of the backing chain too"}},
		note: "Headers and tables are read, nothing else: no backing file (without --backing-chain), no data file.",
		run:  runInfo,
	})
}

func runInfo(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	list, err := o.info(o.args[0])
	if err != nil {
		return c.openErrorf(o.args[0], err)
	}
	w := bufio.NewWriterSize(c.Stdout, 64<<10)
	switch {
	case o.json && o.has("backing-chain"):
		var all []any
		for _, i := range list {
			all = append(all, infoFields(i))
		}
		writeJSON(w, all, 0)
		w.WriteByte('\n')
	case o.json:
		writeJSON(w, infoFields(list[0]), 0)
		w.WriteByte('\n')
	default:
		for n, i := range list {
			if n > 0 {
				w.WriteByte('\n')
			}
			writeInfo(w, i, 0, "/")
		}
	}
	if err := w.Flush(); err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

// info describes the image, or with --backing-chain the whole chain.
func (o *options) info(name string) ([]*image.Info, error) {
	if o.has("backing-chain") {
		return image.InfoChain(o.c.Context, name, o.openOptions(image.MetadataOnly())...)
	}
	im, err := o.open(name, image.MetadataOnly())
	if err != nil {
		return nil, err
	}
	defer im.Close()
	i, err := im.Info(o.c.Context)
	return []*image.Info{i}, err
}

// writeInfo prints a layer and the storage below it for people.
func writeInfo(w *bufio.Writer, i *image.Info, indent int, path string) {
	ind := strings.Repeat(" ", indent)
	storage := len(i.Children) == 0
	label := func(image, file string) string {
		if storage {
			return file
		}
		return image
	}
	fmt.Fprintf(w, "%s%s: %s\n", ind, label("image", "filename"), i.Filename)
	fmt.Fprintf(w, "%s%s: %s\n", ind, label("file format", "protocol type"), i.Format)
	fmt.Fprintf(w, "%s%s: %s (%d bytes)\n", ind, label("virtual size", "file length"), humanSize(uint64(i.VirtualSize)), i.VirtualSize)
	actual := "unavailable"
	if i.ActualSize >= 0 {
		actual = humanSize(uint64(i.ActualSize))
	}
	fmt.Fprintf(w, "%sdisk size: %s\n", ind, actual)
	if i.Encrypted {
		fmt.Fprintf(w, "%sencrypted: yes\n", ind)
	}
	if i.ClusterSize > 0 {
		fmt.Fprintf(w, "%scluster_size: %d\n", ind, i.ClusterSize)
	}
	if i.Dirty {
		fmt.Fprintf(w, "%scleanly shut down: no\n", ind)
	}
	writeBacking(w, i, ind)
	if len(i.Snapshots) > 0 {
		fmt.Fprintf(w, "%sSnapshot list:\n%s%s\n", ind, ind, snapshotHeader())
		for k := range i.Snapshots {
			fmt.Fprintf(w, "%s%s\n", ind, snapshotRow(&i.Snapshots[k]))
		}
	}
	if len(i.Specific) > 0 {
		fmt.Fprintf(w, "%sFormat specific information:\n", ind)
		writeFields(w, i.Specific, indent+4)
	}
	for _, c := range i.Children {
		fmt.Fprintf(w, "%sChild node '%s%s':\n", ind, path, c.Name)
		writeInfo(w, c.Info, indent+4, path+c.Name+"/")
	}
}

func writeBacking(w *bufio.Writer, i *image.Info, ind string) {
	if i.BackingFilename == "" {
		return
	}
	fmt.Fprintf(w, "%sbacking file: %s", ind, i.BackingFilename)
	switch i.FullBackingFilename {
	case "":
		w.WriteString(" (cannot determine actual path)")
	case i.BackingFilename:
	default:
		fmt.Fprintf(w, " (actual path: %s)", i.FullBackingFilename)
	}
	w.WriteByte('\n')
	if i.BackingFormat != "" {
		fmt.Fprintf(w, "%sbacking file format: %s\n", ind, i.BackingFormat)
	}
}

// writeFields prints named values for people, one a line, nested ones indented.
func writeFields(w *bufio.Writer, fields image.Fields, indent int) {
	for _, f := range fields {
		writeValue(w, strings.ReplaceAll(f.Name, "-", " "), f.Value, indent)
	}
}

func writeValue(w *bufio.Writer, name string, v any, indent int) {
	ind := strings.Repeat(" ", indent)
	switch v := v.(type) {
	case image.Fields:
		fmt.Fprintf(w, "%s%s:\n", ind, name)
		writeFields(w, v, indent+4)
	case []any:
		fmt.Fprintf(w, "%s%s:\n", ind, name)
		for k, e := range v {
			writeValue(w, "["+strconv.Itoa(k)+"]", e, indent+4)
		}
	default:
		fmt.Fprintf(w, "%s%s: %v\n", ind, name, v)
	}
}

// infoFields is the JSON form of a layer.
func infoFields(i *image.Info) image.Fields {
	children := []any{}
	for _, c := range i.Children {
		children = append(children, image.Fields{{Name: "name", Value: c.Name}, {Name: "info", Value: infoFields(c.Info)}})
	}
	var f image.Fields
	add := func(when bool, name string, v any) {
		if when {
			f = append(f, image.Field{Name: name, Value: v})
		}
	}
	add(true, "children", children)
	add(i.BackingFormat != "" && i.BackingFilename != "", "backing-filename-format", i.BackingFormat)
	add(len(i.Snapshots) > 0, "snapshots", snapshotFields(i.Snapshots))
	add(true, "virtual-size", i.VirtualSize)
	add(true, "filename", i.Filename)
	add(i.ClusterSize > 0, "cluster-size", i.ClusterSize)
	add(true, "format", i.Format)
	add(i.ActualSize >= 0, "actual-size", i.ActualSize)
	add(i.SpecificType != "", "format-specific", image.Fields{{Name: "type", Value: i.SpecificType}, {Name: "data", Value: i.Specific}})
	add(i.FullBackingFilename != "", "full-backing-filename", i.FullBackingFilename)
	add(i.Encrypted, "encrypted", true)
	add(i.BackingFilename != "", "backing-filename", i.BackingFilename)
	add(i.HasDirty, "dirty-flag", i.Dirty)
	return f
}

func snapshotFields(list []image.Snapshot) (out []any) {
	for _, s := range list {
		var f image.Fields
		if s.ICount != -1 {
			f = image.Fields{{Name: "icount", Value: s.ICount}}
		}
		out = append(out, append(f,
			image.Field{Name: "vm-clock-nsec", Value: int64(s.VMClock % 1e9)},
			image.Field{Name: "name", Value: s.Name},
			image.Field{Name: "date-sec", Value: s.Date.Unix()},
			image.Field{Name: "date-nsec", Value: int64(s.Date.Nanosecond())},
			image.Field{Name: "vm-clock-sec", Value: int64(s.VMClock / 1e9)},
			image.Field{Name: "id", Value: s.ID},
			image.Field{Name: "vm-state-size", Value: int64(s.VMStateSize)}))
	}
	return out
}
