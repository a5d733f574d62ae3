package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tol {
		t.Errorf("%s = %.10g, want %.10g", what, got, want)
	}
}

// The values are those of printed tables of Student's distribution.
func TestStudentQuantilesAgreeWithPrintedTables(t *testing.T) {
	tests := []struct{ p, df, want, tol float64 }{
		{0.995, 1, 63.65674116, 1e-6},
		{0.995, 2, 9.924843201, 1e-8},
		{0.995, 4, 4.604094871, 1e-8},
		{0.995, 9, 3.249835542, 1e-8},
		{0.995, 30, 2.749995654, 1e-8},
		{0.975, 1, 12.70620474, 1e-7},
		{0.975, 9, 2.262157163, 1e-8},
		{0.975, 120, 1.979930405, 1e-8},
		{0.95, 5, 2.015048373, 1e-8},
		{0.9, 3, 1.637744354, 1e-8},
		{0.9995, 9, 4.780912586, 1e-8},
		{0.005, 9, -3.249835542, 1e-8},
		{0.5, 7, 0, 0},
		{0.975, 1e7, 1.959964, 1e-5}, // the normal distribution
	}
	for _, tt := range tests {
		near(t, "quantile", TQuantile(tt.p, tt.df), tt.want, tt.tol)
		near(t, "its inverse", TCDF(TQuantile(tt.p, tt.df), tt.df), tt.p, 1e-12)
	}
	// df 1 and 2 have closed forms
	for _, x := range []float64{-40, -3, -0.1, 0.2, 1, 7, 1000} {
		near(t, "Cauchy", TCDF(x, 1), 0.5+math.Atan(x)/math.Pi, 1e-12)
		near(t, "df 2", TCDF(x, 2), 0.5+x/(2*math.Sqrt(2+x*x)), 1e-12)
	}
}

func TestSummariesOfKnownSamples(t *testing.T) {
	s := Summarize([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	near(t, "mean", s.Mean, 5, 0)
	near(t, "stdev", s.Stdev, math.Sqrt(32.0/7), 1e-12)
	near(t, "median", s.Median, 4.5, 0)
	if s.Min != 2 || s.Max != 9 || s.N != 8 {
		t.Errorf("got %+v", s)
	}
	if one := Summarize([]float64{3}); one.Stdev != 0 || one.Median != 3 || one.Mean != 3 {
		t.Errorf("one value: %+v", one)
	}
	if none := Summarize(nil); none != (Summary{}) {
		t.Errorf("no value: %+v", none)
	}
	near(t, "odd median", Median([]float64{9, 1, 5}), 5, 0)
}

func TestPairedRatioOfAWorkedExample(t *testing.T) {
	// log ratios 0.1, 0.2, 0.3: mean 0.2, standard error 0.1/sqrt 3, t(2) at 99 % = 9.9248
	b := []float64{1, 10, 100}
	a := []float64{math.Exp(0.1), 10 * math.Exp(0.2), 100 * math.Exp(0.3)}
	r := PairedRatio(a, b, 0.99, 0)
	half := 9.924843201 * 0.1 / math.Sqrt(3)
	near(t, "ratio", r.Value, math.Exp(0.2), 1e-12)
	near(t, "low", r.Low, math.Exp(0.2-half), 1e-9)
	near(t, "high", r.High, math.Exp(0.2+half), 1e-8)
	near(t, "p", r.P, 2*(1-TCDF(0.2/(0.1/math.Sqrt(3)), 2)), 1e-12)
	if r.N != 3 || r.Verdict(0.05) != Unclear {
		t.Errorf("got %+v, %s", r, r.Verdict(0.05))
	}
}

func TestUnpairedRatioOfAWorkedExample(t *testing.T) {
	a := []float64{math.Exp(1), math.Exp(2), math.Exp(3)}              // variance 1
	b := []float64{math.Exp(0), math.Exp(0), math.Exp(2), math.Exp(2)} // variance 4/3
	r := UnpairedRatio(a, b, 0.95, 0)
	se := math.Sqrt(1.0/3 + 1.0/3)
	df := (4.0 / 9) / (1.0/9/2 + 1.0/9/3)
	near(t, "ratio", r.Value, math.E, 1e-12)
	near(t, "high", r.High, math.Exp(1+se*TQuantile(0.975, df)), 1e-9)
}

func TestVerdictsSayWhatTheIntervalAllows(t *testing.T) {
	tests := []struct {
		a, b []float64
		want Verdict
	}{
		{[]float64{10, 10, 10}, []float64{5, 5, 5}, Different},
		{[]float64{10, 10, 10}, []float64{10, 10, 10}, Same},
		{[]float64{10, 10.1, 9.9, 10}, []float64{10, 9.9, 10.1, 10}, Same},
		{[]float64{10, 20, 10}, []float64{20, 10, 10}, Unclear},
		{[]float64{10}, []float64{5}, NoVerdict},
		{nil, nil, NoVerdict},
		{[]float64{0, 0}, []float64{1, 1}, NoVerdict},
	}
	for _, tt := range tests {
		if got := PairedRatio(tt.a, tt.b, 0.99, 0).Verdict(0.05); got != tt.want {
			t.Errorf("%v / %v: %s, want %s", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestRoundedMeasurementsDoNotProveADifference(t *testing.T) {
	// 2 ms and 3 ms, always, printed in whole milliseconds: 2.49 and 2.51 would look the same
	a, b := slices.Repeat([]float64{0.003}, 10), slices.Repeat([]float64{0.002}, 10)
	if v := PairedRatio(a, b, 0.99, 0.001).Verdict(0.05); v != Unclear {
		t.Errorf("verdict %s", v)
	}
	// at a second, a millisecond matters little
	a, b = slices.Repeat([]float64{1.05}, 10), slices.Repeat([]float64{1}, 10)
	if v := PairedRatio(a, b, 0.99, 0.001).Verdict(0.02); v != Different {
		t.Errorf("verdict %s", v)
	}
}

func TestTheFarthestValueIsFoundOnEitherSide(t *testing.T) {
	tests := []struct {
		v    []float64
		want int
	}{
		{[]float64{1, 1.01, 0.99, 1, 3}, 4},
		{[]float64{1, 1.01, 0.99, 0.2, 1}, 3},
		{[]float64{1, 1.5, 0.99, 0.2, 1, 1.01}, 3},
		{[]float64{1, 1, 1, 1, 1.04}, -1}, // less than 5 %
		{[]float64{1, 2, 3, 4, 5}, -1},    // a wide sample
		{[]float64{1, 1, 1, 9}, -1},       // too few
		{[]float64{0, 1, 1, 1, 1}, -1},
	}
	for _, tt := range tests {
		if got, _ := Farthest(tt.v, 6); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.v, got, tt.want)
		}
	}
}

// noisy gives runs of a command that takes the time given, with relative noise, and with a drift that all share.
func noisy(rng *rand.Rand, n int, base, noise float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		drift := 1 + 0.3*math.Sin(float64(i))
		v[i] = base * drift * (1 + noise*rng.NormFloat64())
	}
	return v
}

func TestEqualCommandsAreSeldomCalledDifferentAndTrueDifferencesFound(t *testing.T) {
	const comparisons = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, noise := range []float64{0.02, 0.1} {
		wrong := 0
		for range comparisons {
			if PairedRatio(noisy(rng, 10, 1, noise), noisy(rng, 10, 1, noise), 0.99, 0).Verdict(0.05) == Different {
				wrong++
			}
		}
		if wrong > comparisons*2/100 {
			t.Errorf("noise %g: %d of %d equal commands were called different", noise, wrong, comparisons)
		}
		if wrong == 0 {
			t.Errorf("noise %g: none of %d was called different: the interval is wider than it claims", noise, comparisons)
		}
	}
	found := 0
	for range comparisons {
		r := PairedRatio(noisy(rng, 10, 1.1, 0.02), noisy(rng, 10, 1, 0.02), 0.99, 0)
		if r.Verdict(0.05) == Different && r.Low > 1 {
			found++
		}
	}
	if found < comparisons*98/100 {
		t.Errorf("a difference of 10 %% was found in %d of %d", found, comparisons)
	}
}
