package ioshell

import (
	"context"
	"time"

	"byre/block"
)

var errNoBreakpoints = block.Errorf(block.KindUnsupported, "set breakpoint", "", block.NoOffset, "no layer of this image suspends requests")

// withBreakpoints runs do on the layer that suspends requests and prints format with the reason if it fails.
func (s *Shell) withBreakpoints(do func(Breakpoints) error, format string, args ...any) error {
	err := error(errNoBreakpoints)
	if s.img.Breakpoints != nil {
		err = do(s.img.Breakpoints)
	}
	if err != nil {
		s.printf(format+": %s\n", append(args, errorString(err))...)
		return errFailed
	}
	return nil
}

func (s *Shell) breakAt(_ context.Context, inv *invocation) error {
	return s.withBreakpoints(func(b Breakpoints) error { return b.Break(inv.args[0], inv.args[1]) },
		"Could not set breakpoint")
}

func (s *Shell) removeBreak(_ context.Context, inv *invocation) error {
	return s.withBreakpoints(func(b Breakpoints) error { return b.RemoveBreak(inv.args[0]) },
		"Could not remove breakpoint %s", inv.args[0])
}

func (s *Shell) resume(_ context.Context, inv *invocation) error {
	err := s.withBreakpoints(func(b Breakpoints) error { return b.Resume(inv.args[0]) }, "Could not resume request")
	time.Sleep(settle) // the resumed request goes as far as it can, as after an aio command
	return err
}

// waitBreak waits until a request is suspended under the tag. It has no time limit: the classic one has none, and
// scripts rely on that; it ends with the run's context.
func (s *Shell) waitBreak(ctx context.Context, inv *invocation) error {
	if s.img.Breakpoints == nil {
		s.printf("Could not wait for request: %s\n", errorString(errNoBreakpoints))
		return errFailed
	}
	for !s.img.Breakpoints.Suspended(inv.args[0]) {
		select {
		case <-ctx.Done():
			return errFailed
		case <-time.After(200 * time.Microsecond):
		}
	}
	return nil
}
