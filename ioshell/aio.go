package ioshell

import (
	"context"
	"time"

	"byre/block"
)

// settle is how long an aio command waits for its request to come as far as it can: into the storage, to a breakpoint,
// or behind another request. Commands then meet requests in the order in which they were given.
const settle = 5 * time.Millisecond

func (s *Shell) aioRead(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "CP:iqv")
	if err != nil {
		return err
	}
	r := &request{op: "readv", check: f.has('P'), dump: f.has('v'), quiet: f.has('q'), csv: f.has('C'), length: -1}
	if r.check {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if f.has('i') {
		s.printf("injecting invalid read request\n")
		return nil
	}
	if len(f.rest) < 2 {
		return errUsage
	}
	if err := s.spans(r, f.rest); err != nil {
		return err
	}
	r.buf = s.cfg.Alloc(int(r.total))
	s.start(ctx, r, false, func() { _ = s.finishRead(r) })
	return nil
}

func (s *Shell) aioWrite(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "CfiP:quz")
	if err != nil {
		return err
	}
	r := &request{op: "aio_write", zero: f.has('z'), quiet: f.has('q'), csv: f.has('C'), fill: 0xcd}
	if f.has('P') {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if f.has('i') {
		s.printf("injecting invalid write request\n")
		return nil
	}
	if len(f.rest) < 2 {
		return errUsage
	}
	complaint := ""
	switch {
	case r.zero && len(f.rest) != 2:
		complaint = "-z supports only a single length parameter"
	case f.has('u') && !r.zero:
		complaint = "-u requires -z to be specified"
	}
	if complaint != "" {
		s.printf("%s\n", complaint)
		return errFailed
	}
	if f.has('f') {
		r.flags |= block.FUA
	}
	if f.has('u') {
		r.flags |= block.MayUnmap
	}
	if err := s.spans(r, f.rest); err != nil {
		return err
	}
	if s.img.Dev.Geometry().ReadOnly {
		s.errorf("Block node is read-only")
		return errFailed
	}
	if !r.zero {
		if err := s.fillBuffer(r, "", false); err != nil {
			return err
		}
	}
	s.start(ctx, r, true, func() { s.report(r, "wrote") })
	return nil
}

// start runs the request beside the shell; done reports its success.
func (s *Shell) start(ctx context.Context, r *request, write bool, done func()) {
	img, over := s.img, make(chan struct{})
	r.start = time.Now()
	s.aio.Add(1)
	go func() {
		defer s.aio.Done()
		defer close(over)
		if err := s.issue(ctx, img, r, write); err != nil {
			s.printf("%s failed: %s\n", r.op, errorString(err))
			return
		}
		done()
	}()
	select {
	case <-over:
	case <-time.After(settle):
	}
}

func (s *Shell) aioFlush(context.Context, *invocation) error {
	s.aio.Wait()
	return nil
}
