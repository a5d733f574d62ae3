package compare

import (
	"math"
	"slices"
)

// Summary describes one sample of positive measurements. All fields are zero for an empty sample.
type Summary struct {
	N                      int
	Mean, Median, Min, Max float64
	// Stdev is that of a sample (divided by n-1); it is 0 for a single value.
	Stdev float64
}

// Summarize computes the usual figures of a sample.
func Summarize(v []float64) Summary {
	if len(v) == 0 {
		return Summary{}
	}
	s := Summary{N: len(v), Mean: mean(v), Median: Median(v), Min: slices.Min(v), Max: slices.Max(v)}
	s.Stdev = stdev(v, s.Mean)
	return s
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func stdev(v []float64, mean float64) float64 {
	if len(v) < 2 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum / float64(len(v)-1))
}

// Median returns the middle of a sample, 0 for an empty one.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return s[n/2-1] + (s[n/2]-s[n/2-1])/2
}

// Farthest finds the value of a sample that lies farthest off the rest on a logarithmic scale, and by how many scaled
// median absolute deviations. It must be beyond the limit, and off by more than 5 %; otherwise, and in samples of fewer
// than five values, the index is -1.
func Farthest(v []float64, limit float64) (index int, deviations float64) {
	logs := logsOf(v)
	if len(logs) < 5 {
		return -1, 0
	}
	mid := Median(logs)
	dev := make([]float64, len(v))
	for i, x := range logs {
		dev[i] = math.Abs(x - mid)
	}
	scale := 1.4826 * Median(dev) // the standard deviation, were the values normally distributed
	index = -1
	for i, d := range dev {
		far := d / max(scale, 1e-9)
		if far > limit && d > math.Log(1.05) && far > deviations {
			index, deviations = i, far
		}
	}
	return index, deviations
}

// Ratio is the quotient of two quantities with its confidence interval. N is the number of pairs (or of values of the smaller
// sample); without an interval, N is 1 or a measurement was zero, and Known is false.
type Ratio struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	N     int     `json:"n"`
	Known bool    `json:"known"`
	// P is the probability to see a difference as large as this between equals.
	P float64 `json:"p,omitempty"`
}

// Verdict is what a ratio says.
type Verdict string

const (
	Different Verdict = "different" // the interval excludes equality
	Same      Verdict = "same"      // it includes equality and is narrow
	Unclear   Verdict = "unclear"   // it includes equality, but a relevant difference as well
	NoVerdict Verdict = "none"      // there are too few values for an interval
)

// Verdict judges a ratio; margin is the relative difference that would be of no interest (0.05 is 5 %).
func (r Ratio) Verdict(margin float64) Verdict {
	switch {
	case !r.Known:
		return NoVerdict
	case r.Low > 1 || r.High < 1:
		return Different
	case r.High <= 1+margin && r.Low >= 1/(1+margin):
		return Same
	}
	return Unclear
}

// PairedRatio compares a with b, where a[i] and b[i] were measured in the same round: the geometric mean of a/b, with
// Student's interval at the confidence given (0.99 is 99 %). Resolution is the step of the measurement: what a rounded
// value hides widens the interval.
func PairedRatio(a, b []float64, confidence, resolution float64) Ratio {
	n := min(len(a), len(b))
	logs := make([]float64, n)
	for i := range n {
		if !(a[i] > 0 && b[i] > 0) {
			return Ratio{Value: quotient(mean(a[:n]), mean(b[:n])), N: n}
		}
		logs[i] = math.Log(a[i] / b[i])
	}
	if n == 0 {
		return Ratio{}
	}
	m := mean(logs)
	if n < 2 {
		return Ratio{Value: math.Exp(m), N: n}
	}
	se := stdev(logs, m) / math.Sqrt(float64(n))
	return interval(m, se, float64(n-1), n, confidence, blur(resolution, a[:n], b[:n]))
}

// UnpairedRatio compares samples that were measured apart from each other (Welch's interval on the logarithms).
func UnpairedRatio(a, b []float64, confidence, resolution float64) Ratio {
	n := min(len(a), len(b))
	if n == 0 {
		return Ratio{}
	}
	la, lb := logsOf(a), logsOf(b)
	if la == nil || lb == nil {
		return Ratio{Value: quotient(mean(a), mean(b)), N: n}
	}
	ma, mb := mean(la), mean(lb)
	if n < 2 {
		return Ratio{Value: math.Exp(ma - mb), N: n}
	}
	sa, sb := stdev(la, ma), stdev(lb, mb)
	va, vb := sa*sa/float64(len(a)), sb*sb/float64(len(b))
	df := float64(len(a) + len(b) - 2)
	if va+vb > 0 {
		df = (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	}
	return interval(ma-mb, math.Sqrt(va+vb), df, n, confidence, blur(resolution, a, b))
}

func interval(m, se, df float64, n int, confidence, blur float64) Ratio {
	half := se*TQuantile((1+confidence)/2, df) + blur
	r := Ratio{Value: math.Exp(m), Low: math.Exp(m - half), High: math.Exp(m + half), N: n, Known: true, P: 1}
	if over := math.Abs(m) - blur; over > 0 {
		r.P = 0
		if se > 0 {
			r.P = 2 * (1 - TCDF(over/se, df))
		}
	}
	return r
}

// blur is how much rounding may shift the logarithm of the ratio: half a step on either side, if always to the same.
func blur(resolution float64, a, b []float64) float64 {
	if resolution <= 0 {
		return 0
	}
	half := func(v []float64) float64 { return -math.Log1p(-min(resolution/2/mean(v), 0.999)) }
	return half(a) + half(b)
}

func logsOf(v []float64) []float64 {
	logs := make([]float64, len(v))
	for i, x := range v {
		if !(x > 0) {
			return nil
		}
		logs[i] = math.Log(x)
	}
	return logs
}

// quotient is a/b where that is a finite number, else 0.
func quotient(a, b float64) float64 {
	if q := a / b; !math.IsNaN(q) && !math.IsInf(q, 0) {
		return q
	}
	return 0
}
