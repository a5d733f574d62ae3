package compare

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// TableOptions choose what a table shows.
type TableOptions struct {
	// Diff says with which columns each one is compared: "all" earlier ones, the "first", or "none". Empty is all, and first
	// in tables of more than eight columns.
	Diff string
	// Sentences adds the comparisons in words; by default that is done for tables of two columns.
	Sentences *bool
}

func (o TableOptions) bases(columns, i int) int {
	switch {
	case o.Diff == "none":
		return 0
	case o.Diff == "first" || o.Diff == "" && columns > 8:
		return min(i, 1)
	}
	return i
}

// WriteText prints the classic table: values, and below them the differences to earlier columns.
func (r *Results) WriteText(w io.Writer, o TableOptions) error {
	dimension := r.Dimension()
	head := fmt.Sprintf("All results are in %s\n\n", dimension)
	if dimension == "" {
		head = "Results are in the unit that each cell names\n\n"
	}
	named := len(r.Envs) > 2
	var lines [][]string
	if named {
		row := []string{""}
		for i := range r.Envs {
			row = append(row, letter(i))
		}
		lines = append(lines, row)
	}
	row := []string{""}
	for _, env := range r.Envs {
		row = append(row, env.ID)
	}
	lines = append(lines, row)
	for _, c := range r.Cases {
		row := []string{c.ID}
		for _, env := range r.Envs {
			row = append(row, cellText(r.Cell(c, env), dimension == ""))
		}
		lines = append(lines, row)
		if diffs := r.differences(c, o, named); len(r.Envs) > 1 && diffs != nil {
			lines = append(lines, diffs)
		}
	}
	var b strings.Builder
	b.WriteString(head)
	writeGrid(&b, lines)
	for _, note := range r.notes(o) {
		b.WriteString("\n" + note)
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cellText is a value with its spread and its failures.
func cellText(c *Cell, withUnit bool) string {
	switch {
	case c == nil || c.Excluded:
		return "-"
	case !c.Ran() && len(c.Runs) == 0:
		return "not run"
	case !c.Ran():
		return "FAILED"
	}
	s := Number(*c.Average)
	if withUnit {
		s += " " + unit(c.Dimension)
	}
	s += spread(c)
	if c.NFailed > 0 {
		s += fmt.Sprintf("\n(%d failed)", c.NFailed)
	}
	return s
}

// differences is the row below the values, or nil if no column is compared.
func (r *Results) differences(row Axle, o TableOptions, named bool) []string {
	line := []string{""}
	any := false
	for i, col := range r.Envs {
		cell := r.Cell(row, col)
		var s string
		if cell.Ran() {
			for j, base := range r.Envs[:o.bases(len(r.Envs), i)] {
				s += "  "
				if named {
					s += letter(j)
				}
				s += difference(r.Compare(row, col, base), cell, r.Cell(row, base))
				any = true
			}
		}
		line = append(line, s)
	}
	if !any {
		return nil
	}
	return line
}

// notes are the lines below the table: legend, sentences, interruption.
func (r *Results) notes(o TableOptions) []string {
	var same, unclear, few bool
	var sentences []string
	for _, row := range r.Cases {
		for i, col := range r.Envs {
			for _, base := range r.Envs[:o.bases(len(r.Envs), i)] {
				cmp := r.Compare(row, col, base)
				if cmp.Ratio.N == 0 {
					continue
				}
				same = same || cmp.Verdict == Same
				unclear = unclear || cmp.Verdict == Unclear
				if cmp.Verdict == NoVerdict {
					few = true
					continue
				}
				sentences = append(sentences, cmp.Sentence(r.Cell(row, col).Dimension, r.confidence()))
			}
		}
	}
	var notes []string
	level := strconv.FormatFloat(r.confidence()*100, 'g', 4, 64)
	if same {
		notes = append(notes, fmt.Sprintf("%s no difference: less than %.3g%% either way (%s%% confidence)", markSame, r.margin()*100, level))
	}
	if unclear {
		notes = append(notes, fmt.Sprintf("%s no difference shown: the %s%% confidence interval includes equality, but is wide", markUnclear, level))
	}
	if few {
		notes = append(notes, "single runs: differences are without confidence")
	}
	if o.Sentences != nil && *o.Sentences || o.Sentences == nil && len(r.Envs) == 2 {
		if len(notes) > 0 {
			notes = append(notes, "")
		}
		notes = append(notes, sentences...)
	}
	if r.Interrupted {
		notes = append(notes, "interrupted: not all runs were made")
	}
	return notes
}

// writeGrid prints cells left-aligned, two spaces apart, between two rules. A cell may have several lines.
func writeGrid(b *strings.Builder, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, row := range lines {
		for i, cell := range row {
			for _, s := range strings.Split(cell, "\n") {
				width[i] = max(width[i], utf8.RuneCountInString(s))
			}
		}
	}
	rule := make([]string, len(width))
	for i, n := range width {
		rule[i] = strings.Repeat("-", n)
	}
	b.WriteString(strings.Join(rule, "  ") + "\n")
	for _, row := range lines {
		height := 1
		for _, cell := range row {
			height = max(height, strings.Count(cell, "\n")+1)
		}
		for k := range height {
			var line strings.Builder
			for i, cell := range row {
				s := ""
				if parts := strings.Split(cell, "\n"); k < len(parts) {
					s = parts[k]
				}
				line.WriteString(s + strings.Repeat(" ", width[i]-utf8.RuneCountInString(s)+2))
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
	b.WriteString(strings.Join(rule, "  ") + "\n")
}

// WriteMarkdown prints one table row per row, with the differences in the cells.
func (r *Results) WriteMarkdown(w io.Writer, o TableOptions) error {
	dimension := r.Dimension()
	named := len(r.Envs) > 2
	var b strings.Builder
	corner := dimension
	b.WriteString("| " + markdownCell(corner))
	for i, env := range r.Envs {
		b.WriteString(" | ")
		if named {
			b.WriteString("**" + letter(i) + "** ")
		}
		b.WriteString(markdownCell(env.ID))
	}
	b.WriteString(" |\n|" + strings.Repeat("---|", len(r.Envs)+1) + "\n")
	for _, row := range r.Cases {
		b.WriteString("| " + markdownCell(row.ID))
		diffs := r.differences(row, o, named)
		for i, env := range r.Envs {
			b.WriteString(" | " + markdownCell(cellText(r.Cell(row, env), dimension == "")))
			if diffs != nil && diffs[i+1] != "" {
				b.WriteString("<br>" + markdownCell(strings.Join(strings.Fields(diffs[i+1]), " ")))
			}
		}
		b.WriteString(" |\n")
	}
	for i, note := range r.notes(o) {
		if i == 0 {
			b.WriteByte('\n')
		}
		if note != "" {
			b.WriteString("* " + markdownCell(note) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownCell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", "<br>", "<", "&lt;", "~", `\~`, "*", `\*`, "_", `\_`, "`", "\\`").Replace(s)
}

// WriteCSV prints one line per cell, with its ratio to the first column.
func (r *Results) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"row", "column", "dimension", "runs", "failed", "mean", "median", "stdev", "min", "max", "ratio", "ratio-low", "ratio-high", "verdict"})
	num := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			cell := r.Cell(row, env)
			if cell == nil || cell.Excluded {
				continue
			}
			rec := []string{row.ID, env.ID, cell.Dimension, strconv.Itoa(len(cell.Runs)), strconv.Itoa(cell.NFailed), num(cell.Average), num(cell.Median), num(cell.Stdev), num(cell.Min), num(cell.Max)}
			cmp := r.Compare(row, env, r.Envs[0])
			if env.ID == r.Envs[0].ID || cmp.Ratio.N == 0 {
				rec = append(rec, "", "", "", "")
			} else if q := cmp.Ratio; q.Known {
				rec = append(rec, num(&q.Value), num(&q.Low), num(&q.High), string(cmp.Verdict))
			} else {
				rec = append(rec, num(&q.Value), "", "", string(cmp.Verdict))
			}
			c.Write(rec)
		}
	}
	c.Flush()
	return c.Error()
}
