package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// svgStyle gives the plot the colours of the report, light and dark.
const svgStyle = `<style>
text{font:13px system-ui,sans-serif;fill:#1d2126}.dim{fill:#59616b}.head{font-weight:600}.rule{stroke:#d9dde2}.ci{stroke:#1d2126;stroke-width:1.5}.bg{fill:#fcfcfb}
.c0{fill:#2f6db5}.c1{fill:#c4651b}.c2{fill:#2f8a57}.c3{fill:#8a4fb0}.c4{fill:#b03a5b}.c5{fill:#5d6b78}.c6{fill:#8f7a12}.c7{fill:#17838a}
@media (prefers-color-scheme:dark){text{fill:#e6e9ec}.dim{fill:#a2abb5}.rule{stroke:#343b43}.ci{stroke:#e6e9ec}.bg{fill:#14171a}
.c0{fill:#6ea8ea}.c1{fill:#eb9a57}.c2{fill:#63c28d}.c3{fill:#bd8be0}.c4{fill:#e77c98}.c5{fill:#9eacb9}.c6{fill:#d0b849}.c7{fill:#55c3ca}}
</style>
`

// Measures of the plot, in pixels.
const (
	svgWidth   = 840
	svgBar     = 16
	svgPitch   = 22
	svgHead    = 30
	svgPad     = 20
	svgValue   = 130 // room for the value at the right
	svgPerChar = 7.2
)

// sharedScale is the largest quotient of two values that still share an axis: beyond it the small bars vanish.
const sharedScale = 30

// WriteSVG writes one plot: a group of bars for each row, with the confidence intervals of the means.
func (r *Results) WriteSVG(w io.Writer) error {
	names := 40.0
	for i, env := range r.Envs {
		n := utf8.RuneCountInString(oneLine(env.ID)) + len(letter(i)) + 2
		names = max(names, min(svgPerChar*float64(n), 260))
	}
	left, right := svgPad+names+10, float64(svgWidth-svgPad-svgValue)
	lo, hi := math.Inf(1), 0.0
	for _, row := range r.Cases {
		if top := r.rowTop(row); top > 0 {
			lo, hi = min(lo, top), max(hi, top)
		}
	}
	shared := r.Dimension() != "" && hi <= lo*sharedScale
	note := better(r.Dimension())
	if !shared {
		note += " Each group has a scale of its own."
	}
	var b strings.Builder
	y := float64(svgPad)
	if r.Title != "" {
		fmt.Fprintf(&b, `<text class="head" x="%d" y="%.0f">%s</text>`+"\n", svgPad, y+12, esc(oneLine(r.Title)))
		y += 24
	}
	fmt.Fprintf(&b, `<text class="dim" x="%d" y="%.0f">%s</text>`+"\n", svgPad, y+12, esc(note))
	y += 24
	for _, row := range r.Cases {
		top := hi
		if !shared {
			top = r.rowTop(row)
		}
		if row.ID != "" {
			fmt.Fprintf(&b, `<text class="head" x="%d" y="%.0f">%s</text>`+"\n", svgPad, y+18, esc(oneLine(row.ID)))
			y += svgHead
		}
		fmt.Fprintf(&b, `<line class="rule" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", left, left, y-2, y+svgPitch*float64(len(r.Envs)))
		for i, env := range r.Envs {
			r.svgBar(&b, i, oneLine(env.ID), r.Cell(row, env), top, left, right, y)
			y += svgPitch
		}
		y += 8
	}
	height := y + svgPad/2
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img">`+"\n%s"+
		`<rect class="bg" width="100%%" height="100%%"/>`+"\n%s</svg>\n", svgWidth, height, svgWidth, height, svgStyle, b.String())
	return err
}

// rowTop is the end of a row's scale.
func (r *Results) rowTop(row Axle) float64 {
	top := 0.0
	for _, env := range r.Envs {
		if c := r.Cell(row, env); c.Ran() {
			_, hi := r.meanInterval(c)
			top = max(top, min(hi, *c.Average*1.5))
		}
	}
	return top
}

func (r *Results) svgBar(b *strings.Builder, i int, name string, c *Cell, top, left, right, y float64) {
	if len(r.Envs) > 2 {
		name = letter(i) + " " + name
	}
	if rs := []rune(name); float64(len(rs))*svgPerChar > left-svgPad {
		name = string(rs[:int((left-svgPad)/svgPerChar)-1]) + "…"
	}
	mid := y + svgBar/2
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-8, mid+4.5, esc(name))
	end := left
	if c.Ran() && top > 0 {
		px := func(v float64) float64 { return left + min(1, v/top)*(right-left) }
		lo, hi := r.meanInterval(c)
		fmt.Fprintf(b, `<rect class="c%d" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, i%colours, left, y, px(*c.Average)-left, svgBar)
		if hi > lo {
			fmt.Fprintf(b, `<path class="ci" fill="none" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8"/>`, px(lo), mid, px(hi), px(lo), mid-4, px(hi), mid-4)
		}
		end = max(px(*c.Average), px(hi))
	}
	text := strings.ReplaceAll(cellText(c, true), "\n", " ")
	fmt.Fprintf(b, `<text class="dim" x="%.1f" y="%.1f">%s</text>`+"\n", end+8, mid+4.5, esc(text))
}
