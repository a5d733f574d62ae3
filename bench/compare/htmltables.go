package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// percentiles are the latencies that are shown, in order.
var percentiles = []string{"p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"}

// medianOf is the median over the runs of what get finds in them; NaN if no run has it.
func (c *Cell) medianOf(get func(run *Run) (float64, bool)) float64 {
	var v []float64
	for i := range c.Runs {
		if c.Runs[i].Error != "" {
			continue
		}
		if x, ok := get(&c.Runs[i]); ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return math.NaN()
	}
	return Median(v)
}

// htmlLatency draws the latency percentiles of rows whose commands reported them.
func (r *Results) htmlLatency(b *strings.Builder) {
	heading := "<h2>Latency</h2>\n<p class=\"dim\">Microseconds; medians over the runs, on a logarithmic scale.</p>\n"
	for _, row := range r.Cases {
		c := chart{ticks: percentiles, unit: "µs", logY: true}
		for i := range percentiles {
			c.x = append(c.x, float64(i))
		}
		for i, env := range r.Envs {
			cell := r.Cell(row, env)
			if !cell.Ran() {
				continue
			}
			s := series{name: oneLine(env.ID), colour: i}
			any := false
			for _, p := range percentiles {
				v := cell.medianOf(func(run *Run) (float64, bool) { v, ok := run.Latency[p]; return v, ok && v > 0 })
				any = any || !math.IsNaN(v)
				s.y = append(s.y, v)
			}
			if any {
				c.series = append(c.series, s)
			}
		}
		if len(c.series) == 0 {
			continue
		}
		b.WriteString(heading)
		heading = ""
		if row.ID != "" {
			fmt.Fprintf(b, "<h3>%s</h3>\n", esc(oneLine(row.ID)))
		}
		c.write(b)
		b.WriteString("<div class=\"scroll\"><table><thead><tr><th></th>")
		for _, p := range percentiles {
			fmt.Fprintf(b, "<th>%s</th>", p)
		}
		b.WriteString("</tr></thead><tbody>\n")
		for _, s := range c.series {
			fmt.Fprintf(b, "<tr><td>%s</td>", esc(s.name))
			for _, v := range s.y {
				b.WriteString("<td>" + orDash(v) + "</td>")
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</tbody></table></div>\n")
	}
}

func orDash(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return Number(v)
}

// htmlCounters tabulates what scripts and their bench commands used.
func (r *Results) htmlCounters(b *strings.Builder) {
	usage := []struct {
		name string
		get  func(u *Usage) float64
	}{
		{"wall s", func(u *Usage) float64 { return u.Wall }},
		{"user s", func(u *Usage) float64 { return u.User }},
		{"system s", func(u *Usage) float64 { return u.System }},
		{"voluntary switches", func(u *Usage) float64 { return float64(u.VoluntarySwitches) }},
		{"forced switches", func(u *Usage) float64 { return float64(u.ForcedSwitches) }},
		{"device flushes", func(u *Usage) float64 { return float64(u.DeviceFlushes) }},
	}
	var reported []string
	any := false
	r.eachRun(func(run *Run) {
		any = any || run.Usage != nil
		for name := range run.Counters {
			if !slices.Contains(reported, name) {
				reported = append(reported, name)
			}
		}
	})
	if !any {
		return
	}
	slices.Sort(reported)
	b.WriteString("<h2>Cost of a run</h2>\n<p class=\"dim\">Of the whole script, medians over the runs. Device flushes are those of the whole machine meanwhile.</p>\n<div class=\"scroll\"><table><thead><tr><th></th>")
	for _, u := range usage {
		fmt.Fprintf(b, "<th>%s</th>", u.name)
	}
	for _, name := range reported {
		fmt.Fprintf(b, "<th>%s, reported</th>", esc(name))
	}
	b.WriteString("</tr></thead><tbody>\n")
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			c := r.Cell(row, env)
			if !c.Ran() {
				continue
			}
			fmt.Fprintf(b, "<tr><td>%s</td>", esc(CellName(row.ID, env.ID)))
			for _, u := range usage {
				v := c.medianOf(func(run *Run) (float64, bool) {
					if run.Usage == nil {
						return 0, false
					}
					v := u.get(run.Usage)
					return v, v >= 0
				})
				b.WriteString("<td>" + orDash(v) + "</td>")
			}
			for _, name := range reported {
				v := c.medianOf(func(run *Run) (float64, bool) { v, ok := run.Counters[name]; return v, ok })
				b.WriteString("<td>" + orDash(v) + "</td>")
			}
			b.WriteString("</tr>\n")
		}
	}
	b.WriteString("</tbody></table></div>\n")
}

func (r *Results) eachRun(f func(run *Run)) {
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			if c := r.Cell(row, env); c != nil {
				for i := range c.Runs {
					f(&c.Runs[i])
				}
			}
		}
	}
}
