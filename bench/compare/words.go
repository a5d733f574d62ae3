package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Defaults of the judgement.
const (
	DefaultConfidence = 0.99
	DefaultMargin     = 0.05
)

// Number prints a measurement with at least three significant digits and no exponent in the usual range.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0) || a < 1e-6 || a >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		digits := 2 - int(math.Floor(math.Log10(a)))
		return strconv.FormatFloat(v, 'f', max(0, digits), 64)
	}
}

// percent prints a relative difference with its sign: whole numbers, one digit more below one percent.
func percent(ratio float64) string {
	d := (ratio - 1) * 100
	if r := math.Round(d); r != 0 || math.Abs(d) < 0.05 {
		if r == 0 {
			return "+0%"
		}
		return fmt.Sprintf("%+.0f%%", r)
	}
	return fmt.Sprintf("%+.1f%%", d)
}

// spread is the "± N%" of a value, or "" where it is too small to matter.
func spread(c *Cell) string {
	if c.Stdev == nil || *c.Average == 0 {
		return ""
	}
	rel := *c.Stdev / *c.Average * 100
	if rel < 1.5 {
		return ""
	}
	return fmt.Sprintf(" ± %.0f%%", math.Ceil(rel))
}

// letter names a column: A…Z, AA, AB and so on.
func letter(i int) string {
	s := ""
	for i++; i > 0; i = (i - 1) / 26 {
		s = string(rune('A'+(i-1)%26)) + s
	}
	return s
}

// unit is the short unit of a dimension.
func unit(dimension string) string {
	if dimension == Seconds {
		return "s"
	}
	return dimension
}

// Marks of a difference that was not found; the legend of a table explains them.
const (
	markSame    = "~"
	markUnclear = "?"
)

// difference is the short form of a comparison for a table. Where two values cannot be compared it says so.
func difference(cmp Comparison, a, b *Cell) string {
	switch {
	case !b.Ran() || a.Dimension != b.Dimension:
		return "--"
	case cmp.Ratio.Value == 0:
		if *a.Average == *b.Average {
			return "+0%"
		}
		return "n/a"
	case cmp.Verdict == Same:
		return markSame
	case cmp.Verdict == Unclear:
		return percent(cmp.Ratio.Value) + markUnclear
	}
	return percent(cmp.Ratio.Value)
}

// Sentence says in words what a comparison found.
func (c Comparison) Sentence(dimension string, confidence float64) string {
	where := ""
	if c.Case != "" {
		where = oneLine(c.Case) + ": "
	}
	name, base := oneLine(c.Env), oneLine(c.Base)
	r := c.Ratio
	level := fmt.Sprintf("%g %%", math.Round(confidence*1e4)/100)
	count := fmt.Sprintf("%d pairs", r.N)
	if !c.Paired {
		count = fmt.Sprintf("%d runs, not paired", r.N)
	}
	switch c.Verdict {
	case Different:
		// a time of 0.8 is 1.25 times as fast, and so is 1.25 times the rate
		speed, low, high := r.Value, r.Low, r.High
		if dimension == Seconds {
			speed, low, high = 1/r.Value, 1/r.High, 1/r.Low
		}
		word := "faster"
		if speed < 1 {
			word, speed, low, high = "slower", 1/speed, 1/high, 1/low
		}
		return fmt.Sprintf("%s%s is %s times %s than %s (%s sure: %s to %s; %s)", where, name, times(speed), word, base, level, times(low), times(high), count)
	case Same:
		return fmt.Sprintf("%sno difference between %s and %s (%s sure: %s to %s; %s)", where, name, base, level, percent(r.Low), percent(r.High), count)
	case Unclear:
		return fmt.Sprintf("%sno difference shown between %s and %s, but one of %s to %s is possible (%s sure; %s)", where, name, base, percent(r.Low), percent(r.High), level, count)
	}
	return fmt.Sprintf("%stoo few runs to compare %s with %s", where, name, base)
}

func times(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return Number(v)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
