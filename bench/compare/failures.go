package compare

import (
	"fmt"
	"io"
	"strings"
)

// WriteFailures prints, for each cell with failed runs, the first failure and the end of its output.
func (r *Results) WriteFailures(w io.Writer) error {
	var b strings.Builder
	for _, row := range r.Cases {
		for _, col := range r.Envs {
			c := r.Cell(row, col)
			if c == nil || c.NFailed == 0 {
				continue
			}
			for i := range c.Runs {
				if c.Runs[i].Error == "" {
					continue
				}
				fmt.Fprintf(&b, "%s: %d of %d runs failed; run %d: %s\n", CellName(row.ID, col.ID), c.NFailed, len(c.Runs), i+1, c.Runs[i].Error)
				if out := c.Runs[i].Output; out != "" {
					lines := strings.Split(out, "\n")
					for _, line := range lines[max(0, len(lines)-8):] {
						b.WriteString("    " + line + "\n")
					}
				}
				break
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// CellName names a cell on one line.
func CellName(row, col string) string {
	var parts []string
	for _, id := range []string{row, col} {
		if id != "" {
			parts = append(parts, oneLine(id))
		}
	}
	return strings.Join(parts, " :: ")
}
