package cli

import (
	"bufio"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"byre/image"
	"byre/qcow2/inspect"
	"byre/qcow2/layout"
)

func init() {
	register(verb{
		name: "inspect", summary: "show the metadata of a qcow2 image, however broken, entry by entry", operand: "FILE",
		common: optObject | optImageOpts | optFormat | optForceShare | optOutput, min: 1, max: 1,
		opts: []opt{
			{long: "safety", help: "say instead what the image refers to and what is odd about it, opening none of it"},
			{long: "l1", help: "list the L1 table"},
			{long: "l2", help: "list the L2 entries, runs of them on one line"},
			{long: "refcounts", help: "list the refcounts, runs of them on one line"},
			{long: "snapshot", arg: needArg, name: "SNAPSHOT", help: "list the L1 and L2 tables of this snapshot (id or name)"},
			{short: 's', long: "start-offset", arg: needArg, name: "SIZE", help: "with --l2: begin at this guest offset"},
			{short: 'l', long: "max-length", arg: needArg, name: "SIZE", help: "with --l2: at most this many guest bytes"},
		},
		note: "Only FILE itself is read. Entries that are 0 are left out of lists. What contradicts the format is listed too;\n" +
			"what contradicts itself across tables is for 'check' to find.",
		run: runInspect,
	})
}

func runInspect(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	name := o.args[0]
	st, err := image.OpenStorage(c.Context, name, o.openOptions()...)
	if err != nil {
		return c.openErrorf(name, err)
	}
	defer st.Close()
	w := bufio.NewWriterSize(c.Stdout, 64<<10)
	if o.has("safety") {
		err = o.safety(w, st)
	} else {
		err = o.inspect(w, st)
	}
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	if err != nil {
		return c.errorf("%v", err)
	}
	return 0
}

// list is one of the long lists, made while it is printed.
type list struct {
	name    string
	records iter.Seq2[image.Fields, error]
}

// inspect prints what the options ask for.
func (o *options) inspect(w *bufio.Writer, st *image.Image) error {
	f, err := inspect.Open(o.c.Context, st.Device())
	if err != nil {
		return err
	}
	lists, err := o.lists(f)
	if err != nil {
		return err
	}
	fields := image.Fields{{Name: "filename", Value: st.Filename()}, {Name: "length", Value: st.Size()}}
	fields = append(fields, o.headerFields(f)...)
	if o.json {
		return writeInspectJSON(w, fields, lists)
	}
	return writeInspectText(w, fields, lists)
}

// lists are the long lists that were asked for.
func (o *options) lists(f *inspect.File) (out []list, err error) {
	ctx := o.c.Context
	from, err := o.size("start-offset", 0)
	if err != nil {
		return nil, err
	}
	n, err := o.size("max-length", 1<<63-1)
	if err != nil {
		return nil, err
	}
	table := f.Active()
	if o.has("snapshot") {
		s, err := f.FindSnapshot(ctx, o.value("snapshot", ""))
		if err != nil {
			return nil, err
		}
		table = s.Table()
	}
	end := int64(1<<63 - 1)
	if n < end-from {
		end = from + n
	}
	if o.has("l1") || o.has("snapshot") && !o.has("l2") {
		out = append(out, list{"l1", fieldsOf(f.L1(ctx, table), l1Fields)})
	}
	if o.has("l2") {
		out = append(out, list{"l2", fieldsOf(f.L2(ctx, table, layout.GuestOffset(from), layout.GuestOffset(end)), l2Fields)})
	}
	if o.has("refcounts") {
		out = append(out, list{"refcounts", fieldsOf(f.Refcounts(ctx), refcountFields)})
	}
	return out, nil
}

// fieldsOf turns records into named values.
func fieldsOf[R any](records iter.Seq2[R, error], fields func(*R) image.Fields) iter.Seq2[image.Fields, error] {
	return func(yield func(image.Fields, error) bool) {
		for r, err := range records {
			var out image.Fields
			if err == nil {
				out = fields(&r)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

func l1Fields(r *inspect.L1Record) image.Fields {
	f := image.Fields{{Name: "index", Value: r.Index}, {Name: "guest", Value: hexOf(int64(r.Guest))},
		{Name: "raw", Value: hexOf(int64(r.Raw))}, {Name: "l2-table", Value: hexOf(int64(r.L2))}, {Name: "copied", Value: r.Copied}}
	return addProblem(f, strings.Join(r.Problems, "; "))
}

func l2Fields(r *inspect.L2Record) image.Fields {
	f := image.Fields{{Name: "l1-index", Value: r.L1Index}, {Name: "index", Value: int64(r.Index)}, {Name: "count", Value: int64(r.Count)},
		{Name: "guest", Value: hexOf(int64(r.Guest))}}
	if r.Count > 0 {
		kind := r.Type.String()
		if r.Mixed {
			kind = "mixed"
		}
		f = append(f, image.Field{Name: "raw", Value: hexOf(int64(r.Raw))}, image.Field{Name: "type", Value: kind})
		if r.Bitmap != 0 {
			f = append(f, image.Field{Name: "bitmap", Value: hexOf(int64(r.Bitmap))})
		}
		if r.Host != 0 || r.Type == layout.TypeNormal {
			f = append(f, image.Field{Name: "host", Value: hexOf(int64(r.Host))})
		}
		if r.Length > 0 {
			f = append(f, image.Field{Name: "stream-length", Value: r.Length})
		}
		f = append(f, image.Field{Name: "copied", Value: r.Copied})
	}
	return addProblem(f, r.Problem)
}

func refcountFields(r *inspect.RefcountRecord) image.Fields {
	return image.Fields{{Name: "cluster", Value: r.Cluster}, {Name: "count", Value: r.Count}, {Name: "refcount", Value: hugeNumber(r.Value)}}
}

// hugeNumber is a number that may not fit int64.
func hugeNumber(v uint64) any {
	if v <= 1<<63-1 {
		return int64(v)
	}
	return fmt.Sprint(v)
}

func addProblem(f image.Fields, p string) image.Fields {
	if p == "" {
		return f
	}
	return append(f, image.Field{Name: "problem", Value: p})
}

// hexOf writes offsets and raw words as hexadecimal strings, of which JSON loses no bit.
func hexOf(v int64) string { return fmt.Sprintf("%#x", uint64(v)) }

// writeInspectJSON prints one object; the entries of long lists are one line each.
func writeInspectJSON(w *bufio.Writer, fields image.Fields, lists []list) error {
	w.WriteString("{\n")
	for i, f := range fields {
		w.WriteString("    ")
		w.Write(scalar(f.Name))
		w.WriteString(": ")
		writeJSON(w, f.Value, 1)
		if i < len(fields)-1 || len(lists) > 0 {
			w.WriteByte(',')
		}
		w.WriteByte('\n')
	}
	var firstErr error
	for i, l := range lists {
		w.WriteString("    ")
		w.Write(scalar(l.name))
		w.WriteString(": [")
		first := true
		for r, err := range l.records {
			if err != nil {
				firstErr = firstError(firstErr, err)
				r = image.Fields{{Name: "problem", Value: err.Error()}}
			}
			if !first {
				w.WriteByte(',')
			}
			first = false
			w.WriteString("\n        ")
			writeFlat(w, r)
		}
		w.WriteString("\n    ]")
		if i < len(lists)-1 {
			w.WriteByte(',')
		}
		w.WriteByte('\n')
	}
	w.WriteString("}\n")
	return firstErr
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// writeFlat prints an object on one line.
func writeFlat(w *bufio.Writer, f image.Fields) {
	w.WriteByte('{')
	for i, x := range f {
		if i > 0 {
			w.WriteString(", ")
		}
		w.Write(scalar(x.Name))
		w.WriteString(": ")
		w.Write(scalar(x.Value))
	}
	w.WriteByte('}')
}

// writeInspectText prints the same for people.
func writeInspectText(w *bufio.Writer, fields image.Fields, lists []list) error {
	writeQuoted(w, fields, 0)
	var firstErr error
	for _, l := range lists {
		fmt.Fprintf(w, "%s:\n", l.name)
		for r, err := range l.records {
			if err != nil {
				firstErr = firstError(firstErr, err)
				break
			}
			w.WriteString("   ")
			for _, x := range r {
				fmt.Fprintf(w, " %s=%v", x.Name, quoteOdd(x.Value))
			}
			w.WriteByte('\n')
		}
	}
	return firstErr
}

// writeQuoted is writeFields with what comes from the image made harmless for a terminal.
func writeQuoted(w *bufio.Writer, fields image.Fields, indent int) {
	for _, f := range fields {
		quoted(w, strings.ReplaceAll(f.Name, "-", " "), f.Value, indent)
	}
}

func quoted(w *bufio.Writer, name string, v any, indent int) {
	ind := strings.Repeat(" ", indent)
	switch v := v.(type) {
	case image.Fields:
		fmt.Fprintf(w, "%s%s:\n", ind, name)
		writeQuoted(w, v, indent+4)
	case []any:
		fmt.Fprintf(w, "%s%s:\n", ind, name)
		if len(v) == 0 {
			fmt.Fprintf(w, "%s    none\n", ind)
		}
		for k, e := range v {
			if s, ok := e.(string); ok {
				fmt.Fprintf(w, "%s    %s\n", ind, quoteOdd(s))
				continue
			}
			quoted(w, fmt.Sprintf("[%d]", k), e, indent+4)
		}
	default:
		fmt.Fprintf(w, "%s%s: %v\n", ind, name, quoteOdd(v))
	}
}

// quoteOdd quotes a string that has anything but printable characters in it, so that it cannot drive a terminal.
func quoteOdd(v any) any {
	s, ok := v.(string)
	if ok && (!utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })) {
		return strconv.Quote(s)
	}
	return v
}
