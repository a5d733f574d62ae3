package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture builds results from values: one string per cell, "F" for a failed run. Rounds count from 1.
func fixture(envs, cases []string, cells [][]string) *Results {
	r := &Results{Tab: map[string]map[string]*Cell{}}
	for _, e := range envs {
		r.Envs = append(r.Envs, Axle{ID: e})
	}
	for i, c := range cases {
		r.Cases = append(r.Cases, Axle{ID: c})
		r.Tab[c] = map[string]*Cell{}
		for j, e := range envs {
			cell := &Cell{}
			for k, f := range strings.Fields(cells[i][j]) {
				run := Run{Round: k + 1}
				if f == "F" {
					run.Error, run.Output = "exit status 1", "no luck"
				} else if n, _ := fmt.Sscanf(f, "%fiops", &run.IOPS); n != 1 || !strings.HasSuffix(f, "iops") {
					run.IOPS = 0
					fmt.Sscanf(f, "%f", &run.Seconds)
				}
				cell.Runs = append(cell.Runs, run)
			}
			cell.Update("")
			r.Tab[c][e] = cell
		}
	}
	r.Finish()
	return r
}

func text(t *testing.T, r *Results, o TableOptions) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTextTables(t *testing.T) {
	off := false
	tests := []struct {
		name string
		r    *Results
		o    TableOptions
	}{
		{"three columns, single runs and failures", fixture([]string{"env0", "env1", "env2"}, []string{"case one", "c2"}, [][]string{
			{"6.6", "6.2", "5"}, {"13", "11 11", "15 F"}}), TableOptions{}},
		{"no difference, and none shown", fixture([]string{"a", "b"}, []string{"r1", "r2", "r3"}, [][]string{
			{"1.00 1.01 1.00 0.99", "1.00 1.00 1.01 1.00"}, {"1 2 1", "2 1 1"}, {"2 2 2.01", "1 1 1"}}), TableOptions{}},
		{"everything failed", fixture([]string{"a", "b"}, []string{"r"}, [][]string{{"F", "F F"}}), TableOptions{}},
		{"a failed base", fixture([]string{"a", "b", "c"}, []string{"r"}, [][]string{{"F", "2", "1"}}), TableOptions{}},
		{"zero means", fixture([]string{"a", "b", "c"}, []string{"r"}, [][]string{{"0 0", "0 0", "1 1"}}), TableOptions{}},
		{"mixed dimensions", fixture([]string{"a", "b"}, []string{"r", "s"}, [][]string{{"12345iops", "1"}, {"5iops", "10iops"}}), TableOptions{}},
		{"columns of several lines", fixture([]string{"a\nb", "c"}, []string{"r"}, [][]string{{"1", "2"}}), TableOptions{Sentences: &off, Diff: "none"}},
		{"a single unnamed cell", fixture([]string{""}, []string{""}, [][]string{{"1 2"}}), TableOptions{}},
	}
	path := filepath.Join("testdata", "tables.txt")
	golden, _ := os.ReadFile(path)
	var all strings.Builder
	for _, tt := range tests {
		fmt.Fprintf(&all, "# %s\n%s\n", tt.name, text(t, tt.r, tt.o))
	}
	if os.Getenv("BYRE_REWRITE") != "" {
		os.MkdirAll("testdata", 0o777)
		if err := os.WriteFile(path, []byte(all.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if all.String() != string(golden) {
		t.Errorf("tables differ from %s:\n%s", path, all.String())
	}
}

// The sample of the classic tool, from its own values: same letters, same places; only more digits, and no rounding to two.
func TestTheTextTableHasTheClassicForm(t *testing.T) {
	r := fixture([]string{"env0", "env1", "env2"}, []string{"case one", "c2"}, [][]string{
		{"6.1 7.1", "6.11 6.29", "5"}, {"13", "11", "15 F"}})
	for _, row := range r.Cases { // as measured by the classic tool: no rounds, hence no pairs
		for _, env := range r.Envs {
			for i := range r.Cell(row, env).Runs {
				r.Cell(row, env).Runs[i].Round = 0
			}
		}
	}
	got := text(t, r, TableOptions{})
	want := `All results are in seconds

--------  ----------  ---------  --------------
          A           B          C
          env0        env1       env2
case one  6.60 ± 11%  6.20 ± 3%  5.00
                        A-6%?      A-24%  B-19%
c2        13.0        11.0       15.0
                                 (1 failed)
                        A-15%      A+15%  B+36%
--------  ----------  ---------  --------------
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestManyColumnsGetLettersBeyondZ(t *testing.T) {
	var envs []string
	var row []string
	for i := range 60 {
		envs = append(envs, fmt.Sprintf("env%d", i))
		row = append(row, fmt.Sprint(i+1))
	}
	out := text(t, fixture(envs, []string{"r"}, [][]string{row}), TableOptions{Diff: "all"})
	for _, want := range []string{" Z ", " AA ", " AZ ", " BA ", " BH", "BG+2%"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.ContainsAny(out, "[\\]^") {
		t.Error("letters run past Z")
	}
}

func TestMarkdownAndCSV(t *testing.T) {
	r := fixture([]string{"a|b", "c"}, []string{"-s 4K"}, [][]string{{"2 2.1 2", "1 1.05 1.01 F"}})
	var md, csv strings.Builder
	if err := r.WriteMarkdown(&md, TableOptions{}); err != nil {
		t.Fatal(err)
	}
	wantMD := "| seconds | a\\|b | c |\n|---|---|---|\n| -s 4K | 2.03 ± 3% | 1.02 ± 3%<br>(1 failed)<br>-50% |\n\n* -s 4K: c is 1.993 times faster than a\\|b (99 % sure: 1.929 to 2.060; 3 pairs)\n"
	if md.String() != wantMD {
		t.Errorf("got:\n%s\nwant:\n%s", md.String(), wantMD)
	}
	if err := r.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(csv.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "-s 4K,a|b,seconds,3,0,2.03") || !strings.HasSuffix(lines[1], ",2.1,,,,") || !strings.HasPrefix(lines[2], "-s 4K,c,seconds,4,1,1.01") || !strings.HasSuffix(lines[2], ",different") {
		t.Errorf("got:\n%s", csv.String())
	}
}

// The classic reader looks for exactly these, in every cell.
func TestResultsFilesHoldWhatTheClassicToolsRead(t *testing.T) {
	r := fixture([]string{"a", "b"}, []string{"x", "y"}, [][]string{{"1 3", "2iops 2iops"}, {"F", ""}})
	path := filepath.Join(t.TempDir(), "results.json")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Envs, Cases []struct{ ID string }
		Tab         map[string]map[string]map[string]any
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	for _, c := range raw.Cases {
		for _, e := range raw.Envs {
			cell := raw.Tab[c.ID][e.ID]
			if d := cell["dimension"]; d != "seconds" && d != "iops" {
				t.Errorf("%s/%s: dimension %v", c.ID, e.ID, d)
			}
		}
	}
	if c := raw.Tab["x"]["a"]; c["average"] != 2.0 || c["stdev"] != 1.4142135623730951 || c["n-failed"] != nil || len(c["runs"].([]any)) != 2 {
		t.Errorf("got %v", c)
	}
	if c := raw.Tab["y"]["a"]; c["average"] != nil || c["n-failed"] != 1.0 {
		t.Errorf("got %v", c)
	}
	back, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, back, TableOptions{}), text(t, r, TableOptions{}); got != want {
		t.Errorf("read back:\n%s\nwant:\n%s", got, want)
	}
}

func TestFilesThatAreNoResultsAreRefused(t *testing.T) {
	for _, s := range []string{"", "{}", "[]", `{"envs":[{"id":"a"}],"cases":[]}`, `{"envs":[{"id":"a"}],"cases":[{"id":"b"}],"tab":{"b":{"a":{"dimension":"miles"}}}}`} {
		path := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestMergedResultsStandNextToTheirNamesakesUnpaired(t *testing.T) {
	a := fixture([]string{"n", "o"}, []string{"r"}, [][]string{{"1 1 1", "2 2 2"}})
	b := fixture([]string{"o", "p"}, []string{"r", "s"}, [][]string{{"3 3 3", "4 4 4"}, {"5", "6"}})
	m := Merge([]string{"A", "B"}, []*Results{a, b})
	var got []string
	for _, e := range m.Envs {
		got = append(got, e.ID)
	}
	if s := strings.Join(got, ","); s != "A: n,A: o,B: o,B: p" {
		t.Errorf("columns %s", s)
	}
	if cmp := m.Compare(m.Cases[0], m.Envs[2], m.Envs[1]); cmp.Paired || cmp.Verdict != Different || Number(cmp.Ratio.Value) != "1.50" {
		t.Errorf("got %+v", cmp)
	}
	if cmp := m.Compare(m.Cases[0], m.Envs[1], m.Envs[0]); !cmp.Paired {
		t.Errorf("columns of one file should stay paired: %+v", cmp)
	}
	if c := m.Cell(m.Cases[1], m.Envs[0]); c != nil {
		t.Errorf("a cell that no file has: %+v", c)
	}
	text(t, m, TableOptions{})
}
