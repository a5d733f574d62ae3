package ioshell

import "context"

func (s *Shell) open(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "snCro:ki:t:d:U")
	if err != nil {
		return err
	}
	spec := OpenSpec{ReadOnly: f.has('r'), Snapshot: f.has('s'), CopyOnRead: f.has('C'), ForceShare: f.has('U'),
		Options: f.args['o'], Cache: f.args['t'], AIO: f.args['i'], Discard: f.args['d']}
	if f.has('n') {
		spec.Cache = "none"
	}
	if f.has('k') {
		spec.AIO = "native"
	}
	if !s.valid(spec.Cache, "cache", s.cfg.CheckCache) || !s.valid(spec.AIO, "aio", s.cfg.CheckAIO) ||
		!s.valid(spec.Discard, "discard", s.cfg.CheckDiscard) {
		return errFailed
	}
	switch {
	case len(f.rest) == 1:
		spec.Name = f.rest[0]
	case len(f.rest) > 1 || spec.Options == "":
		return errUsage
	}
	if s.img != nil {
		s.errorf("file open already, try 'help close'")
		return errFailed
	}
	return s.openSpec(ctx, spec)
}

func (s *Shell) openSpec(ctx context.Context, spec OpenSpec) error {
	img, err := s.cfg.Open(ctx, spec)
	if err != nil {
		if spec.Name != "" && !spec.ImageOpts {
			s.errorf("can't open device %s: %v", spec.Name, err)
		} else {
			s.errorf("can't open: %v", err)
		}
		return errFailed
	}
	s.img = img
	return nil
}

// Open opens the image that the command line names and tells whether that worked.
func (s *Shell) Open(ctx context.Context, spec OpenSpec) bool { return s.openSpec(ctx, spec) == nil }

// valid judges an option value, if one was given.
func (s *Shell) valid(value, what string, check func(string) error) bool {
	if value == "" || check == nil || check(value) == nil {
		return true
	}
	s.errorf("Invalid %s option: %s", what, value)
	return false
}

func (s *Shell) closeCommand(context.Context, *invocation) error {
	s.aio.Wait()
	if err := s.closeImage(); err != nil {
		s.errorf("%v", err)
		return errFailed
	}
	return nil
}

func (s *Shell) reopen(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "c:o:rw")
	if err != nil {
		return err
	}
	if len(f.rest) != 0 {
		return errUsage
	}
	if !s.valid(f.args['c'], "cache", s.cfg.CheckCache) {
		return errFailed
	}
	if f.has('r') && f.has('w') {
		s.errorf("Only one -r/-w option may be given")
		return errFailed
	}
	if s.img.Reopen == nil {
		s.errorf("this image cannot be reopened")
		return errFailed
	}
	s.aio.Wait()
	spec := ReopenSpec{ReadOnly: f.has('r'), ReadWrite: f.has('w'), Cache: f.args['c'], Options: f.args['o']}
	if err := s.img.Reopen(ctx, spec); err != nil {
		s.errorf("%v", err)
		return errFailed
	}
	return nil
}
