package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Condition is a comparison of two arithmetic expressions over column names, such as
//
//	new > old * 1.05
//
// A name is the id of a column, its letter, or the alternative of a column switch; in the last case the condition is
// judged for every combination of the other column switches. A name with other characters than letters, digits and
// one of _ . - / is put in quotes. The values are measurements as they are: of seconds, less is better.
type Condition struct {
	source      string
	left, right expr
	op          string
	names       []string
}

// Judgement is what a condition gave for one row and one combination of switches.
type Judgement struct {
	Case, Where string
	// Holds: left and right differ in that way, and the confidence interval of their ratio says so too. Maybe: only the
	// values say so. Missing: a column has no measurement.
	Holds, Maybe, Missing bool
	Ratio                 Ratio // of left to right
}

func (c *Condition) String() string { return c.source }

// expr computes a value from those of the named columns.
type expr func(values map[string]float64) float64

// ParseCondition reads a condition.
func ParseCondition(s string) (*Condition, error) {
	p := &condParser{src: s}
	if err := p.scan(); err != nil {
		return nil, err
	}
	c := &Condition{source: s}
	var err error
	if c.left, err = p.sum(); err != nil {
		return nil, err
	}
	c.op = p.next()
	if !slices.Contains([]string{"<", ">", "<=", ">="}, c.op) {
		return nil, fmt.Errorf("condition %q: want <, >, <= or >= where %q stands", s, c.op)
	}
	if c.right, err = p.sum(); err != nil {
		return nil, err
	}
	if rest := p.next(); rest != "" {
		return nil, fmt.Errorf("condition %q: %q is too much", s, rest)
	}
	if c.names = p.names; len(c.names) == 0 {
		return nil, fmt.Errorf("condition %q names no column", s)
	}
	return c, nil
}

type condParser struct {
	src    string
	tokens []string
	names  []string
}

// quoteMark marks tokens that are names for certain.
const quoteMark = "\x00"

func nameRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.", r)
}

func (p *condParser) scan() error {
	s := p.src
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		r := []rune(s)[0]
		n := 1
		switch {
		case r == '"' || r == '\'':
			end := strings.IndexRune(s[1:], r)
			if end < 0 {
				return fmt.Errorf("condition %q: the quote at %q is never closed", p.src, s)
			}
			p.tokens = append(p.tokens, quoteMark+s[1:1+end])
			s = s[end+2:]
			continue
		case strings.HasPrefix(s, "<=") || strings.HasPrefix(s, ">="):
			n = 2
		case strings.ContainsRune("<>+-*/()", r):
		case nameRune(r):
			// a hyphen or slash within a name must touch letters on both sides: new-build, but new - old
			rs := []rune(s)
			k := 1
			for k < len(rs) && (nameRune(rs[k]) || (rs[k] == '-' || rs[k] == '/') && k+1 < len(rs) && unicode.IsLetter(rs[k+1]) && unicode.IsLetter(rs[k-1])) {
				k++
			}
			n = len(string(rs[:k]))
		default:
			return fmt.Errorf("condition %q: %q was not expected", p.src, string(r))
		}
		p.tokens = append(p.tokens, s[:n])
		s = s[n:]
	}
	return nil
}

func (p *condParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *condParser) next() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *condParser) sum() (expr, error) {
	return p.chain(p.product, map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b },
		"-": func(a, b float64) float64 { return a - b },
	})
}

func (p *condParser) product() (expr, error) {
	return p.chain(p.atom, map[string]func(a, b float64) float64{
		"*": func(a, b float64) float64 { return a * b },
		"/": func(a, b float64) float64 { return a / b },
	})
}

func (p *condParser) chain(part func() (expr, error), ops map[string]func(a, b float64) float64) (expr, error) {
	left, err := part()
	for err == nil && ops[p.peek()] != nil {
		op, a := ops[p.next()], left
		var b expr
		if b, err = part(); err == nil {
			left = func(v map[string]float64) float64 { return op(a(v), b(v)) }
		}
	}
	return left, err
}

func (p *condParser) atom() (expr, error) {
	t := p.next()
	name, quoted := strings.CutPrefix(t, quoteMark)
	switch {
	case t == "":
		return nil, fmt.Errorf("condition %q ends too early", p.src)
	case t == "(" && !quoted:
		e, err := p.sum()
		if err == nil && p.next() != ")" {
			err = fmt.Errorf("condition %q: a parenthesis is never closed", p.src)
		}
		return e, err
	case !quoted && !nameRune([]rune(t)[0]):
		return nil, fmt.Errorf("condition %q: want a number or a column where %q stands", p.src, t)
	}
	if v, err := strconv.ParseFloat(name, 64); err == nil && !quoted {
		return func(map[string]float64) float64 { return v }, nil
	}
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
	return func(v map[string]float64) float64 { return v[name] }, nil
}

// Judge evaluates the condition for every row, and fails if a name is no column.
func (c *Condition) Judge(r *Results) ([]Judgement, error) {
	groups, err := c.bind(r)
	if err != nil {
		return nil, err
	}
	var list []Judgement
	for _, row := range r.Cases {
		for _, g := range groups {
			if j, ok := c.judge(r, row, g); ok {
				list = append(list, j)
			}
		}
	}
	return list, nil
}

// Check fails if a name of the condition is no column of the template.
func (c *Condition) Check(t *Template) error {
	r := &Results{}
	for _, col := range t.Columns() {
		r.Envs = append(r.Envs, Axle{ID: col.ID, Switches: col.Values()})
	}
	_, err := c.bind(r)
	return err
}

// binding gives each name its column.
type binding struct {
	where string
	cols  map[string]Axle
}

// bind finds what the names mean.
func (c *Condition) bind(r *Results) ([]binding, error) {
	whole := binding{cols: map[string]Axle{}}
	for _, name := range c.names {
		for i, col := range r.Envs {
			if oneLine(col.ID) == oneLine(name) {
				whole.cols[name] = col
				break
			}
			if letter(i) == name {
				whole.cols[name] = col // unless a column has that very id
			}
		}
	}
	if len(whole.cols) == len(c.names) {
		return []binding{whole}, nil
	}
	sw := ""
	for _, col := range r.Envs {
		for name, label := range col.Switches {
			if oneLine(label) == oneLine(c.names[0]) {
				sw = name
			}
		}
	}
	byRest := map[string]*binding{}
	var keys []string
	for _, col := range r.Envs {
		label := oneLine(col.Switches[sw])
		if !slices.Contains(c.names, label) {
			continue
		}
		key := rest(col, sw)
		if byRest[key] == nil {
			byRest[key] = &binding{where: key, cols: map[string]Axle{}}
			keys = append(keys, key)
		}
		byRest[key].cols[label] = col
	}
	var list []binding
	for _, key := range keys {
		if len(byRest[key].cols) == len(c.names) {
			list = append(list, *byRest[key])
		}
	}
	if list == nil {
		var ids []string
		for _, col := range r.Envs {
			ids = append(ids, strconv.Quote(oneLine(col.ID)))
		}
		return nil, fmt.Errorf("condition %q: no column goes by one of its names (there are: %s)", c.source, strings.Join(ids, ", "))
	}
	return list, nil
}

// rest describes the other choices of a column.
func rest(col Axle, sw string) string {
	var parts []string
	for name, label := range col.Switches {
		if name != sw {
			parts = append(parts, name+"="+oneLine(label))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// judge evaluates one row. It reports false if a column is excluded there.
func (c *Condition) judge(r *Results, row Axle, b binding) (Judgement, bool) {
	j := Judgement{Case: row.ID, Where: b.where}
	rounds := map[int]map[string]float64{}
	resolution := 0.0
	dimension := ""
	for name, col := range b.cols {
		cell := r.Cell(row, col)
		if cell != nil && cell.Excluded {
			return j, false
		}
		if !cell.Ran() || dimension != "" && cell.Dimension != dimension {
			j.Missing = true
			return j, true
		}
		dimension = cell.Dimension
		resolution = max(resolution, cell.resolution())
		for i := range cell.Runs {
			if v, ok := cell.Runs[i].Value(dimension); ok {
				round := cell.Runs[i].Round
				if rounds[round] == nil {
					rounds[round] = map[string]float64{}
				}
				rounds[round][name] = v
			}
		}
	}
	var left, right []float64
	for _, values := range rounds {
		if len(values) == len(b.cols) {
			left, right = append(left, c.left(values)), append(right, c.right(values))
		}
	}
	if j.Missing = len(left) == 0; j.Missing {
		return j, true
	}
	j.Ratio = PairedRatio(left, right, r.confidence(), resolution)
	greater := strings.HasPrefix(c.op, ">")
	value, bound := j.Ratio.Value, j.Ratio.Low
	if !greater {
		value, bound = 1/value, 1/j.Ratio.High
	}
	held := value > 1 || value == 1 && strings.HasSuffix(c.op, "=")
	if !j.Ratio.Known { // a single round, or differences that are not positive
		l, r := mean(left), mean(right)
		held = greater && l > r || !greater && l < r || l == r && strings.HasSuffix(c.op, "=")
	}
	sure := !j.Ratio.Known || bound >= 1
	j.Holds, j.Maybe = held && sure, held && !sure
	return j, true
}

// Sentence says what a judgement found.
func (j Judgement) Sentence(c *Condition) string {
	var where []string
	for _, s := range []string{oneLine(j.Case), j.Where} {
		if s != "" {
			where = append(where, s)
		}
	}
	s := strings.Join(where, ", ")
	if s != "" {
		s += ": "
	}
	switch {
	case j.Missing:
		return s + c.source + " cannot be judged: a measurement is missing"
	case j.Holds:
		s += c.source + " holds"
	case j.Maybe:
		s += c.source + " seems to hold, but that is not sure"
	default:
		s += c.source + " does not hold"
	}
	if j.Ratio.Known {
		s += fmt.Sprintf(" (left / right is %.3f, from %.3f to %.3f)", j.Ratio.Value, j.Ratio.Low, j.Ratio.High)
	} else {
		s += fmt.Sprintf(" (left / right is %.3f)", j.Ratio.Value)
	}
	return s
}
