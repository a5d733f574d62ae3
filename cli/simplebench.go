package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"byre/bench/compare"

	"golang.org/x/term"
)

func init() {
	register(verb{
		name:    "simplebench",
		summary: "compare commands, binaries and images by a matrix of runs",
		operand: "[TEMPLATE | MATRIX | show RESULTS… | print MATRIX | list | all]",
		common:  optQuiet,
		opts: []opt{
			{short: 'e', long: "template", arg: needArg, name: "TEXT", help: "the template itself"},
			{short: 'c', long: "count", arg: needArg, name: "N", help: "measured runs of each cell (10)"},
			{long: "warmup", arg: needArg, name: "N", help: "runs of each cell before (1)"},
			{long: "rerun", arg: needArg, name: "N", help: "rounds of a row that may be measured again when a value lies far off (3)"},
			{long: "slow-limit", arg: needArg, name: "TIME", help: "no more runs of a cell after one that took longer (100 s)"},
			{long: "timeout", arg: needArg, name: "TIME", help: "a run that takes longer has failed"},
			{long: "drop-caches", help: "empty the machine's page cache before each run (needs root)"},
			{long: "drop-file", arg: needArg, name: "FILE", help: "take FILE out of the page cache before each run"},
			{long: "bin", arg: needArg, name: "NAME=PATH", help: "a column for this binary: {{bin}} or $BIN in the template"},
			{long: "against", arg: needArg, name: "NAME=PATH", help: "another one, next to this byre or the --bin ones"},
			{long: "dir", arg: needArg, name: "NAME:PATH", help: "a row for this folder to work in: [[dir]] or $DIR"},
			{long: "set", arg: needArg, name: "NAME=A|B", help: "other alternatives for a named switch"},
			{long: "exclude", arg: needArg, name: "NAME=A,…", help: "leave out the cells with these choices"},
			{long: "regex", arg: needArg, name: "RE", help: "the first group is the measurement"},
			{long: "wall", help: "measure the whole script"},
			{long: "dimension", arg: needArg, name: "UNIT", help: "seconds or iops"},
			{long: "dry-run", help: "print every command instead"},
			{long: "resume", help: "go on with the runs of the results file"},
			{long: "results", arg: needArg, name: "FILE", help: "where results go (results.json)"},
			{long: "output", arg: needArg, name: "FORM", help: "text, markdown, csv or json"},
			{long: "diff", arg: needArg, name: "WHICH", help: "differences to all earlier columns, the first, or none"},
			{long: "sentences", help: "say each comparison in words"},
			{long: "html", arg: needArg, name: "FILE", help: "write a report with pictures"},
			{long: "svg", arg: needArg, name: "FILE", help: "write one plot"},
			{long: "page", arg: needArg, name: "FILE", help: "where all writes its page (performance.md)"},
			{long: "title", arg: needArg, name: "TEXT", help: "of the report"},
			{long: "fail-if", arg: needArg, name: "CONDITION", help: "exit with 1 if it holds, such as 'new > old * 1.05'"},
			{long: "confidence", arg: needArg, name: "PERCENT", help: "of intervals (99)"},
			{long: "margin", arg: needArg, name: "PERCENT", help: "a difference below it does not matter (5)"},
		},
		min: 0, max: -1,
		note: simplebenchNote,
		run:  runSimplebench,
	})
}

const simplebenchNote = `A template is a bash script with switches: {a|b} gives columns, [x|y] gives rows, several give their products. It ends
in a command that prints "Run completed in N seconds.", or JSON as bench and fio do. Without a TEMPLATE, standard
input is read. {{name: a|b}} and [[name: x|y]] name a switch, {{name}} and [[name]] use its choice again. An alternative
may be empty; \{ \} \[ \] \| are plain characters; {{!exclude name=a, other=x}} leaves out cells.

    byre simplebench -e '{qemu-img|byre} bench -f raw -c 10000 [-s 4K|-s 64K] disk.img'
    byre simplebench --bin old=./a/byre --bin new=./b/byre --fail-if 'new > old * 1.05' convert
    byre simplebench --against qemu-img=/usr/bin/qemu-img --html report.html subclusters

MATRIX is a ready-made template (list shows them, print shows one); all measures every one, or those named behind it,
and writes a page about them in Markdown (--page), with results and plots in a folder (--results). show prints saved
results, or those of several files side by side. Exit status: 0; 1 when nothing could be measured or a --fail-if condition holds; 130 when interrupted.`

func runSimplebench(c *call) int {
	o, code, done := c.parse()
	if done {
		return code
	}
	sb, err := o.simplebench()
	if err != nil {
		return c.errorf("%v", err)
	}
	first := ""
	if len(o.args) > 0 {
		first = o.args[0]
	}
	switch first {
	case "show":
		return sb.show(o.args[1:])
	case "list":
		for _, m := range compare.Matrices() {
			fmt.Fprintf(c.Stdout, "%-21s %s\n", m.Name, m.Title)
		}
		return 0
	case "print":
		return sb.print(o.args[1:])
	case "all":
		return sb.all(o.args[1:])
	}
	if len(o.args) > 1 {
		return c.usageErrorf("Too many arguments: unexpected '%s'", o.args[1])
	}
	return sb.template(first)
}

// print shows ready-made templates.
func (sb *simplebench) print(names []string) int {
	if len(names) == 0 {
		return sb.c.usageErrorf("print: Expecting the name of a matrix")
	}
	for _, name := range names {
		m, ok := compare.FindMatrix(name)
		if !ok {
			return sb.c.errorf("there is no matrix '%s' ('%s list' shows them)", name, "simplebench")
		}
		io.WriteString(sb.c.Stdout, m.Template)
	}
	return 0
}

// template measures one template and reports.
func (sb *simplebench) template(operand string) int {
	source, title, err := sb.source(operand)
	if err != nil {
		return sb.c.errorf("%v", err)
	}
	if sb.title != "" {
		title = sb.title
	}
	res, err := sb.measure(source, title, sb.results)
	switch {
	case res == nil && err == nil: // dry run
		return 0
	case res == nil:
		return sb.c.errorf("%v", err)
	}
	code := sb.report(res)
	if errors.Is(err, context.Canceled) {
		sb.c.errorf("interrupted; what was measured is in %s (--resume goes on)", sb.results)
		return 130
	}
	if err != nil {
		return sb.c.errorf("%v", err)
	}
	return code
}

// source finds the template that the command line means.
func (sb *simplebench) source(operand string) (source, title string, err error) {
	switch {
	case sb.text != "" && operand != "":
		return "", "", errors.New("a template was given twice, by -e and as an argument")
	case sb.text != "":
		return sb.text, "", nil
	case operand == "" || operand == "-":
		if f, ok := sb.c.Stdin.(*os.File); ok && operand == "" && term.IsTerminal(int(f.Fd())) {
			return "", "", errors.New("no template: give a file, a matrix or text on standard input (--help explains)")
		}
		data, err := io.ReadAll(io.LimitReader(sb.c.Stdin, maxTemplate))
		return string(data), "", err
	}
	if m, ok := compare.FindMatrix(operand); ok {
		return m.Template, m.Title, nil
	}
	f, err := os.Open(operand)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTemplate))
	return string(data), filepath.Base(operand), err
}

const maxTemplate = 1 << 20

// measure runs a template. Dry runs give neither results nor an error.
func (sb *simplebench) measure(source, title, results string) (*compare.Results, error) {
	given, cleanup, err := sb.given(source)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	tpl, err := sb.parse(source, given)
	if err != nil {
		return nil, err
	}
	for _, cond := range sb.failIf {
		if err := cond.Check(tpl); err != nil {
			return nil, err
		}
	}
	if sb.dryRun {
		names, scripts := tpl.Commands()
		for i := range names {
			if names[i] != "" {
				fmt.Fprintf(sb.c.Stdout, "# %s\n", names[i])
			}
			fmt.Fprintln(sb.c.Stdout, strings.TrimRight(scripts[i], "\n"))
		}
		return nil, nil
	}
	cfg := sb.config
	cfg.Template, cfg.Title = tpl, title
	for _, sw := range given {
		if sw.Name == "bin" {
			cfg.Versions = versions(sw.Alts)
		}
	}
	if sb.resume {
		if cfg.Resume, err = compare.Load(results); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	cfg.Save = func(r *compare.Results) error { return r.Save(results) }
	progress := newBenchProgress(sb.c, sb.quiet)
	cfg.Progress = progress.tell
	res, err := compare.Measure(sb.c.Context, cfg)
	progress.end()
	return res, err
}

// parse reads the template with the given switches and those of --set and --exclude.
func (sb *simplebench) parse(source string, given []*compare.Switch) (*compare.Template, error) {
	tpl, err := compare.Parse(source, given...)
	if err != nil {
		return nil, err
	}
	set := sb.set
	if sb.partial {
		set = setsFor(tpl, set)
	}
	if len(set) > 0 {
		for _, s := range set {
			name, alts, _ := strings.Cut(s, "=")
			sw := tpl.Switch(name)
			if sw == nil || sw.Implicit {
				return nil, fmt.Errorf("--set %s: the template has no switch named %q", s, name)
			}
			other := &compare.Switch{Name: name, Axis: sw.Axis}
			for _, alt := range strings.Split(alts, "|") {
				other.Alts = append(other.Alts, compare.Alternative{Label: alt, Text: alt})
			}
			given = append(given, other)
		}
		if tpl, err = compare.Parse(source, given...); err != nil {
			return nil, err
		}
	}
	for _, spec := range sb.exclude {
		if err := tpl.Exclude(spec); err != nil {
			return nil, err
		}
	}
	return tpl, nil
}

// report prints the results, writes the pictures and judges the conditions.
func (sb *simplebench) report(res *compare.Results) int {
	if err := sb.write(res); err != nil {
		return sb.c.errorf("%v", err)
	}
	res.WriteFailures(sb.c.Stderr)
	code := 1
	for _, row := range res.Cases {
		for _, col := range res.Envs {
			if res.Cell(row, col).Ran() {
				code = 0
			}
		}
	}
	if code != 0 {
		sb.c.errorf("nothing could be measured")
	}
	for _, cond := range sb.failIf {
		list, err := cond.Judge(res)
		if err != nil {
			return sb.c.errorf("%v", err)
		}
		for _, j := range list {
			if j.Holds || j.Missing {
				code = 1
			}
			fmt.Fprintln(sb.c.Stderr, j.Sentence(cond))
		}
	}
	return code
}

// write prints the results in the form asked for, and writes the pictures.
func (sb *simplebench) write(res *compare.Results) error {
	var err error
	switch w := sb.c.Stdout; sb.output {
	case "markdown":
		err = res.WriteMarkdown(w, sb.table)
	case "csv":
		err = res.WriteCSV(w)
	case "json":
		err = res.WriteJSON(w)
	default:
		err = res.WriteText(w, sb.table)
	}
	return errors.Join(err, writeTo(sb.html, res.WriteHTML), writeTo(sb.svg, res.WriteSVG))
}

// writeTo writes a file unless it has no name.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// show prints saved results, those of several files side by side.
func (sb *simplebench) show(files []string) int {
	if len(files) == 0 {
		return sb.c.usageErrorf("show: Expecting results files")
	}
	var list []*compare.Results
	for _, f := range files {
		r, err := compare.Load(f)
		if err != nil {
			return sb.c.errorf("%v", err)
		}
		if sb.config.Confidence != 0 {
			r.Confidence = sb.config.Confidence
		}
		if sb.config.Margin != 0 {
			r.Margin = sb.config.Margin
		}
		if len(list) > 0 && !r.Machine.Same(list[0].Machine) {
			fmt.Fprintf(sb.c.Stderr, "%s: warning: %s and %s are from different machines (%s; %s): differences between them say little\n",
				sb.c.prog, files[0], f, list[0].Machine, r.Machine)
		}
		list = append(list, r)
	}
	if len(list) == 1 {
		return sb.report(list[0])
	}
	return sb.report(compare.Merge(files, list))
}
