package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"

	"byre/block"
	"byre/image"
)

func init() {
	register(verb{
		name: "map", summary: "list where the contents of an image lie", operand: "FILE",
		common: optObject | optImageOpts | optFormat | optForceShare | optOutput, min: 1, max: 1,
		opts: []opt{
			{short: 's', long: "start-offset", arg: needArg, name: "SIZE", help: "begin at this guest offset"},
			{short: 'l', long: "max-length", arg: needArg, name: "SIZE", help: "list at most this many guest bytes"},
		},
		note: `The human form lists data that lies as it is in some file; it fails if there is data that does not
(compressed or encrypted). The JSON form lists everything: one object an extent, with
  start, length   guest bytes
  depth           layer that decides the contents; 0 is FILE, 1 its backing file
  present         some layer of the chain holds the extent
  zero            reads as zeros
  data            comes from stored data
  compressed      is stored compressed
  offset          where it lies in its file, if it lies there as it is`,
		run: runMap,
	})
}

func runMap(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	start, err := o.size("start-offset", 0)
	if err != nil {
		return c.errorf("%v", err)
	}
	length, err := o.size("max-length", -1)
	if err != nil {
		return c.errorf("%v", err)
	}
	im, err := o.open(o.args[0])
	if err != nil {
		return c.openErrorf(o.args[0], err)
	}
	defer im.Close()
	if length < 0 {
		length = im.Size()
	}
	w := bufio.NewWriterSize(c.Stdout, 64<<10)
	list := mapHuman
	if o.json {
		list = mapJSON
	}
	err = list(c.Context, w, im, start, length)
	if ferr := w.Flush(); err == nil && ferr != nil {
		err = ferr
	}
	if err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

var errNotPlain = errors.New("the image has external, compressed or encrypted data, which has no place to list; try --output=json")

func mapHuman(ctx context.Context, w *bufio.Writer, im *image.Image, start, length int64) error {
	line := make([]byte, 0, 128)
	line = appendColumn(appendColumn(appendColumn(line, "Offset"), "Length"), "Mapped to")
	w.Write(append(line, "File\n"...))
	for e, err := range im.Extents(ctx, start, length, block.WantZero) {
		if err != nil {
			return err
		}
		if e.Flags&block.Data == 0 || e.IsZero() {
			continue
		}
		if e.Flags&block.HasHost == 0 {
			return errNotPlain
		}
		line = appendHex(appendHex(appendHex(line[:0], e.Start), e.Length), e.Host)
		line = append(append(line, e.File...), '\n')
		w.Write(line)
	}
	return nil
}

const columnWidth = 16

func appendColumn(b []byte, s string) []byte {
	b = append(b, s...)
	for n := len(s); n < columnWidth; n++ {
		b = append(b, ' ')
	}
	return b
}

func appendHex(b []byte, v int64) []byte {
	if v == 0 {
		return appendColumn(b, "0")
	}
	at := len(b)
	b = strconv.AppendInt(append(b, "0x"...), v, 16)
	for len(b)-at < columnWidth {
		b = append(b, ' ')
	}
	return b
}

// mapJSON writes the list as text that equals the real tools' byte for byte. A range without extents is listed as one
// of length 0, as they do.
func mapJSON(ctx context.Context, w *bufio.Writer, im *image.Image, start, length int64) error {
	line := append(make([]byte, 0, 256), '[')
	first := true
	for e, err := range im.Extents(ctx, start, length, block.WantZero) {
		if err != nil {
			w.Write(line)
			return err
		}
		if !first {
			line = append(line, ",\n"...)
		}
		first = false
		line = appendExtent(line, &e)
		w.Write(line)
		line = line[:0]
	}
	if first {
		line = appendExtent(line, &block.Extent{Start: start})
	}
	w.Write(line)
	_, err := io.WriteString(w, "]\n")
	return err
}

func appendExtent(b []byte, e *block.Extent) []byte {
	b = strconv.AppendInt(append(b, `{ "start": `...), e.Start, 10)
	b = strconv.AppendInt(append(b, `, "length": `...), e.Length, 10)
	b = strconv.AppendInt(append(b, `, "depth": `...), int64(e.Depth), 10)
	b = strconv.AppendBool(append(b, `, "present": `...), e.Flags&block.Allocated != 0)
	b = strconv.AppendBool(append(b, `, "zero": `...), e.IsZero())
	b = strconv.AppendBool(append(b, `, "data": `...), e.Flags&block.Data != 0)
	b = strconv.AppendBool(append(b, `, "compressed": `...), e.Flags&block.CompressedData != 0)
	if e.Flags&block.HasHost != 0 {
		b = strconv.AppendInt(append(b, `, "offset": `...), e.Host, 10)
	}
	return append(b, '}')
}
