package compare

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// colours is the number of colours that the style sheet defines; more columns use them again.
const colours = 8

func colour(i int) string { return fmt.Sprintf("var(--c%d)", i%colours) }

// chart is a diagram of lines over common x positions.
type chart struct {
	ticks  []string  // names of the x positions
	x      []float64 // their places, in any unit
	series []series
	unit   string
	logY   bool
}

// series is one line; a NaN is a gap.
type series struct {
	name   string
	colour int
	y      []float64
}

const (
	chartTop, chartBottom = 12, 238 // pixels
	chartLeft, chartRight = 8, 97   // per cent of the width
)

// write draws the chart. Horizontal places are per cent, so that it follows the width of the page while text keeps its size.
func (c *chart) write(b *strings.Builder) {
	lo, hi := c.bounds()
	if !(hi > lo) {
		return
	}
	py := func(v float64) float64 {
		f := (v - lo) / (hi - lo)
		if c.logY {
			f = math.Log(v/lo) / math.Log(hi/lo)
		}
		return chartBottom - f*(chartBottom-chartTop)
	}
	px := func(i int) float64 {
		first, last := c.x[0], c.x[len(c.x)-1]
		return chartLeft + 3 + (c.x[i]-first)/(last-first)*(chartRight-chartLeft-3)
	}
	fmt.Fprintf(b, `<svg class="chart" role="img" aria-label="%s">`, html.EscapeString("lines in "+c.unit))
	for _, v := range c.gridLines(lo, hi) {
		fmt.Fprintf(b, `<line class="grid" x1="%d%%" x2="100%%" y1="%.1f" y2="%.1f"/><text x="%d%%" dx="-6" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, py(v), py(v), chartLeft, py(v)+4, axisNumber(v))
	}
	fmt.Fprintf(b, `<text x="0" y="%d">%s</text>`, chartTop+4, html.EscapeString(c.unit))
	for i, tick := range c.ticks {
		fmt.Fprintf(b, `<text x="%.2f%%" y="%d" text-anchor="middle">%s</text>`, px(i), chartBottom+20, html.EscapeString(tick))
	}
	for _, s := range c.series {
		col := colour(s.colour)
		for i, v := range s.y {
			if math.IsNaN(v) {
				continue
			}
			if i > 0 && !math.IsNaN(s.y[i-1]) {
				fmt.Fprintf(b, `<line x1="%.2f%%" y1="%.1f" x2="%.2f%%" y2="%.1f" stroke="%s" stroke-width="2"/>`, px(i-1), py(s.y[i-1]), px(i), py(v), col)
			}
			fmt.Fprintf(b, `<circle cx="%.2f%%" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`, px(i), py(v), col,
				html.EscapeString(fmt.Sprintf("%s, %s: %s %s", s.name, c.ticks[i], Number(v), c.unit)))
		}
	}
	b.WriteString("</svg>\n")
	b.WriteString(`<div class="legend">`)
	for _, s := range c.series {
		fmt.Fprintf(b, `<span><span class="chip" style="background:%s"></span>%s</span>`, colour(s.colour), html.EscapeString(s.name))
	}
	b.WriteString("</div>\n")
}

// bounds are the ends of the y axis: from 0 to a round number, or whole decades.
func (c *chart) bounds() (lo, hi float64) {
	lo, hi = math.Inf(1), 0
	for _, s := range c.series {
		for _, v := range s.y {
			if v > 0 {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	if hi == 0 {
		return 0, 0
	}
	if c.logY {
		return math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Ceil(math.Log10(hi*1.0001)))
	}
	step := niceStep(hi / 4)
	return 0, math.Ceil(hi/step) * step
}

func (c *chart) gridLines(lo, hi float64) (lines []float64) {
	if c.logY {
		for v := lo; v <= hi*1.001; v *= 10 {
			lines = append(lines, v)
		}
		return lines
	}
	step := niceStep(hi / 4)
	for i := 0.0; i*step <= hi*1.001; i++ {
		lines = append(lines, i*step)
	}
	return lines
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v*0.999 {
			return m * p
		}
	}
	return 10 * p
}

func axisNumber(v float64) string {
	if v >= 10000 {
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// numeric returns the numbers of a switch's alternatives, as in 4K|64K or -d 1|-d 8, if they are numbers of one kind
// that differ.
func numeric(labels []string) ([]float64, bool) {
	if len(labels) < 2 {
		return nil, false
	}
	var values []float64
	frame := ""
	for i, label := range labels {
		f := strings.Fields(label)
		at := -1
		for k, word := range f {
			if v, ok := number(word); ok {
				if at >= 0 {
					return nil, false
				}
				at = k
				values = append(values, v)
				f[k] = "#"
			}
		}
		if at < 0 {
			return nil, false
		}
		shape := strings.Join(f, " ")
		if i > 0 && (shape != frame || values[i] <= values[i-1]) {
			return nil, false
		}
		frame = shape
	}
	return values, true
}

// number reads a positive number with an optional binary suffix.
func number(s string) (float64, bool) {
	scale := 1.0
	if n := len(s); n > 1 {
		if i := strings.IndexByte("KMGTPE", s[n-1]&^0x20); i >= 0 {
			scale, s = math.Pow(1024, float64(i+1)), s[:n-1]
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, false
	}
	return v * scale, true
}
