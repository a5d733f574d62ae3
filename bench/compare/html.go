package compare

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

//go:embed report.css
var reportCSS string

// WriteHTML writes a self-contained page: bars with confidence intervals for each row, lines over numeric switches,
// latencies, counters, the machine and every command. It has no scripts and loads nothing.
func (r *Results) WriteHTML(w io.Writer) error {
	var b strings.Builder
	title := r.Title
	if title == "" {
		title = "Comparison"
	}
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>%s</h1>\n",
		esc(title), reportCSS, esc(title))
	fmt.Fprintf(&b, "<p class=\"sub\">%s</p>\n", esc(r.subtitle()))
	for _, label := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "<p class=\"sub\">%s: %s</p>\n", esc(label), esc(r.Versions[label]))
	}
	if r.Interrupted {
		b.WriteString("<p class=\"bad\">Interrupted: not all runs were made.</p>\n")
	}
	r.htmlBars(&b)
	r.htmlLines(&b)
	r.htmlSentences(&b)
	r.htmlLatency(&b)
	r.htmlCounters(&b)
	r.htmlFailures(&b)
	r.htmlCommands(&b)
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func esc(s string) string { return html.EscapeString(s) }

// subtitle says when, where and how often.
func (r *Results) subtitle() string {
	var parts []string
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.Format(time.DateOnly))
	}
	if r.Machine != nil {
		parts = append(parts, r.Machine.String())
	}
	if r.Rounds > 0 {
		parts = append(parts, fmt.Sprintf("%d rounds, interleaved", r.Rounds))
	}
	return strings.Join(parts, " · ")
}

// meanInterval is the confidence interval of a cell's mean.
func (r *Results) meanInterval(c *Cell) (lo, hi float64) {
	m, n := *c.Average, len(c.Values())
	if n < 2 {
		return m, m
	}
	half := *c.Stdev / math.Sqrt(float64(n)) * TQuantile((1+r.confidence())/2, float64(n-1))
	return max(0, m-half), m + half
}

// htmlBars draws each row on a scale of its own, from zero.
func (r *Results) htmlBars(b *strings.Builder) {
	b.WriteString("<h2>Results</h2>\n")
	fmt.Fprintf(b, "<p class=\"dim\">%s The whisker is the %g %% confidence interval of the mean; percentages compare with the first bar.</p>\n", better(r.Dimension()), math.Round(r.confidence()*1e4)/100)
	named := len(r.Envs) > 2
	for _, row := range r.Cases {
		if row.ID != "" {
			fmt.Fprintf(b, "<h3>%s</h3>\n", esc(oneLine(row.ID)))
		}
		top := 0.0
		for _, env := range r.Envs {
			if c := r.Cell(row, env); c.Ran() {
				_, hi := r.meanInterval(c)
				top = max(top, min(hi, *c.Average*1.5))
			}
		}
		for i, env := range r.Envs {
			c := r.Cell(row, env)
			if c == nil || c.Excluded {
				continue
			}
			r.htmlBar(b, row, i, c, top, named)
		}
	}
}

func better(dimension string) string {
	switch dimension {
	case Seconds:
		return "Seconds; shorter is better."
	case IOPS:
		return "Requests per second; longer is better."
	}
	return "Seconds (shorter is better) or requests per second (longer is better)."
}

func (r *Results) htmlBar(b *strings.Builder, row Axle, i int, c *Cell, top float64, named bool) {
	env := r.Envs[i]
	name := oneLine(env.ID)
	if named {
		name = letter(i) + "  " + name
	}
	fmt.Fprintf(b, "<div class=\"bar\"><span>%s</span><span class=\"track\">", esc(name))
	if c.Ran() && top > 0 {
		pct := func(v float64) float64 { return min(100, v/top*100) }
		lo, hi := r.meanInterval(c)
		fmt.Fprintf(b, "<i style=\"width:%.2f%%;background:%s\"></i>", pct(*c.Average), colour(i))
		if hi > lo {
			fmt.Fprintf(b, "<b style=\"left:%.2f%%;width:%.2f%%\"></b>", pct(lo), pct(hi)-pct(lo))
		}
	}
	b.WriteString("</span><span class=\"val\">")
	if !c.Ran() {
		b.WriteString("<span class=\"bad\">" + esc(cellText(c, false)) + "</span>")
	} else {
		b.WriteString(esc(strings.ReplaceAll(cellText(c, true), "\n", " ")))
		if i > 0 {
			b.WriteString(r.htmlDifference(row, env, r.Envs[0]))
		}
	}
	b.WriteString("</span></div>\n")
}

// htmlDifference compares a bar with the first one of its row.
func (r *Results) htmlDifference(row, env, base Axle) string {
	c, bc := r.Cell(row, env), r.Cell(row, base)
	if !bc.Ran() || bc.Dimension != c.Dimension {
		return ""
	}
	cmp := r.Compare(row, env, base)
	text, class := difference(cmp, c, bc), "dim"
	switch cmp.Verdict {
	case Same:
		text = "no difference"
	case Different:
		class = "bad"
		if (cmp.Ratio.Value < 1) == (c.Dimension == Seconds) {
			class = "good"
		}
	}
	return fmt.Sprintf(" <span class=\"%s\">%s</span>", class, esc(text))
}

// htmlLines draws lines over every switch with numeric alternatives: a chart for each combination of the other row
// switches, a line for each of the other column switches.
func (r *Results) htmlLines(b *strings.Builder) {
	done := map[string]bool{}
	for _, axles := range [][]Axle{r.Cases, r.Envs} {
		for _, name := range switchNames(axles) {
			labels := switchLabels(axles, name)
			x, ok := numeric(labels)
			if !ok || done[name] {
				continue
			}
			done[name] = true
			fmt.Fprintf(b, "<h2>%s</h2>\n", esc(switchTitle(name, labels)))
			r.htmlLinesOver(b, name, labels, x)
		}
	}
}

// switchTitle heads the lines over a switch; one without a name goes by its ends.
func switchTitle(name string, labels []string) string {
	if strings.HasPrefix(name, "row") || strings.HasPrefix(name, "col") {
		return fmt.Sprintf("From %s to %s", oneLine(labels[0]), oneLine(labels[len(labels)-1]))
	}
	return "By " + name
}

// without is the id of a column or row less its choice of one switch.
func without(a Axle, name string) string {
	label, ok := a.Switches[name]
	parts := strings.Split(a.ID, " / ")
	if i := slices.Index(parts, strings.TrimSpace(label)); ok && i >= 0 {
		parts = slices.Delete(parts, i, i+1)
	}
	return oneLine(strings.Join(parts, " / "))
}

func switchNames(axles []Axle) []string {
	var names []string
	for _, a := range axles {
		for name := range a.Switches {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func switchLabels(axles []Axle, name string) (labels []string) {
	for _, a := range axles {
		if l, ok := a.Switches[name]; ok && !slices.Contains(labels, l) {
			labels = append(labels, l)
		}
	}
	return labels
}

func (r *Results) htmlLinesOver(b *strings.Builder, name string, labels []string, x []float64) {
	type key struct{ group, line string }
	cells := map[key][]*Cell{}
	var groups, lines []string
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			label, ok := row.Switches[name]
			if !ok {
				label = env.Switches[name]
			}
			k := key{without(row, name), without(env, name)}
			if cells[k] == nil {
				cells[k] = make([]*Cell, len(labels))
			}
			cells[k][slices.Index(labels, label)] = r.Cell(row, env)
			if !slices.Contains(groups, k.group) {
				groups = append(groups, k.group)
			}
			if !slices.Contains(lines, k.line) {
				lines = append(lines, k.line)
			}
		}
	}
	for _, group := range groups {
		c := chart{ticks: labels, unit: unit(r.Dimension())}
		for _, v := range x {
			c.x = append(c.x, math.Log(v))
		}
		for i, line := range lines {
			s := series{name: line, colour: i}
			if s.name == "" {
				s.name = "result"
			}
			for _, cell := range cells[key{group, line}] {
				v := math.NaN()
				if cell.Ran() {
					v = *cell.Average
				}
				s.y = append(s.y, v)
			}
			c.series = append(c.series, s)
		}
		if group != "" {
			fmt.Fprintf(b, "<h3>%s</h3>\n", esc(group))
		}
		c.write(b)
	}
}

func (r *Results) htmlSentences(b *strings.Builder) {
	if len(r.Comparisons) == 0 {
		return
	}
	b.WriteString("<h2>In words</h2>\n<details><summary>Each column compared with the first</summary>\n<ul>\n")
	for _, row := range r.Cases {
		for _, env := range r.Envs[1:] {
			if cmp := r.Compare(row, env, r.Envs[0]); cmp.Ratio.N > 0 {
				fmt.Fprintf(b, "<li>%s</li>\n", esc(cmp.Sentence(r.Cell(row, env).Dimension, r.confidence())))
			}
		}
	}
	b.WriteString("</ul>\n</details>\n")
}

// htmlFailures shows what failed runs printed.
func (r *Results) htmlFailures(b *strings.Builder) {
	var out strings.Builder
	r.WriteFailures(&out)
	if out.Len() > 0 {
		fmt.Fprintf(b, "<h2>Failures</h2>\n<pre>%s</pre>\n", esc(out.String()))
	}
}

func (r *Results) htmlCommands(b *strings.Builder) {
	b.WriteString("<h2>Commands</h2>\n")
	if r.Template != "" {
		fmt.Fprintf(b, "<details><summary>Template</summary>\n<pre>%s</pre>\n</details>\n", esc(r.Template))
	}
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			if c := r.Cell(row, env); c != nil && c.Command != "" {
				name := CellName(row.ID, env.ID)
				if name == "" {
					name = "Command"
				}
				fmt.Fprintf(b, "<details><summary>%s</summary>\n<pre>%s</pre>\n</details>\n", esc(name), esc(c.Command))
			}
		}
	}
}
