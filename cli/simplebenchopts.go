package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"byre/bench/compare"
)

// simplebench is a decoded command line.
type simplebench struct {
	c          *call
	quiet      bool
	config     compare.Config
	table      compare.TableOptions
	text       string // -e
	title      string
	bins, dirs []compare.Alternative
	set        []string
	exclude    []string
	dryRun     bool
	resume     bool
	results    string
	output     string
	html, svg  string
	page       string
	partial    bool     // several templates: a --set need not be for each
	asGiven    []parsed // all options, for the page
	failIf     []*compare.Condition
}

const defaultResults = "results.json"

// simplebench decodes the options.
func (o *options) simplebench() (*simplebench, error) {
	sb := &simplebench{c: o.c, quiet: o.quiet, results: defaultResults, asGiven: o.own}
	sb.config = compare.Config{Rounds: 10, Warmup: 1, Reruns: 3, SlowLimit: 100 * time.Second}
	replaced := false
	var against []compare.Alternative
	for _, p := range o.own {
		var err error
		switch p.key {
		case "bin", "against":
			var alt compare.Alternative
			if alt, err = namedBinary(p.value); p.key == "bin" {
				sb.bins, replaced = append(sb.bins, alt), true
			} else {
				against = append(against, alt)
			}
		default:
			err = sb.take(p)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", p.key, err)
		}
	}
	if !replaced {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		sb.bins = []compare.Alternative{{Label: "byre", Text: self}}
	}
	sb.bins = append(sb.bins, against...)
	return sb, nil
}

// take decodes one option.
func (sb *simplebench) take(p parsed) (err error) {
	switch p.key {
	case "template":
		sb.text = p.value
	case "count":
		sb.config.Rounds, err = smallNumber(p.value, 1)
	case "warmup":
		sb.config.Warmup, err = smallNumber(p.value, 0)
	case "rerun":
		sb.config.Reruns, err = smallNumber(p.value, 0)
	case "slow-limit":
		sb.config.SlowLimit, err = benchTime(p.value, "time")
	case "timeout":
		sb.config.Timeout, err = benchTime(p.value, "time")
	case "drop-caches":
		sb.config.DropCaches = true
	case "drop-file":
		sb.config.DropFiles = append(sb.config.DropFiles, p.value)
	case "dir":
		var alt compare.Alternative
		alt, err = namedDir(p.value)
		sb.dirs = append(sb.dirs, alt)
	case "set":
		if name, alts, ok := strings.Cut(p.value, "="); !ok || name == "" || alts == "" {
			err = fmt.Errorf("%q: want NAME=A|B", p.value)
		}
		sb.set = append(sb.set, p.value)
	case "exclude":
		sb.exclude = append(sb.exclude, p.value)
	case "regex":
		sb.config.Extract.Pattern, err = regexp.Compile(p.value)
	case "wall":
		sb.config.Extract.Wall = true
	case "dimension":
		sb.config.Extract.Dimension, err = oneOf(p.value, compare.Seconds, compare.IOPS)
	case "dry-run":
		sb.dryRun = true
	case "resume":
		sb.resume = true
	case "results":
		sb.results = p.value
	case "output":
		sb.output, err = oneOf(p.value, "text", "markdown", "csv", "json")
	case "diff":
		sb.table.Diff, err = oneOf(p.value, "all", "first", "none")
	case "sentences":
		yes := true
		sb.table.Sentences = &yes
	case "html":
		sb.html = p.value
	case "page":
		sb.page = p.value
	case "svg":
		sb.svg = p.value
	case "title":
		sb.title = p.value
	case "fail-if":
		var c *compare.Condition
		c, err = compare.ParseCondition(p.value)
		sb.failIf = append(sb.failIf, c)
	case "confidence":
		sb.config.Confidence, err = percentage(p.value, 50, 99.9999)
	case "margin":
		sb.config.Margin, err = percentage(p.value, 0, 100)
	}
	return err
}

func smallNumber(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 1e6 {
		return 0, fmt.Errorf("%q is no number of at least %d", s, least)
	}
	return n, nil
}

func oneOf(s string, choices ...string) (string, error) {
	if !slices.Contains(choices, s) {
		return "", fmt.Errorf("%q is none of %s", s, strings.Join(choices, ", "))
	}
	return s, nil
}

// percentage decodes 99 or 99% as 0.99.
func percentage(s string, least, most float64) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v > least && v <= most) {
		return 0, fmt.Errorf("%q is no percentage between %g and %g", s, least, most)
	}
	return v / 100, nil
}

// namedBinary decodes NAME=PATH; the name may be left out.
func namedBinary(s string) (compare.Alternative, error) {
	name, path, ok := strings.Cut(s, "=")
	if !ok {
		name, path = filepath.Base(s), s
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return compare.Alternative{}, err
	}
	if found, err = filepath.Abs(found); err != nil {
		return compare.Alternative{}, err
	}
	if strings.ContainsAny(found, " \t\n'\"\\$") {
		return compare.Alternative{}, fmt.Errorf("%q: a path with blanks or quotes cannot stand in a script", found)
	}
	return compare.Alternative{Label: name, Text: found}, nil
}

// namedDir decodes NAME:PATH; the name may be left out.
func namedDir(s string) (compare.Alternative, error) {
	name, path, ok := strings.Cut(s, ":")
	if !ok {
		name, path = s, s
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return compare.Alternative{}, err
	}
	st, err := os.Stat(path)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is no folder", path)
	}
	return compare.Alternative{Label: name, Text: path}, err
}

// given makes the switches bin and dir, as far as the template or the command line wants them. Each folder to work in
// is a new one, which cleanup removes.
func (sb *simplebench) given(source string) (list []*compare.Switch, cleanup func(), err error) {
	var made []string
	cleanup = func() {
		for _, d := range made {
			os.RemoveAll(d)
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(s string) bool { return strings.Contains(source, s) })
	}
	definesBin := has("{{bin:", "[[bin:")
	if has("{{bin}}") && !definesBin || len(sb.bins) > 1 || sb.bins[0].Label != "byre" {
		list = append(list, &compare.Switch{Name: "bin", Axis: compare.Column, Alts: sb.bins})
	}
	dirs := sb.dirs
	if has("[[dir]]") && !has("[[dir:") && len(dirs) == 0 {
		dirs = []compare.Alternative{{Text: "."}}
	}
	if len(dirs) == 0 {
		return list, cleanup, nil
	}
	sw := &compare.Switch{Name: "dir", Axis: compare.Row}
	for _, d := range dirs {
		if len(dirs) == 1 {
			d.Label = "" // no choice, hence no part of the rows' names
		}
		if !sb.dryRun {
			if d.Text, err = os.MkdirTemp(d.Text, "simplebench-"); err == nil {
				made = append(made, d.Text)
				d.Text, err = filepath.Abs(d.Text)
			}
		}
		if err == nil && strings.ContainsAny(d.Text, " \t\n'\"\\$,") {
			err = fmt.Errorf("%q: a path with blanks, commas or quotes cannot stand in a script", d.Text)
		}
		if err != nil {
			cleanup()
			return nil, nil, err
		}
		sw.Alts = append(sw.Alts, d)
	}
	return append(list, sw), cleanup, nil
}
