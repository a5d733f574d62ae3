package ioshell

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"byre/block"
)

func (s *Shell) flush(ctx context.Context, _ *invocation) error {
	if err := s.img.Dev.Flush(ctx); err != nil {
		s.printf("flush failed: %s\n", errorString(err))
		return errFailed
	}
	return nil
}

func (s *Shell) lengthCommand(context.Context, *invocation) error {
	s.printf("%s\n", sizeString(float64(s.img.Dev.Size())))
	return nil
}

func (s *Shell) truncate(ctx context.Context, inv *invocation) error {
	f, err := s.getopts(inv, "m:")
	if err != nil {
		return err
	}
	var o block.ResizeOptions
	if f.has('m') {
		mode, ok := parsePrealloc(f.args['m'])
		if !ok {
			s.errorf("Invalid preallocation mode '%s'", f.args['m'])
			return errFailed
		}
		o.Prealloc = mode
	}
	if len(f.rest) != 1 {
		return errUsage
	}
	size, err := s.number(f.rest[0])
	if err != nil {
		return err
	}
	if err := s.img.Dev.Resize(ctx, size, o); err != nil {
		s.errorf("%v", err)
		return errFailed
	}
	return nil
}

func parsePrealloc(name string) (block.PreallocMode, bool) {
	for m := block.PreallocOff; m <= block.PreallocFull; m++ {
		if m.String() == name {
			return m, true
		}
	}
	return 0, false
}

// run is a stretch of bytes that are all allocated, or all not.
func (s *Shell) allocated(ctx context.Context, off, n int64) (bool, int64, error) {
	e, err := s.img.Dev.Extent(ctx, off, n, block.TopOnly)
	if err != nil {
		return false, 0, err
	}
	is, end := e.Flags&block.Allocated != 0, e.End()
	for end < off+n {
		e, err := s.img.Dev.Extent(ctx, end, off+n-end, block.TopOnly)
		if err != nil {
			return false, 0, err
		}
		if (e.Flags&block.Allocated != 0) != is {
			break
		}
		end = e.End()
	}
	return is, end - off, nil
}

func (s *Shell) alloc(ctx context.Context, inv *invocation) error {
	off, err := s.number(inv.args[0])
	if err != nil {
		return err
	}
	count := int64(512)
	if len(inv.args) == 2 {
		if count, err = s.number(inv.args[1]); err != nil {
			return err
		}
	}
	count = max(0, min(count, s.img.Dev.Size()-off))
	sum := int64(0)
	for at := off; at < off+count; {
		is, n, err := s.allocated(ctx, at, off+count-at)
		if err != nil {
			s.printf("is_allocated failed: %s\n", errorString(err))
			return errFailed
		}
		if is {
			sum += n
		}
		at += n
	}
	s.printf("%d/%d bytes allocated at offset %s\n", sum, count, sizeString(float64(off)))
	return nil
}

func (s *Shell) mapCommand(ctx context.Context, _ *invocation) error {
	for off, size := int64(0), s.img.Dev.Size(); off < size; {
		is, n, err := s.allocated(ctx, off, size-off)
		if err != nil {
			s.printf("Failed to get allocation status: %s\n", errorString(err))
			return errFailed
		}
		word := "not allocated"
		if is {
			word = "    allocated"
		}
		s.printf("%s (%#x) bytes %s at offset %s (0x%x)\n", sizeString(float64(n)), n, word, sizeString(float64(off)), off)
		off += n
	}
	return nil
}

func (s *Shell) info(context.Context, *invocation) error {
	img := s.img
	s.printf("format name: %s\ncluster size: %s\nvm state offset: %s\n", img.FormatName,
		sizeString(float64(img.Dev.Geometry().ClusterSize)), sizeString(float64(img.VMStateOffset)))
	if img.Info == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := img.Info(s.cfg.Out); err != nil {
		return errFailed
	}
	return nil
}

func (s *Shell) sleep(_ context.Context, inv *invocation) error {
	ms, err := strconv.ParseInt(inv.args[0], 0, 64)
	if err != nil {
		s.printf("%s is not a valid number\n", inv.args[0])
		return errFailed
	}
	if ms > 0 {
		time.Sleep(time.Duration(min(ms, int64(time.Hour/time.Millisecond)*24*365)) * time.Millisecond)
	}
	return nil
}

// abort ends the process as a crash does: nothing is flushed or closed. The signal is the one that abort(3) raises.
func (s *Shell) abort(context.Context, *invocation) error {
	raise(syscall.SIGABRT)
	os.Exit(134)
	return nil
}

func (s *Shell) sigraise(_ context.Context, inv *invocation) error {
	n, err := s.number(inv.args[0])
	if err != nil {
		return err
	}
	if n > 64 {
		s.printf("signal argument '%s' is too large to be a valid signal\n", inv.args[0])
		return errFailed
	}
	raise(syscall.Signal(n))
	return nil
}

func (s *Shell) quitCommand(context.Context, *invocation) error {
	s.quit = true
	return nil
}
