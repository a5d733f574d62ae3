package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// outcome is what one execution of a script gave.
type outcome struct {
	stdout, combined []byte
	usage            Usage
	err              error
}

// executor runs scripts; tests have one that does not.
type executor interface {
	run(ctx context.Context, script string) outcome
}

// shell runs scripts by bash, each in a process group of its own.
type shell struct {
	dir     string
	env     []string
	timeout time.Duration
}

// maxOutput bounds what is kept of a script's output.
const maxOutput = 16 << 20

// waitDelay is how long a finished script's background processes may keep its output open.
const waitDelay = 2 * time.Second

func (s *shell) run(ctx context.Context, script string) outcome {
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("timed out after %v", s.timeout))
		defer cancel()
	}
	var out output
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = s.dir
	if len(s.env) > 0 {
		cmd.Env = append(os.Environ(), s.env...)
	}
	cmd.Stdout, cmd.Stderr = &stream{o: &out, keep: true}, &stream{o: &out}
	cmd.WaitDelay = waitDelay
	ownGroup(cmd)
	flushes := deviceFlushes()
	start := time.Now()
	err := cmd.Run()
	o := outcome{stdout: out.stdout.Bytes(), combined: out.combined.Bytes(), err: err}
	o.usage = usageOf(cmd.ProcessState)
	o.usage.Wall = time.Since(start).Seconds()
	o.usage.DeviceFlushes = -1
	if flushes >= 0 {
		o.usage.DeviceFlushes = deviceFlushes() - flushes
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		o.err = nil // the script itself ended well
	case err != nil && ctx.Err() != nil:
		o.err = context.Cause(ctx)
	}
	return o
}

// output collects standard output, and both streams in the order of arrival.
type output struct {
	mu               sync.Mutex
	stdout, combined bytes.Buffer
}

type stream struct {
	o    *output
	keep bool
}

func (s *stream) Write(p []byte) (int, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	room := min(len(p), max(0, maxOutput-s.o.combined.Len()))
	s.o.combined.Write(p[:room])
	if s.keep {
		s.o.stdout.Write(p[:room])
	}
	return len(p), nil
}

// tail is the end of an output, for people.
func tail(out []byte) string {
	const most = 4000
	s := strings.ToValidUTF8(strings.TrimRight(string(out), "\n"), "?")
	if len(s) > most {
		s = strings.ToValidUTF8("… "+s[len(s)-most:], "")
	}
	return s
}

// deviceFlushes sums the flush requests that all block devices have completed, or returns -1.
func deviceFlushes() int64 {
	data, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return -1
	}
	sum := int64(-1)
	for line := range strings.Lines(string(data)) {
		const flushField = 18 // after major, minor, name and 15 older counters
		f := strings.Fields(line)
		var n int64
		if len(f) > flushField {
			if _, err := fmt.Sscan(f[flushField], &n); err == nil {
				sum = max(sum, 0) + n
			}
		}
	}
	return sum
}
