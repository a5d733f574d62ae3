package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressForm is how progress shows.
type progressForm uint8

const (
	progressNone  progressForm = iota
	progressPlain              // the classic "    (NN.NN/100%)\r"
	progressAuto               // a bar if it goes to a terminal, else nothing
)

func parseProgress(s string) (progressForm, error) {
	switch s {
	case "", "plain":
		return progressPlain, nil
	case "auto":
		return progressAuto, nil
	case "none":
		return progressNone, nil
	}
	return 0, fmt.Errorf("--progress wants plain, auto or none, not '%s'", s)
}

// progress shows how far a long operation has come. SIGUSR1 makes it print a line at any time, in every form.
type progress struct {
	out, err io.Writer
	form     progressForm
	name     string // what the bar calls the operation
	stop     func()

	mu struct {
		sync.Mutex
		done, total int64
		percent     float64
		shown       float64 // percent when it was printed last
		started     time.Time
		drawn       time.Time
		width       int // of the bar's line as drawn last
	}
}

// startProgress shows 0 and begins to listen. finish must follow.
func (c *call) startProgress(form progressForm, name string) *progress {
	p := &progress{out: c.Stdout, err: c.Stderr, form: form, name: name}
	if form == progressAuto && !isTerminal(c.Stdout) {
		p.form = progressNone
	}
	p.mu.started = time.Now()
	p.stop = onUserSignal(p.line)
	p.set(0, 1)
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// set notes how much is done.
func (p *progress) set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.done, p.mu.total = done, total
	p.mu.percent = 0
	if total > 0 {
		p.mu.percent = min(100*float64(done)/float64(total), 100)
	}
	p.showLocked()
}

// showLocked prints if there is something new: the classic form at steps of more than one percent, at 0 and at 100.
func (p *progress) showLocked() {
	switch p.form {
	case progressPlain:
		d := p.mu.percent - p.mu.shown
		if d > 1 || d < -1 || p.mu.percent == 0 || p.mu.percent == 100 {
			p.mu.shown = p.mu.percent
			fmt.Fprintf(p.out, "    (%.2f/100%%)\r", p.mu.percent)
		}
	case progressAuto:
		if now := time.Now(); now.Sub(p.mu.drawn) >= 100*time.Millisecond {
			p.mu.drawn = now
			p.drawLocked(now)
		}
	}
}

// complete shows that everything is done.
func (p *progress) complete() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.done, p.mu.percent = p.mu.total, 100
	p.showLocked()
}

// finish ends the display.
func (p *progress) finish() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.form {
	case progressPlain:
		fmt.Fprint(p.out, "\n")
	case progressAuto:
		p.drawLocked(time.Now())
		fmt.Fprint(p.out, "\n")
	}
}

// line prints the percentage on a line of its own, for SIGUSR1.
func (p *progress) line() {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.err, "    (%.2f/100%%)\n", p.mu.percent)
}

const barCells = 30

// drawLocked draws the bar: name, bar, percentage, rate, time left.
func (p *progress) drawLocked(now time.Time) {
	full := int(p.mu.percent / 100 * barCells)
	var b strings.Builder
	fmt.Fprintf(&b, "%s [%s%s] %5.1f%%", p.name, strings.Repeat("#", full), strings.Repeat("-", barCells-full), p.mu.percent)
	if spent := now.Sub(p.mu.started).Seconds(); spent >= 0.5 && p.mu.done > 0 {
		rate := float64(p.mu.done) / spent
		fmt.Fprintf(&b, "  %.0f MiB/s", rate/(1<<20))
		left := time.Duration(float64(p.mu.total-p.mu.done) / rate * float64(time.Second)).Round(time.Second)
		if p.mu.done < p.mu.total {
			fmt.Fprintf(&b, "  %v left", left)
		} else {
			fmt.Fprintf(&b, "  in %v", time.Duration(spent*float64(time.Second)).Round(time.Second/10))
		}
	}
	line := b.String()
	fmt.Fprintf(p.out, "\r%-*s", p.mu.width, line)
	p.mu.width = len(line)
}
