package compare

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func FuzzConditions(f *testing.F) {
	for _, s := range []string{"new > old * 1.05", "A - B < 'x y' / 2", "(a+b)*(c) >= d", "-", "a/b-c > 1"} {
		f.Add(s)
	}
	r := fixture([]string{"new", "old", "c"}, []string{"r", "s"}, [][]string{{"1 2 3", "2 2 2", "F"}, {"1", "0", "5iops"}})
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCondition(s)
		if err != nil {
			return
		}
		list, err := c.Judge(r)
		if err == nil {
			for _, j := range list {
				_ = j.Sentence(c)
			}
		}
	})
}

// Whatever a results file holds, printing it ends well or with an error.
func FuzzResultsFiles(f *testing.F) {
	for _, r := range []*Results{rich(), fixture([]string{""}, []string{""}, [][]string{{"1 2"}})} {
		path := filepath.Join(f.TempDir(), "r.json")
		if err := r.Save(path); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"envs":[{"id":"a"},{"id":"a"}],"cases":[{"id":"b"}],"tab":{"b":{"a":{"dimension":"iops","runs":[{"iops":1e308},{"iops":-1}]}}}}`))
	path := filepath.Join(f.TempDir(), "in.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 100_000 {
			return
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(path)
		if err != nil {
			return
		}
		if len(r.Envs)*len(r.Envs)*len(r.Cases) > 1000 {
			return
		}
		for _, write := range []func(io.Writer) error{r.WriteHTML, r.WriteSVG, r.WriteCSV, r.WriteFailures,
			func(w io.Writer) error { return r.WriteText(w, TableOptions{}) },
			func(w io.Writer) error { return r.WriteMarkdown(w, TableOptions{}) }} {
			if err := write(io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		Merge([]string{"1", "2"}, []*Results{r, r})
	})
}
