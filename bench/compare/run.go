package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"time"
)

// Config describes a comparison to be run.
type Config struct {
	Template *Template
	Title    string
	Versions map[string]string // see Results
	Extract  Extractor
	// Rounds is how often each cell is measured, Warmup how often it runs before.
	Rounds, Warmup int
	// SlowLimit ends the runs of a cell after one that took longer; Timeout ends a run. 0 is no limit.
	SlowLimit, Timeout time.Duration
	// Reruns is how many rounds of a row may be measured again because one of their values lies far off.
	Reruns int
	// DropCaches empties the page cache of the machine before every run, DropFiles only that of some files.
	DropCaches bool
	DropFiles  []string
	// Dir is where scripts run, Env what they get in addition to the environment.
	Dir string
	Env []string
	// Confidence and Margin are for judging; 0 means the defaults.
	Confidence, Margin float64
	// Resume holds earlier results of the same template: what they have is not measured again.
	Resume *Results
	// Save, if set, is called with the results after every run. Progress, if set, hears what is going on.
	Save     func(*Results) error
	Progress func(Progress)

	exec executor
}

// Progress tells about the run that begins (Run is nil) or has ended.
type Progress struct {
	Done, Total int // runs
	Row, Column string
	Phase       string // "warm-up", "round 3", "again 3"
	Run         *Run
	Dimension   string
	Left        time.Duration // estimate; 0 while unknown
}

// givingUp is the number of failures without a success after which a cell is left alone.
const givingUp = 3

// outlierLimit is in scaled median absolute deviations. It is wide: a value beyond it was disturbed, not unlucky.
const outlierLimit = 6

// runner executes a Config.
type runner struct {
	Config
	cols, rows []Choice
	res        *Results
	cells      [][]*Cell // by row and column; nil if excluded
	done       int
	total      int
	wall       [][]float64 // seconds of the last run of each cell
}

// Measure runs the matrix. When ctx ends, or saving fails, it returns what was measured so far with the error.
func Measure(ctx context.Context, c Config) (*Results, error) {
	r := &runner{Config: c}
	r.cols, r.rows = c.Template.matrix()
	if len(r.cols) == 0 {
		return nil, errors.New("every cell of the matrix is excluded")
	}
	if r.exec == nil {
		if _, err := exec.LookPath("bash"); err != nil {
			return nil, fmt.Errorf("templates are run by bash: %w", err)
		}
		r.exec = &shell{dir: c.Dir, env: c.Env, timeout: c.Timeout}
	}
	r.layOut()
	if c.Resume != nil {
		if err := r.resume(c.Resume); err != nil {
			return nil, err
		}
	}
	err := r.rounds(ctx)
	if err == nil {
		err = r.again(ctx)
	}
	r.res.Interrupted = ctx.Err() != nil
	r.res.Finished = time.Now().Round(time.Second)
	r.finish()
	if serr := r.save(); err == nil {
		err = serr
	}
	return r.res, err
}

// layOut makes the empty results.
func (r *runner) layOut() {
	res := &Results{Title: r.Title, Versions: r.Versions, Template: r.Template.Source, Machine: ThisMachine(), Started: time.Now().Round(time.Second), Rounds: r.Rounds,
		Confidence: r.Confidence, Margin: r.Margin, Tab: map[string]map[string]*Cell{}}
	for _, col := range r.cols {
		res.Envs = append(res.Envs, Axle{ID: col.ID, Switches: col.Values()})
	}
	for _, row := range r.rows {
		res.Cases = append(res.Cases, Axle{ID: row.ID, Switches: row.Values()})
		res.Tab[row.ID] = map[string]*Cell{}
		var line []*Cell
		for _, col := range r.cols {
			cell := &Cell{Runs: []Run{}, Dimension: Seconds, Command: r.Template.Command(col, row)}
			res.Tab[row.ID][col.ID] = cell
			if cell.Excluded = r.Template.Excluded(col, row); cell.Excluded {
				cell.Command = ""
				cell = nil
			} else {
				r.total += r.Warmup + r.Rounds
			}
			line = append(line, cell)
		}
		r.cells = append(r.cells, line)
		r.wall = append(r.wall, make([]float64, len(r.cols)))
	}
	r.res = res
}

// resume takes over the runs of earlier results, which must be of the same commands.
func (r *runner) resume(old *Results) error {
	for i, row := range r.res.Cases {
		for j, col := range r.res.Envs {
			cell, was := r.cells[i][j], old.Cell(row, col)
			if cell == nil || was == nil {
				continue
			}
			if was.Command != cell.Command {
				return fmt.Errorf("cannot resume: row %q, column %q was another command then", row.ID, col.ID)
			}
			cell.Runs, cell.Warmup, cell.Replaced, cell.Slow = was.Runs, was.Warmup, was.Replaced, was.Slow
			cell.Runs = slices.DeleteFunc(cell.Runs, func(run Run) bool { return run.Round > r.Rounds })
		}
	}
	for _, a := range old.Envs {
		if !slices.ContainsFunc(r.res.Envs, func(b Axle) bool { return a.ID == b.ID }) {
			return fmt.Errorf("cannot resume: column %q is not in the template", a.ID)
		}
	}
	for _, a := range old.Cases {
		if !slices.ContainsFunc(r.res.Cases, func(b Axle) bool { return a.ID == b.ID }) {
			return fmt.Errorf("cannot resume: row %q is not in the template", a.ID)
		}
	}
	if !old.Machine.Same(r.res.Machine) {
		return errors.New("cannot resume: the results come from another machine")
	}
	r.res.Started = old.Started
	return nil
}

// order is the sequence of columns in a round. Rounds come in twos, forwards and backwards, and each pair starts with
// another column: no column is always first, last, or behind the same one.
func order(columns, round int) []int {
	seq := make([]int, columns)
	for i := range seq {
		seq[i] = (i + (round+1)/2) % columns
	}
	if round%2 == 0 {
		slices.Reverse(seq)
	}
	return seq
}

// rounds measures everything, row by row within a round, so that the values of a pair are close in time.
func (r *runner) rounds(ctx context.Context) error {
	for round := 1 - r.Warmup; round <= r.Rounds; round++ {
		for i := range r.rows {
			for _, j := range order(len(r.cols), max(0, round)) {
				cell := r.cells[i][j]
				if cell == nil || cell.has(round) || round < 1 && len(cell.Warmup) >= round+r.Warmup {
					r.skip(cell)
					continue
				}
				if round > 0 && (cell.Slow || cell.hopeless()) {
					r.skip(cell)
					continue
				}
				if err := r.one(ctx, i, j, round, "round"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *runner) skip(cell *Cell) {
	if cell != nil {
		r.done++
	}
}

func (c *Cell) has(round int) bool {
	return round > 0 && slices.ContainsFunc(c.Runs, func(run Run) bool { return run.Round == round })
}

// hopeless: it has failed often and never succeeded.
func (c *Cell) hopeless() bool {
	for i := range c.Runs {
		if c.Runs[i].Error == "" {
			return false
		}
	}
	return len(c.Runs) >= givingUp
}

// one executes a cell once and files the run. Its error means that the whole comparison ends.
func (r *runner) one(ctx context.Context, i, j, round int, phase string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cell := r.cells[i][j]
	if round < 1 {
		phase = "warm-up"
	} else {
		phase = fmt.Sprintf("%s %d", phase, round)
	}
	p := Progress{Done: r.done, Total: r.total, Row: r.rows[i].ID, Column: r.cols[j].ID, Phase: phase, Left: r.left()}
	r.tell(p)
	if err := r.drop(); err != nil {
		return err
	}
	started := time.Now()
	o := r.exec.run(ctx, cell.Command)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	run := Run{Started: started.Round(time.Millisecond), Usage: &o.usage}
	if o.err != nil {
		run.Error = o.err.Error()
	} else {
		r.Extract.extract(&run, o.stdout, o.combined)
	}
	if run.Error != "" {
		run.Output = tail(o.combined)
	}
	if round < 1 {
		cell.Warmup = append(cell.Warmup, run)
	} else {
		run.Round = round
		cell.Runs = append(cell.Runs, run)
		slices.SortStableFunc(cell.Runs, func(a, b Run) int { return a.Round - b.Round })
	}
	r.wall[i][j] = o.usage.Wall
	cell.Slow = cell.Slow || round > 0 && r.SlowLimit > 0 && o.usage.Wall > r.SlowLimit.Seconds()
	cell.Update(r.Extract.Dimension)
	r.done++
	p.Done, p.Run, p.Dimension = r.done, &run, cell.Dimension
	r.tell(p)
	return r.save()
}

func (r *runner) tell(p Progress) {
	if r.Progress != nil {
		r.Progress(p)
	}
}

func (r *runner) drop() error {
	for _, path := range r.DropFiles {
		if err := dropFile(path); err != nil {
			return err
		}
	}
	if r.DropCaches {
		return dropCaches()
	}
	return nil
}

// left estimates the time for the runs to come from the last duration of each cell.
func (r *runner) left() time.Duration {
	var known float64
	n := 0
	for _, line := range r.wall {
		for _, w := range line {
			if w > 0 {
				known += w
				n++
			}
		}
	}
	if n == 0 {
		return 0
	}
	return time.Duration(known / float64(n) * float64(r.total-r.done) * float64(time.Second))
}

// again measures rounds with an outlier anew, in all columns of the row, so that pairs stay pairs: the worst ones first,
// as often as Reruns allows for the row.
func (r *runner) again(ctx context.Context) error {
	for i := range r.rows {
		for range r.Reruns {
			round := r.disturbed(i)
			if round == 0 {
				break
			}
			if err := r.anew(ctx, i, round); err != nil {
				return err
			}
		}
	}
	return nil
}

// anew measures one round of a row again and puts the values before aside.
func (r *runner) anew(ctx context.Context, i, round int) error {
	r.total += len(r.cols)
	for _, j := range order(len(r.cols), round) {
		cell := r.cells[i][j]
		if cell == nil || !cell.has(round) {
			r.done++
			continue
		}
		k := slices.IndexFunc(cell.Runs, func(run Run) bool { return run.Round == round })
		old := cell.Runs[k]
		cell.Runs = slices.Delete(cell.Runs, k, k+1)
		if err := r.one(ctx, i, j, round, "again"); err != nil {
			if !cell.has(round) { // interrupted: what was measured stays
				cell.Runs = slices.Insert(cell.Runs, k, old)
				cell.Update(r.Extract.Dimension)
			}
			return err
		}
		cell.Replaced = append(cell.Replaced, old)
	}
	return nil
}

// disturbed finds the round of a row that holds the value farthest off, or returns 0. A value is judged against the
// others of its cell, both as it is and relative to its round: the latter sees through a drift of the machine. Either
// way high and low values count alike, so this favours no column.
func (r *runner) disturbed(i int) int {
	worst, round := 0.0, 0
	for _, cell := range r.cells[i] {
		if cell == nil || cell.Slow {
			continue
		}
		values, relative, rounds := r.series(i, cell)
		for _, s := range [][]float64{values, relative} {
			if k, far := Farthest(s, outlierLimit); k >= 0 && far > worst {
				worst, round = far, rounds[k]
			}
		}
	}
	return round
}

// series lists the values of a cell, the same relative to the geometric mean of their round over all columns, and the rounds.
func (r *runner) series(i int, cell *Cell) (values, relative []float64, rounds []int) {
	for k := range cell.Runs {
		v, ok := cell.Runs[k].Value(cell.Dimension)
		if !ok {
			continue
		}
		round := cell.Runs[k].Round
		sum, n := 0.0, 0
		for _, other := range r.cells[i] {
			if other == nil || other.Dimension != cell.Dimension {
				continue
			}
			for q := range other.Runs {
				if w, ok := other.Runs[q].Value(other.Dimension); ok && other.Runs[q].Round == round && w > 0 {
					sum += math.Log(w)
					n++
				}
			}
		}
		values, rounds = append(values, v), append(rounds, round)
		relative = append(relative, v/math.Exp(sum/float64(max(n, 1))))
	}
	return values, relative, rounds
}

func (r *runner) finish() {
	for _, line := range r.cells {
		for _, cell := range line {
			if cell != nil {
				cell.Update(r.Extract.Dimension)
			}
		}
	}
	r.res.Finish()
}

func (r *runner) save() error {
	if r.Save == nil {
		return nil
	}
	r.res.Finished = time.Now().Round(time.Second)
	r.finish()
	return r.Save(r.res)
}

// matrix lists columns and rows less those of which every cell is excluded.
func (t *Template) matrix() (cols, rows []Choice) {
	cols, rows = t.Columns(), t.Rows()
	usedCol := make([]bool, len(cols))
	used := rows[:0:0]
	for _, row := range rows {
		any := false
		for j, col := range cols {
			if !t.Excluded(col, row) {
				any, usedCol[j] = true, true
			}
		}
		if any {
			used = append(used, row)
		}
	}
	var left []Choice
	for j, col := range cols {
		if usedCol[j] {
			left = append(left, col)
		}
	}
	return left, used
}

// Commands returns the script of every cell that is part of the matrix, row by row, with names for people.
func (t *Template) Commands() (names, scripts []string) {
	for _, row := range t.Rows() {
		for _, col := range t.Columns() {
			if t.Excluded(col, row) {
				continue
			}
			names = append(names, CellName(row.ID, col.ID))
			scripts = append(scripts, t.Command(col, row))
		}
	}
	return names, scripts
}
