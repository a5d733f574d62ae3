package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"byre/internal/testenv"
)

// fakeExec answers scripts without running them.
type fakeExec struct {
	answer func(script string, n int) outcome
	log    []string
}

func (f *fakeExec) run(_ context.Context, script string) outcome {
	f.log = append(f.log, script)
	return f.answer(script, len(f.log))
}

func seconds(s float64) outcome {
	text := fmt.Sprintf("Run completed in %.6f seconds.\n", s)
	return outcome{stdout: []byte(text), combined: []byte(text), usage: Usage{Wall: s}}
}

func parse(t *testing.T, s string) *Template {
	t.Helper()
	tpl, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func TestRunsAreInterleavedAndNoColumnIsFavoured(t *testing.T) {
	f := &fakeExec{answer: func(string, int) outcome { return seconds(1) }}
	c := Config{Template: parse(t, "{a|b|c}[1|2]"), Rounds: 6, Warmup: 1, exec: f}
	if _, err := Measure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(f.log) != 6*7 {
		t.Fatalf("%d runs", len(f.log))
	}
	firsts, follows := map[string]int{}, map[string]int{}
	for round := 1; round <= 6; round++ { // round 0 is the warm-up
		part := f.log[round*6:][:6]
		for k, want := range []string{"1", "1", "1", "2", "2", "2"} {
			if !strings.HasSuffix(part[k], want) {
				t.Errorf("round %d: %v", round, part)
			}
		}
		sorted := slices.Sorted(slices.Values(part[:3]))
		if !slices.Equal(sorted, []string{"a1", "b1", "c1"}) {
			t.Errorf("round %d: %v", round, part)
		}
		firsts[part[0]]++
		follows[part[0]+part[1]]++
		follows[part[1]+part[2]]++
	}
	for cell, n := range firsts {
		if n != 2 {
			t.Errorf("%s came first %d times in 6 rounds", cell, n)
		}
	}
	for pair, n := range follows {
		if n > 2 {
			t.Errorf("%s followed each other %d times", pair, n)
		}
	}
}

func TestWarmUpsAreKeptButNotCounted(t *testing.T) {
	f := &fakeExec{answer: func(_ string, n int) outcome { return seconds(float64(100 / n)) }}
	res, err := Measure(t.Context(), Config{Template: parse(t, "x"), Rounds: 2, Warmup: 2, exec: f})
	if err != nil {
		t.Fatal(err)
	}
	c := res.Cell(res.Cases[0], res.Envs[0])
	if len(c.Warmup) != 2 || c.Warmup[0].Seconds != 100 || len(c.Runs) != 2 || *c.Average != 29 {
		t.Errorf("got %+v", c)
	}
}

func TestFailuresAreKeptWithTheirOutput(t *testing.T) {
	f := &fakeExec{answer: func(script string, n int) outcome {
		switch {
		case script == "bad":
			return outcome{combined: []byte("it broke\n"), err: errors.New("exit status 3")}
		case script == "mute":
			return outcome{combined: []byte("nothing to see\n")}
		case n%2 == 0:
			return outcome{err: errors.New("now and then")}
		}
		return seconds(1)
	}}
	res, err := Measure(t.Context(), Config{Template: parse(t, "[bad|mute|flaky]"), Rounds: 8, exec: f})
	if err != nil {
		t.Fatal(err)
	}
	bad, mute, flaky := res.Cell(res.Cases[0], res.Envs[0]), res.Cell(res.Cases[1], res.Envs[0]), res.Cell(res.Cases[2], res.Envs[0])
	if len(bad.Runs) != givingUp || bad.NFailed != givingUp || bad.Runs[0].Error != "exit status 3" || bad.Runs[0].Output != "it broke" {
		t.Errorf("bad: %+v", bad)
	}
	if len(mute.Runs) != givingUp || !strings.Contains(mute.Runs[0].Error, "no measurement") {
		t.Errorf("mute: %+v", mute)
	}
	if len(flaky.Runs) != 8 || flaky.NFailed == 0 || flaky.NFailed == 8 {
		t.Errorf("flaky: %+v", flaky)
	}
}

func TestASlowCellGetsFewerRuns(t *testing.T) {
	f := &fakeExec{answer: func(script string, _ int) outcome { return seconds(map[string]float64{"slow": 11, "quick": 1}[script]) }}
	res, err := Measure(t.Context(), Config{Template: parse(t, "{slow|quick}"), Rounds: 5, SlowLimit: 10 * time.Second, exec: f})
	if err != nil {
		t.Fatal(err)
	}
	slow, quick := res.Cell(res.Cases[0], res.Envs[0]), res.Cell(res.Cases[0], res.Envs[1])
	if len(slow.Runs) != 1 || !slow.Slow || len(quick.Runs) != 5 || quick.Slow {
		t.Errorf("%d slow runs, %d quick ones", len(slow.Runs), len(quick.Runs))
	}
}

func TestAnOutlierIsMeasuredAgainInAllColumns(t *testing.T) {
	f := &fakeExec{}
	f.answer = func(script string, n int) outcome {
		if script == "a" && n == 5 { // round 3
			return seconds(50)
		}
		return seconds(1 + float64(n)/1000)
	}
	res, err := Measure(t.Context(), Config{Template: parse(t, "{a|b}"), Rounds: 6, Reruns: 2, exec: f})
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range res.Envs {
		c := res.Cell(res.Cases[0], env)
		if len(c.Runs) != 6 || len(c.Replaced) != 1 || c.Replaced[0].Round != 3 || *c.Max > 2 {
			t.Errorf("%s: %+v", env.ID, c)
		}
	}
	if len(f.log) != 14 {
		t.Errorf("%d runs", len(f.log))
	}
}

func TestInterruptionKeepsWhatWasMeasuredAndResumeCompletesIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeExec{}
	f.answer = func(_ string, n int) outcome {
		if n == 6 {
			cancel()
		}
		return seconds(float64(n))
	}
	var saved *Results
	c := Config{Template: parse(t, "{a|b}"), Rounds: 5, Warmup: 1, exec: f, Save: func(r *Results) error { saved = r; return nil }}
	res, err := Measure(ctx, c)
	if !errors.Is(err, context.Canceled) || !res.Interrupted || saved != res {
		t.Fatalf("%v, %+v", err, res)
	}
	if n := len(res.Cell(res.Cases[0], res.Envs[0]).Runs) + len(res.Cell(res.Cases[0], res.Envs[1]).Runs); n != 3 {
		t.Errorf("%d runs were kept", n)
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := res.Save(path); err != nil {
		t.Fatal(err)
	}
	old, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeExec{answer: func(string, int) outcome { return seconds(2) }}
	c.exec, c.Resume = g, old
	res, err = Measure(t.Context(), c)
	if err != nil || len(g.log) != 7 || res.Interrupted {
		t.Fatalf("%v, %d runs more", err, len(g.log))
	}
	for _, env := range res.Envs {
		for k, run := range res.Cell(res.Cases[0], env).Runs {
			if run.Round != k+1 {
				t.Errorf("%s: run %d is of round %d", env.ID, k, run.Round)
			}
		}
	}
	c.Template = parse(t, "{a|c}")
	if _, err := Measure(t.Context(), c); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("resuming another template: %v", err)
	}
}

func TestExcludedCellsDoNotRun(t *testing.T) {
	f := &fakeExec{answer: func(string, int) outcome { return seconds(1) }}
	res, err := Measure(t.Context(), Config{Template: parse(t, "{a|b}[x|y]{{!exclude col1=b,row1=x}}"), Rounds: 2, exec: f})
	if err != nil || slices.Contains(f.log, "bx") || len(f.log) != 6 {
		t.Fatalf("%v, %v", err, f.log)
	}
	if c := res.Cell(res.Cases[0], res.Envs[1]); !c.Excluded || c.Dimension == "" {
		t.Errorf("got %+v", c)
	}
	res, err = Measure(t.Context(), Config{Template: parse(t, "{a|b}[x|y]{{!exclude col1=b}}{{!exclude row1=x}}"), Rounds: 1, exec: f})
	if err != nil || len(res.Envs) != 1 || len(res.Cases) != 1 || res.Cases[0].ID != "y" {
		t.Errorf("a row and a column without cells: %v, %+v", err, res)
	}
	if _, err := Measure(t.Context(), Config{Template: parse(t, "{a|b}{{!exclude col1=a}}{{!exclude col1=b}}"), Rounds: 1, exec: f}); err == nil {
		t.Error("an empty matrix was measured")
	}
}

func TestProgressTellsTheTimeLeft(t *testing.T) {
	f := &fakeExec{answer: func(string, int) outcome { return seconds(2) }}
	var got []string
	c := Config{Template: parse(t, "{a|b}"), Rounds: 2, exec: f, Progress: func(p Progress) {
		got = append(got, fmt.Sprintf("%d/%d %s %s %v %v", p.Done, p.Total, p.Column, p.Phase, p.Run != nil, p.Left))
	}}
	if _, err := Measure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got[0] != "0/4 a round 1 false 0s" && got[0] != "0/4 b round 1 false 0s" || !strings.HasSuffix(got[2], "round 1 false 6s") || len(got) != 8 || !strings.HasPrefix(got[7], "4/4") {
		t.Errorf("got %q", got)
	}
}

func TestExtraction(t *testing.T) {
	fio := `{"fio version": "fio-3.33", "jobs": [{"jobname": "j", "error": 0, "read": {"iops": 100, "runtime": 2000, "clat_ns": {"N": 5, "min": 1000, "max": 3000, "mean": 2000, "percentile": {"50.000000": 1500}}}, "write": {"iops": 50.5, "runtime": 2500}}]}`
	byre := `{"seconds": 0.25, "requests": 1000, "iops": 4000, "latency-us": {"p99": 7}, "counters": {"flushes": 3}}`
	tests := []struct {
		name    string
		e       Extractor
		out     string
		s, iops float64
		says    string
	}{
		{"the classic line", Extractor{}, "Sending 100 read requests\nRun completed in 1.234 seconds.\n", 1.234, 0, ""},
		{"the first of several", Extractor{}, "Run completed in 1 seconds.\nRun completed in 2 seconds.", 1, 0, ""},
		{"the line as a rate", Extractor{Dimension: IOPS}, "Sending 100 read requests\nRun completed in 0.500 seconds.\n", 0, 200, ""},
		{"a rate of an unknown number", Extractor{Dimension: IOPS}, "Run completed in 0.500 seconds.\n", 0, 0, "cannot be told"},
		{"byre", Extractor{}, "Formatting x\n" + byre, 0.25, 0, ""},
		{"byre as a rate", Extractor{Dimension: IOPS}, byre, 0, 4000, ""},
		{"byre for a fixed time", Extractor{}, strings.Replace(byre, "{", `{"duration-limit": 1, `, 1), 0, 4000, ""},
		{"fio", Extractor{}, "note: x\n" + fio, 0, 150.5, ""},
		{"fio as a time", Extractor{Dimension: Seconds}, fio, 2.5, 0, ""},
		{"a fio job that failed", Extractor{}, strings.Replace(fio, `"error": 0`, `"error": 5`, 1), 0, 0, "failed with error 5"},
		{"a pattern", Extractor{Pattern: regexp.MustCompile(`real\s+(\S+)`)}, "user 1\nreal 0.75\n", 0.75, 0, ""},
		{"a pattern with a name", Extractor{Pattern: regexp.MustCompile(`(x+)=(?P<iops>[\d,]+)`)}, "xx=12,345", 0, 12345, ""},
		{"a pattern without a match", Extractor{Pattern: regexp.MustCompile(`real (\d+)`)}, "none", 0, 0, "nothing in the output matches"},
		{"a pattern that finds no number", Extractor{Pattern: regexp.MustCompile(`real (\w+)`)}, "real soon", 0, 0, "no number"},
		{"nothing", Extractor{}, "hello {\"a\": 1}\n{\"b\": 2}\n{broken", 0, 0, "no measurement"},
		{"a negative value", Extractor{Pattern: regexp.MustCompile(`(-\d+)`)}, "-5", 0, 0, "no positive number"},
		{"the whole script", Extractor{Wall: true}, "", 3, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := Run{Usage: &Usage{Wall: 3}}
			tt.e.extract(&run, []byte(tt.out), []byte(tt.out))
			if run.Seconds != tt.s || run.IOPS != tt.iops || (tt.says == "") != (run.Error == "") || !strings.Contains(run.Error, tt.says) {
				t.Errorf("got %+v", run)
			}
		})
	}
	var run Run
	(&Extractor{}).extract(&run, []byte(byre), []byte(byre))
	if run.Latency["p99"] != 7 || run.Counters["flushes"] != 3 {
		t.Errorf("got %+v", run)
	}
	run = Run{}
	(&Extractor{}).extract(&run, nil, []byte("Run completed in 0.50 seconds."))
	if run.Resolution != 0.01 {
		t.Errorf("resolution %g", run.Resolution)
	}
}

func TestScriptsRunByBashInTheirFolder(t *testing.T) {
	testenv.Tool(t, "bash")
	dir := t.TempDir()
	s := &shell{dir: dir, env: []string{"COLOUR=red"}, timeout: 10 * time.Second}
	o := s.run(t.Context(), "echo $COLOUR; echo err >&2; for i in {1..3}; do echo -n $i; done; touch made")
	if o.err != nil || string(o.stdout) != "red\n123" || !strings.Contains(string(o.combined), "err\n") || o.usage.Wall <= 0 {
		t.Errorf("got %q %q %v %+v", o.stdout, o.combined, o.err, o.usage)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	if o := s.run(t.Context(), "exit 7"); o.err == nil || o.err.Error() != "exit status 7" {
		t.Errorf("got %v", o.err)
	}
	s.timeout = 50 * time.Millisecond
	start := time.Now()
	if o := s.run(t.Context(), "sleep 100 & sleep 100"); o.err == nil || !strings.Contains(o.err.Error(), "timed out after 50ms") {
		t.Errorf("got %v", o.err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the children lived on: %v", d)
	}
}

// The whole path with noise, drift and outlier re-runs: the error rate that the interval promises must survive it.
func TestComparisonsThroughTheRunnerKeepTheirErrorRate(t *testing.T) {
	const comparisons = 2000
	tpl := parse(t, "{a|b}")
	measure := func(seed uint64, ratio float64) Comparison {
		rng := rand.New(rand.NewPCG(seed, 9))
		f := &fakeExec{}
		f.answer = func(script string, n int) outcome {
			s := (1 + 0.2*float64(n)/20) * (1 + 0.02*rng.NormFloat64())
			if rng.IntN(40) == 0 {
				s *= 1 + 2*rng.Float64() // something else ran meanwhile
			}
			if script == "b" {
				s *= ratio
			}
			return seconds(s)
		}
		res, err := Measure(t.Context(), Config{Template: tpl, Rounds: 10, Reruns: 3, exec: f})
		if err != nil {
			t.Fatal(err)
		}
		return res.Compare(res.Cases[0], res.Envs[1], res.Envs[0])
	}
	wrong, found := 0, 0
	for i := range uint64(comparisons) {
		if measure(i, 1).Verdict == Different {
			wrong++
		}
		if c := measure(i, 1.1); c.Verdict == Different && c.Ratio.Value > 1 {
			found++
		}
	}
	t.Logf("equal commands called different: %d of %d; a difference of 10 %% found: %d", wrong, comparisons, found)
	if wrong > comparisons*2/100 {
		t.Errorf("%d of %d equal commands were called different", wrong, comparisons)
	}
	if found < comparisons*98/100 {
		t.Errorf("a difference of 10 %% was found in %d of %d", found, comparisons)
	}
}
