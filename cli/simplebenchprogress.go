package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"byre/bench/compare"

	"golang.org/x/term"
)

// benchProgress tells about runs on standard error: one line that changes on a terminal, else one line for each run.
type benchProgress struct {
	w     io.Writer // nil: quiet
	live  bool
	width int
}

func newBenchProgress(c *call, quiet bool) *benchProgress {
	p := &benchProgress{w: c.Stderr}
	if quiet {
		p.w = nil
	}
	if f, ok := c.Stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.live = true
		if p.width, _, _ = term.GetSize(int(f.Fd())); p.width <= 0 {
			p.width = 80
		}
	}
	return p
}

func (p *benchProgress) tell(e compare.Progress) {
	if p.w == nil {
		return
	}
	what := fmt.Sprintf("%s  %s", e.Phase, compare.CellName(e.Row, e.Column))
	left := ""
	if e.Left > 0 {
		left = fmt.Sprintf("  (%v left)", e.Left.Round(time.Second))
	}
	if p.live {
		line := []rune(fmt.Sprintf("[%d/%d] %s%s", e.Done, e.Total, what, left))
		if len(line) >= p.width {
			line = line[:p.width-1]
		}
		fmt.Fprintf(p.w, "\r%s\x1b[K", string(line))
		return
	}
	if e.Run == nil {
		return
	}
	result := "failed: " + e.Run.Error
	if v, ok := e.Run.Value(e.Dimension); ok {
		result = compare.Number(v) + " " + e.Dimension
	}
	fmt.Fprintf(p.w, "[%d/%d] %s  %s%s\n", e.Done, e.Total, what, result, left)
}

// end clears the line.
func (p *benchProgress) end() {
	if p.w != nil && p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
