package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Dimensions of a measurement.
const (
	Seconds = "seconds" // less is better
	IOPS    = "iops"    // more is better
)

// Results is what a comparison measured. Its JSON form holds all that the classic tools read (envs, cases and tab with
// runs, dimension, average, stdev and n-failed of each cell) and more.
type Results struct {
	Envs  []Axle                      `json:"envs"`
	Cases []Axle                      `json:"cases"`
	Tab   map[string]map[string]*Cell `json:"tab"`

	Title    string   `json:"title,omitempty"`
	Template string   `json:"template,omitempty"`
	Machine  *Machine `json:"machine,omitempty"`
	// Versions are what compared binaries say of themselves, by their labels.
	Versions    map[string]string `json:"versions,omitempty"`
	Started     time.Time         `json:"started,omitzero"`
	Finished    time.Time         `json:"finished,omitzero"`
	Rounds      int               `json:"rounds,omitempty"`
	Confidence  float64           `json:"confidence,omitempty"`
	Margin      float64           `json:"margin,omitempty"`
	Interrupted bool              `json:"interrupted,omitempty"`
	Comparisons []Comparison      `json:"comparisons,omitempty"`
}

// Axle is the name of a column (env) or row (case), with its choices by switch name.
type Axle struct {
	ID       string            `json:"id"`
	Switches map[string]string `json:"switches,omitempty"`
	// source tells columns of different files apart: their runs are no pairs.
	source int
}

// Cell is one command and its runs.
type Cell struct {
	Runs      []Run    `json:"runs"`
	Dimension string   `json:"dimension"`
	Average   *float64 `json:"average,omitempty"`
	Stdev     *float64 `json:"stdev,omitempty"`
	NFailed   int      `json:"n-failed,omitempty"`
	Median    *float64 `json:"median,omitempty"`
	Min       *float64 `json:"min,omitempty"`
	Max       *float64 `json:"max,omitempty"`
	Command   string   `json:"command,omitempty"`
	// Excluded cells are no part of the matrix.
	Excluded bool `json:"excluded,omitempty"`
	// Slow is set when the cell got fewer runs because one took longer than the limit.
	Slow bool `json:"slow,omitempty"`
	// Warmup and Replaced hold runs that do not count: those before the first round, and outliers that were measured again.
	Warmup   []Run `json:"warmup,omitempty"`
	Replaced []Run `json:"replaced,omitempty"`
}

// Run is one execution of a command.
type Run struct {
	Seconds float64 `json:"seconds,omitempty"`
	IOPS    float64 `json:"iops,omitempty"`
	// Error says why there is no measurement; Output is then what the command printed (its end, if that was long).
	Error  string `json:"error,omitempty"`
	Output string `json:"output,omitempty"`
	// Round pairs the run with those of other columns; 0 if it belongs to none.
	Round int `json:"round,omitempty"`
	// Resolution is the step of the measured value, when it was printed rounded.
	Resolution float64   `json:"resolution,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	// Usage is that of the whole script; Counters and Latency are what a bench command reported of itself.
	Usage    *Usage             `json:"usage,omitempty"`
	Counters map[string]float64 `json:"counters,omitempty"`
	Latency  map[string]float64 `json:"latency-us,omitempty"`
}

// Usage is what a script cost: seconds, and counts of the kernel.
type Usage struct {
	Wall              float64 `json:"wall"`
	User              float64 `json:"user"`
	System            float64 `json:"system"`
	VoluntarySwitches int64   `json:"voluntary-switches"`
	ForcedSwitches    int64   `json:"forced-switches"`
	MaxRSS            int64   `json:"max-rss,omitempty"` // bytes
	// DeviceFlushes counts cache flushes of all block devices of the machine meanwhile, by whomever; -1 if unknown.
	DeviceFlushes int64 `json:"device-flushes"`
}

// Value returns the measurement of a run in the dimension, and whether there is one.
func (r *Run) Value(dimension string) (float64, bool) {
	if r.Error != "" {
		return 0, false
	}
	if dimension == IOPS {
		return r.IOPS, true
	}
	return r.Seconds, true
}

// Values returns the measurements of all runs that succeeded.
func (c *Cell) Values() []float64 {
	var v []float64
	for i := range c.Runs {
		if x, ok := c.Runs[i].Value(c.Dimension); ok {
			v = append(v, x)
		}
	}
	return v
}

// Ran reports whether at least one run succeeded.
func (c *Cell) Ran() bool { return c != nil && c.Average != nil }

// Update computes the figures of the cell from its runs. The dimension is that of the first run that succeeded; one that
// has both counts as iops, unless prefer says seconds.
func (c *Cell) Update(prefer string) {
	c.NFailed = 0
	dimension := ""
	for i := range c.Runs {
		r := &c.Runs[i]
		switch {
		case r.Error != "":
			c.NFailed++
		case dimension == "" && r.IOPS != 0 && (prefer != Seconds || r.Seconds == 0):
			dimension = IOPS
		case dimension == "":
			dimension = Seconds
		}
	}
	if dimension != "" {
		c.Dimension = dimension
	}
	c.Average, c.Stdev, c.Median, c.Min, c.Max = nil, nil, nil, nil, nil
	if v := c.Values(); len(v) > 0 {
		s := Summarize(v)
		c.Average, c.Stdev, c.Median, c.Min, c.Max = &s.Mean, &s.Stdev, &s.Median, &s.Min, &s.Max
	}
}

// Cell returns the cell of a row and a column, or nil if the file has none.
func (r *Results) Cell(row, col Axle) *Cell { return r.Tab[row.ID][col.ID] }

// Dimension returns the dimension of all cells, or "" if they differ.
func (r *Results) Dimension() string {
	dimension := ""
	for _, row := range r.Cases {
		for _, col := range r.Envs {
			c := r.Cell(row, col)
			if !c.Ran() {
				continue
			}
			if dimension != "" && c.Dimension != dimension {
				return ""
			}
			dimension = c.Dimension
		}
	}
	if dimension == "" {
		return Seconds // nothing succeeded
	}
	return dimension
}

// Finish computes everything that follows from the runs. Cells without a success get the dimension of the others,
// since the classic tools look for one in every cell.
func (r *Results) Finish() {
	dimension := r.Dimension()
	if dimension == "" {
		dimension = Seconds
	}
	r.Comparisons = nil
	for _, row := range r.Cases {
		for i, col := range r.Envs {
			c := r.Cell(row, col)
			if c != nil && !c.Ran() {
				c.Dimension = dimension
			}
			for _, base := range r.Envs[:i] {
				if cmp := r.Compare(row, col, base); cmp.Ratio.N > 0 {
					r.Comparisons = append(r.Comparisons, cmp)
				}
			}
		}
	}
}

// Comparison is the ratio of a column to another one, in one row.
type Comparison struct {
	Case    string  `json:"case"`
	Env     string  `json:"env"`
	Base    string  `json:"base"`
	Ratio   Ratio   `json:"ratio"`
	Paired  bool    `json:"paired"`
	Verdict Verdict `json:"verdict"`
}

// Compare computes the ratio of col to base. Runs of the same round are pairs; where there are none, the samples are
// compared as a whole.
func (r *Results) Compare(row, col, base Axle) Comparison {
	cmp := Comparison{Case: row.ID, Env: col.ID, Base: base.ID, Verdict: NoVerdict}
	a, b := r.Cell(row, col), r.Cell(row, base)
	if !a.Ran() || !b.Ran() || a.Dimension != b.Dimension {
		return cmp
	}
	resolution := max(a.resolution(), b.resolution())
	confidence := r.confidence()
	va, vb := pairs(a, b)
	if cmp.Paired = col.source == base.source && len(va) > 0; cmp.Paired {
		cmp.Ratio = PairedRatio(va, vb, confidence, resolution)
	} else {
		cmp.Ratio = UnpairedRatio(a.Values(), b.Values(), confidence, resolution)
	}
	cmp.Verdict = cmp.Ratio.Verdict(r.margin())
	return cmp
}

func (r *Results) confidence() float64 {
	if r.Confidence > 0 && r.Confidence < 1 {
		return r.Confidence
	}
	return DefaultConfidence
}

func (r *Results) margin() float64 {
	if r.Margin > 0 {
		return r.Margin
	}
	return DefaultMargin
}

// pairs returns the values of the rounds in which both cells succeeded.
func pairs(a, b *Cell) (va, vb []float64) {
	byRound := map[int]float64{}
	for i := range b.Runs {
		if v, ok := b.Runs[i].Value(b.Dimension); ok && b.Runs[i].Round > 0 {
			byRound[b.Runs[i].Round] = v
		}
	}
	for i := range a.Runs {
		v, ok := a.Runs[i].Value(a.Dimension)
		if w, both := byRound[a.Runs[i].Round]; ok && both {
			va, vb = append(va, v), append(vb, w)
		}
	}
	return va, vb
}

func (c *Cell) resolution() float64 {
	step := 0.0
	for i := range c.Runs {
		step = max(step, c.Runs[i].Resolution)
	}
	return step
}

// Save writes the results to a file that is whole at any time: an interrupted write leaves the one before.
func (r *Results) Save(path string) error {
	data, err := json.MarshalIndent(r, "", "    ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(data, '\n'))
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}

// WriteJSON prints what Save writes.
func (r *Results) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "    ")
	return e.Encode(r)
}

// maxResultsFile bounds what is read as a results file.
const maxResultsFile = 256 << 20

// Load reads results of this tool or of the classic ones, and computes anew what follows from the runs.
func Load(path string) (*Results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r Results
	dec := json.NewDecoder(io.LimitReader(f, maxResultsFile))
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: no results file: %w", path, err)
	}
	if len(r.Envs) == 0 || len(r.Cases) == 0 {
		return nil, fmt.Errorf("%s: no results file: it names no columns or no rows", path)
	}
	for _, row := range r.Cases {
		for _, col := range r.Envs {
			c := r.Cell(row, col)
			if c == nil {
				continue
			}
			if c.Dimension != "" && c.Dimension != Seconds && c.Dimension != IOPS {
				return nil, fmt.Errorf("%s: row %q, column %q: unknown dimension %q", path, row.ID, col.ID, c.Dimension)
			}
			c.Update(c.Dimension)
		}
	}
	r.Finish()
	return &r, nil
}

// Merge puts results of several files side by side: the columns of all, named by file, next to their namesakes. Rows are
// those of the first file, then what the others add.
func Merge(names []string, list []*Results) *Results {
	out := &Results{Tab: map[string]map[string]*Cell{}, Confidence: list[0].Confidence, Margin: list[0].Margin}
	type column struct {
		file int
		env  Axle
	}
	var cols []column
	var seen []string
	for _, r := range list {
		for _, env := range r.Envs {
			if slices.Contains(seen, env.ID) {
				continue
			}
			seen = append(seen, env.ID)
			for i, other := range list {
				if slices.ContainsFunc(other.Envs, func(a Axle) bool { return a.ID == env.ID }) {
					cols = append(cols, column{i, env})
				}
			}
		}
		for _, row := range r.Cases {
			if out.Tab[row.ID] == nil {
				out.Tab[row.ID] = map[string]*Cell{}
				out.Cases = append(out.Cases, row)
			}
		}
	}
	for _, c := range cols {
		id := names[c.file]
		if c.env.ID != "" {
			id += ": " + c.env.ID
		}
		out.Envs = append(out.Envs, Axle{ID: id, Switches: c.env.Switches, source: c.file})
		for _, row := range out.Cases {
			if cell := list[c.file].Cell(row, c.env); cell != nil {
				out.Tab[row.ID][id] = cell
			}
		}
	}
	out.Finish()
	return out
}
