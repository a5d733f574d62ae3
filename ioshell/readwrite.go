package ioshell

import (
	"context"

	"byre/block"
)

func (s *Shell) read(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "abCl:pP:qs:v")
	if err != nil {
		return err
	}
	r := &request{op: "read", vm: f.has('b'), check: f.has('P'), dump: f.has('v'), quiet: f.has('q'), csv: f.has('C'), length: -1}
	if r.check {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if f.has('l') {
		if r.length, err = s.length(f.args['l']); err != nil {
			return err
		}
	}
	if f.has('s') {
		if r.from, err = s.number(f.args['s']); err != nil {
			return err
		}
	}
	if len(f.rest) != 2 || !r.check && (f.has('s') || f.has('l')) {
		return errUsage
	}
	if err := s.span(r, f.rest); err != nil {
		return err
	}
	if r.from > r.total || r.length > r.total-r.from {
		s.printf("pattern verification range exceeds end of read data\n")
		return errFailed
	}
	if err := s.wholeSectors(r, r.vm); err != nil {
		return err
	}
	return s.runRead(ctx, inv, r)
}

// wholeSectors refuses what compressed clusters and machine state cannot do.
func (s *Shell) wholeSectors(r *request, wanted bool) error {
	if !wanted {
		return nil
	}
	for _, v := range []struct {
		n    int64
		what string
	}{{r.off, "offset"}, {r.total, "count"}} {
		if v.n%512 != 0 {
			s.printf("%d is not a sector-aligned value for '%s'\n", v.n, v.what)
			return errFailed
		}
	}
	return nil
}

func (s *Shell) readv(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "CP:qv")
	if err != nil {
		return err
	}
	r := &request{op: "readv", check: f.has('P'), dump: f.has('v'), quiet: f.has('q'), csv: f.has('C'), length: -1}
	if r.check {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if len(f.rest) < 2 {
		return errUsage
	}
	if err := s.spans(r, f.rest); err != nil {
		return err
	}
	return s.runRead(ctx, inv, r)
}

// runRead reads, compares and reports: a wrong pattern is reported beside the result lines.
func (s *Shell) runRead(ctx context.Context, inv *invocation, r *request) error {
	r.buf, r.start = s.cfg.Alloc(int(r.total)), inv.start
	if err := s.issue(ctx, s.img, r, false); err != nil {
		s.printf("%s failed: %s\n", r.op, errorString(err))
		return errFailed
	}
	return s.finishRead(r)
}

func (s *Shell) finishRead(r *request) (err error) {
	if r.check {
		err = s.verify(r)
	}
	s.report(r, "read")
	return err
}

func (s *Shell) write(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "bcCfnpP:qs:uz")
	if err != nil {
		return err
	}
	r := &request{op: "write", vm: f.has('b'), zero: f.has('z'), quiet: f.has('q'), csv: f.has('C'), fill: 0xcd, start: inv.start}
	if f.has('P') {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if len(f.rest) != 2 {
		return errUsage
	}
	if err := s.writeFlags(r, f); err != nil {
		return err
	}
	if err := s.span(r, f.rest); err != nil {
		return err
	}
	if err := s.wholeSectors(r, r.vm || f.has('c')); err != nil {
		return err
	}
	if !r.zero {
		if err := s.fillBuffer(r, f.args['s'], f.has('s')); err != nil {
			return err
		}
	}
	return s.runWrite(ctx, r)
}

// writeFlags translates the letters of the writing commands and refuses combinations that contradict themselves.
func (s *Shell) writeFlags(r *request, f flags) error {
	sources := 0
	for _, c := range []byte("zPs") {
		if f.has(c) {
			sources++
		}
	}
	complaint := ""
	switch {
	case f.has('b') && f.has('z'):
		complaint = "-b and -z cannot be specified at the same time"
	case f.has('f') && (f.has('b') || f.has('c')):
		complaint = "-f and -b or -c cannot be specified at the same time"
	case f.has('n') && !f.has('z'):
		complaint = "-n requires -z to be specified"
	case f.has('u') && !f.has('z'):
		complaint = "-u requires -z to be specified"
	case sources > 1:
		complaint = "Only one of -z, -P, and -s can be specified at the same time"
	}
	if complaint != "" {
		s.printf("%s\n", complaint)
		return errFailed
	}
	for letter, flag := range map[byte]block.Flags{'f': block.FUA, 'u': block.MayUnmap, 'n': block.NoFallback, 'c': block.Compressed} {
		if f.has(letter) {
			r.flags |= flag
		}
	}
	return nil
}

func (s *Shell) writev(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "CfqP:")
	if err != nil {
		return err
	}
	r := &request{op: "writev", quiet: f.has('q'), csv: f.has('C'), fill: 0xcd, start: inv.start}
	if f.has('P') {
		if r.fill, err = s.pattern(f.args['P']); err != nil {
			return err
		}
	}
	if len(f.rest) < 2 {
		return errUsage
	}
	if f.has('f') {
		r.flags |= block.FUA
	}
	if err := s.spans(r, f.rest); err != nil {
		return err
	}
	if err := s.fillBuffer(r, "", false); err != nil {
		return err
	}
	return s.runWrite(ctx, r)
}

func (s *Shell) runWrite(ctx context.Context, r *request) error {
	if s.img.Dev.Geometry().ReadOnly {
		s.errorf("Block node is read-only")
		return errFailed
	}
	if err := s.issue(ctx, s.img, r, true); err != nil {
		s.printf("%s failed: %s\n", r.op, errorString(err))
		return errFailed
	}
	s.report(r, "wrote")
	return nil
}

func (s *Shell) discard(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "Cq")
	if err != nil {
		return err
	}
	if len(f.rest) != 2 {
		return errUsage
	}
	r := &request{op: "discard", quiet: f.has('q'), csv: f.has('C'), start: inv.start}
	if err := s.span(r, f.rest); err != nil {
		return err
	}
	if s.img.Dev.Geometry().ReadOnly {
		s.errorf("Block node is read-only")
		return errFailed
	}
	if r.total > 0 {
		if err := s.img.Dev.Discard(ctx, r.off, r.total); err != nil {
			s.printf("discard failed: %s\n", errorString(err))
			return errFailed
		}
	}
	s.report(r, "discard")
	return nil
}
