// Command speed measures byre against the installed qemu-img on real files and prints a table of ratios, with the
// target of each. It makes its images itself, in a folder of its own.
//
//	go run ./internal/cmd/speed -byre bin/byre
//
// Each case alternates runs of the two programs, so that what slows the machine slows both, and compares medians. The
// exit code is 1 if a target was missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.byre, "byre", "bin/byre", "the program to measure")
	flag.StringVar(&b.ref, "qemu-img", "qemu-img", "the program to compare it with")
	flag.StringVar(&b.dir, "dir", "", "folder for the images, about 5 times the corpus; default: a temporary one")
	flag.StringVar(&b.tree, "tree", "/usr", "file tree to take the corpus from")
	flag.Int64Var(&b.size, "size", 640, "size of the corpus in MiB")
	flag.IntVar(&b.runs, "runs", 5, "runs of each program in each case")
	only := flag.String("only", "", "run only cases whose name this regular expression matches")
	flag.Parse()
	ok, err := b.main(*only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "speed: %v\n", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// bench is one run of the program.
type bench struct {
	byre, ref, dir, tree string
	size                 int64
	runs                 int
}

// sample is what one run cost.
type sample struct {
	wall, user, system time.Duration
	memory             int64 // peak, bytes; 0 if unknown
}

func (b *bench) main(only string) (ok bool, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	if b.byre, err = filepath.Abs(b.byre); err != nil {
		return false, err
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "byre-speed-"); err != nil {
			return false, err
		}
		defer os.RemoveAll(b.dir)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\twhat\tqemu-img\tbyre\tratio\ttarget\t")
	ok = true
	for _, c := range cases {
		if !match.MatchString(c.name) {
			continue
		}
		if err := b.prepare(c.needs); err != nil {
			return false, err
		}
		good, err := b.run(w, c)
		if err != nil {
			return false, fmt.Errorf("%s: %w", c.name, err)
		}
		ok = ok && good
		w.Flush()
	}
	return ok, nil
}

// run measures one case and prints its lines.
func (b *bench) run(w *tabwriter.Writer, c testCase) (ok bool, err error) {
	var ref, own []sample
	for range b.runs {
		for _, who := range []struct {
			prog string
			list *[]sample
		}{{b.ref, &ref}, {b.byre, &own}} {
			s, err := b.once(who.prog, c.args)
			if err != nil {
				return false, err
			}
			*who.list = append(*who.list, s)
		}
	}
	ok = b.line(w, c, "wall", ref, own, c.wall, func(s sample) time.Duration { return s.wall })
	if c.user > 0 {
		ok = b.line(w, c, "user CPU", ref, own, c.user, func(s sample) time.Duration { return s.user }) && ok
	}
	most := slices.MaxFunc(own, func(a, b sample) int { return int(a.memory - b.memory) }).memory
	refMost := slices.MaxFunc(ref, func(a, b sample) int { return int(a.memory - b.memory) }).memory
	if most > 0 {
		verdict := "<= 150 MiB"
		if most > maxMemory {
			verdict, ok = verdict+" MISSED", false
		}
		fmt.Fprintf(w, "%s\tpeak memory\t%.1f MiB\t%.1f MiB\t\t%s\t\n", c.name, mib(refMost), mib(most), verdict)
	}
	return ok, nil
}

// maxMemory is the most that any case may take.
const maxMemory = 150 << 20

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// line prints the medians of one quantity.
func (b *bench) line(w *tabwriter.Writer, c testCase, what string, ref, own []sample, target float64, of func(sample) time.Duration) bool {
	r, o := median(ref, of), median(own, of)
	ratio := o.Seconds() / max(r.Seconds(), 1e-6)
	verdict := fmt.Sprintf("<= %.2f", target)
	missed := target > 0 && ratio > target
	switch {
	case target == 0:
		verdict = "-"
	case missed:
		verdict += " MISSED"
	}
	fmt.Fprintf(w, "%s\t%s\t%.3f s\t%.3f s\t%.2f\t%s\t\n", c.name, what, r.Seconds(), o.Seconds(), ratio, verdict)
	return !missed
}

func median(s []sample, of func(sample) time.Duration) time.Duration {
	var d []time.Duration
	for _, x := range s {
		d = append(d, of(x))
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// once runs a program on the case's command line, in the folder, with no old output around.
func (b *bench) once(prog string, args []string) (sample, error) {
	os.Remove(filepath.Join(b.dir, output))
	cmd := exec.Command(prog, args...)
	cmd.Dir = b.dir
	out, err := os.CreateTemp(b.dir, "stdout-")
	if err != nil {
		return sample{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	settle() // what the run before has written must not be paid for by this one
	start := time.Now()
	err = cmd.Run()
	s := sample{wall: time.Since(start)}
	if err != nil {
		return s, fmt.Errorf("%s %q: %w", prog, args, err)
	}
	s.user, s.system = cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime()
	s.memory = peakMemory(cmd.ProcessState)
	return s, nil
}
