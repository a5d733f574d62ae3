package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"byre/bench/compare"
)

// all measures ready-made matrices, all or those named, and writes the page about them.
func (sb *simplebench) all(names []string) int {
	var list []compare.Matrix
	for _, name := range names {
		m, ok := compare.FindMatrix(name)
		if !ok {
			return sb.c.errorf("there is no matrix '%s' (simplebench list shows them)", name)
		}
		list = append(list, m)
	}
	if names == nil {
		list = compare.Matrices()
	}
	dir := sb.results
	if dir == defaultResults {
		dir = "performance"
	}
	page := sb.page
	if page == "" {
		page = "performance.md"
	}
	if err := sb.checkAll(list); err != nil {
		return sb.c.errorf("%v", err)
	}
	if !sb.dryRun {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return sb.c.errorf("%v", err)
		}
	}
	var chapters []compare.Chapter
	for _, m := range list {
		ch, err := sb.chapter(m, dir, page)
		if ch != nil {
			chapters = append(chapters, *ch)
		}
		if errors.Is(err, context.Canceled) {
			sb.c.errorf("interrupted; what was measured is in %s (--resume goes on)", dir)
			return 130
		}
		if err != nil {
			return sb.c.errorf("%s: %v", m.Name, err)
		}
	}
	if sb.dryRun {
		return 0
	}
	err := writeTo(page, func(w io.Writer) error {
		return compare.WritePage(w, sb.bins[0].Label, sb.reproduce(names), chapters)
	})
	if err != nil {
		return sb.c.errorf("%v", err)
	}
	return 0
}

// checkAll finds out before anything is measured whether every template can be: a --set is for the matrices that have
// a switch of that name, and one of them must.
func (sb *simplebench) checkAll(list []compare.Matrix) error {
	dry := *sb
	dry.dryRun = true // no folders to work in
	used := map[string]bool{}
	for _, m := range list {
		given, cleanup, err := dry.given(m.Template)
		if err != nil {
			return err
		}
		cleanup()
		tpl, err := compare.Parse(m.Template, given...)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		for _, s := range sb.set {
			used[s] = used[s] || tpl.Switch(setName(s)) != nil
		}
		dry.set = setsFor(tpl, sb.set)
		if _, err := dry.parse(m.Template, given); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	for _, s := range sb.set {
		if !used[s] {
			return fmt.Errorf("--set %s: no matrix has a switch named %q", s, setName(s))
		}
	}
	sb.partial = true
	return nil
}

func setName(s string) string {
	name, _, _ := strings.Cut(s, "=")
	return name
}

// setsFor are those of the --set options that the template has a switch for.
func setsFor(tpl *compare.Template, set []string) (list []string) {
	for _, s := range set {
		if tpl.Switch(setName(s)) != nil {
			list = append(list, s)
		}
	}
	return list
}

// chapter measures one matrix, prints it and leaves its results and plot in dir.
func (sb *simplebench) chapter(m compare.Matrix, dir, page string) (*compare.Chapter, error) {
	if !sb.quiet {
		fmt.Fprintf(sb.c.Stderr, "== %s: %s\n", m.Name, m.Title)
	}
	res, err := sb.measure(m.Template, m.Title, filepath.Join(dir, m.Name+".json"))
	if res == nil || err != nil {
		return nil, err
	}
	picture := filepath.Join(dir, m.Name+".svg")
	if err := writeTo(picture, res.WriteSVG); err != nil {
		return nil, err
	}
	if err := res.WriteText(sb.c.Stdout, sb.table); err != nil {
		return nil, err
	}
	res.WriteFailures(sb.c.Stderr)
	rel, err := filepath.Rel(filepath.Dir(page), picture)
	if err != nil {
		rel = picture
	}
	return &compare.Chapter{Matrix: m, Results: res, Picture: filepath.ToSlash(rel)}, nil
}

// reproduce is the command line of the page, without paths of this machine.
func (sb *simplebench) reproduce(names []string) string {
	parts := []string{"byre", "simplebench"}
	for _, p := range sb.asGiven {
		if p.key == "page" || p.key == "results" || p.key == "resume" {
			continue
		}
		arg := "--" + p.key
		value := p.value
		switch p.key {
		case "bin", "against":
			name, path, ok := strings.Cut(value, "=")
			if !ok {
				name, path = filepath.Base(value), value
			}
			value = name + "=" + filepath.Base(path)
		case "dir":
			name, _, _ := strings.Cut(value, ":")
			value = name + ":PATH"
		}
		if value != "" {
			if strings.ContainsAny(value, " |'\"$<>") {
				value = "'" + value + "'"
			}
			arg += " " + value
		}
		parts = append(parts, arg)
	}
	return strings.Join(append(append(parts, "all"), names...), " ")
}

// versions asks the binaries who they are.
func versions(bins []compare.Alternative) map[string]string {
	m := map[string]string{}
	for _, b := range bins {
		out, err := exec.Command(b.Text, "--version").Output()
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(out), "\n")
		m[b.Label] = strings.TrimSpace(line)
	}
	return m
}
