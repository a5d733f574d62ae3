package compare

import (
	"fmt"
	"strings"
)

// Axis says whether a switch spans the columns or the rows of the matrix.
type Axis int

const (
	Column Axis = iota
	Row
)

func (a Axis) String() string {
	if a == Row {
		return "row"
	}
	return "column"
}

// maxCells bounds the matrix: more is a slip of the pen, not a benchmark.
const maxCells = 10000

// Alternative is one choice of a switch: Text goes into the command, Label into tables.
type Alternative struct {
	Label, Text string
}

// Switch is a place of the template that differs between columns or rows.
type Switch struct {
	Name string
	Axis Axis
	Alts []Alternative
	// Implicit marks a switch that was not named in the template.
	Implicit bool
}

// Template is a parsed template. It is not safe for concurrent change; reading it is.
type Template struct {
	Source   string
	parts    []part
	switches []*Switch
	excludes []exclusion
}

// part is literal text, or the place of a switch if sw is set.
type part struct {
	text string
	sw   *Switch
}

// Choice is one column or one row: an alternative for each switch of that axis.
type Choice struct {
	// ID is unique among the choices of its axis: labels joined by " / ", numbered when they collide.
	ID   string
	pick map[*Switch]int
}

// Values returns the chosen labels by switch name.
func (c Choice) Values() map[string]string {
	m := make(map[string]string, len(c.pick))
	for sw, i := range c.pick {
		m[sw.Name] = sw.Alts[i].Label
	}
	return m
}

// Switches returns the switches in the order of the template.
func (t *Template) Switches() []*Switch { return t.switches }

// Columns returns the columns of the matrix, at least one; without column switches its ID is empty.
func (t *Template) Columns() []Choice { return t.choices(Column) }

// Rows is like Columns for row switches.
func (t *Template) Rows() []Choice { return t.choices(Row) }

func (t *Template) choices(axis Axis) []Choice {
	list := []Choice{{pick: map[*Switch]int{}}}
	for _, sw := range t.switches {
		if sw.Axis != axis {
			continue
		}
		next := make([]Choice, 0, len(list)*len(sw.Alts))
		for _, c := range list {
			for i := range sw.Alts {
				pick := make(map[*Switch]int, len(c.pick)+1)
				for k, v := range c.pick {
					pick[k] = v
				}
				pick[sw] = i
				next = append(next, Choice{pick: pick})
			}
		}
		list = next
	}
	t.nameChoices(axis, list)
	return list
}

// nameChoices gives every choice its ID. Equal alternatives, as in {a|a}, must not fall together.
func (t *Template) nameChoices(axis Axis, list []Choice) {
	seen := map[string]int{}
	for i := range list {
		var labels []string
		for _, sw := range t.switches {
			// a single choice without a label is no choice
			if sw.Axis == axis && (len(sw.Alts) > 1 || sw.Alts[0].Label != "") {
				labels = append(labels, strings.TrimSpace(sw.Alts[list[i].pick[sw]].Label))
			}
		}
		id := strings.Join(labels, " / ")
		if id == "" && len(labels) > 0 {
			id = "(none)"
		}
		base := id
		for n := 2; seen[id] > 0; n++ {
			id = fmt.Sprintf("%s (%d)", base, n)
		}
		seen[id]++
		list[i].ID = id
	}
}

// Command returns the script of one cell.
func (t *Template) Command(col, row Choice) string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.sw == nil {
			b.WriteString(p.text)
			continue
		}
		pick := col.pick
		if p.sw.Axis == Row {
			pick = row.pick
		}
		b.WriteString(p.sw.Alts[pick[p.sw]].Text)
	}
	return b.String()
}

// Excluded reports whether an exclusion takes the cell out of the matrix.
func (t *Template) Excluded(col, row Choice) bool {
	for _, e := range t.excludes {
		if e.matches(t, col, row) {
			return true
		}
	}
	return false
}

// Switch returns the switch of that name, or nil.
func (t *Template) Switch(name string) *Switch {
	for _, sw := range t.switches {
		if sw.Name == name {
			return sw
		}
	}
	return nil
}

// Uses reports whether the switch stands anywhere in the text.
func (t *Template) Uses(name string) bool {
	for _, p := range t.parts {
		if p.sw != nil && p.sw.Name == name {
			return true
		}
	}
	return false
}

// check refuses a matrix that nobody would wait for.
func (t *Template) check() error {
	cells := 1
	for _, sw := range t.switches {
		cells *= len(sw.Alts)
		if cells > maxCells {
			return fmt.Errorf("template: the matrix has more than %d cells", maxCells)
		}
	}
	return nil
}

// exclusion is a set of choices that must not meet in one cell.
type exclusion struct {
	want []excludedValue
}

type excludedValue struct {
	name, value string
}

// Exclude takes all cells out of the matrix in which every one of the comma-separated name=value choices is made. A
// value is compared with the label and the text of the alternative.
func (t *Template) Exclude(spec string) error {
	var e exclusion
	for _, item := range strings.Split(spec, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" {
			return fmt.Errorf("exclusion %q: want name=value", strings.TrimSpace(item))
		}
		sw := t.Switch(strings.TrimSpace(name))
		if sw == nil {
			return fmt.Errorf("exclusion %q: no switch is named %q (there are: %s)", spec, name, t.names())
		}
		v := excludedValue{sw.Name, strings.TrimSpace(value)}
		if !sw.has(v.value) {
			return fmt.Errorf("exclusion %q: switch %q has no alternative %q", spec, sw.Name, v.value)
		}
		e.want = append(e.want, v)
	}
	t.excludes = append(t.excludes, e)
	return nil
}

func (t *Template) names() string {
	var names []string
	for _, sw := range t.switches {
		names = append(names, sw.Name)
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (s *Switch) has(value string) bool {
	for i := range s.Alts {
		if s.is(i, value) {
			return true
		}
	}
	return false
}

func (s *Switch) is(i int, value string) bool {
	return strings.TrimSpace(s.Alts[i].Text) == value || s.Alts[i].Label == value
}

func (e exclusion) matches(t *Template, col, row Choice) bool {
	for _, v := range e.want {
		sw := t.Switch(v.name)
		pick := col.pick
		if sw.Axis == Row {
			pick = row.pick
		}
		if !sw.is(pick[sw], v.value) {
			return false
		}
	}
	return true
}
