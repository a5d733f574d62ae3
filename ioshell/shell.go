package ioshell

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"byre/block"
)

// OpenSpec is what the command line or the open command asks for.
type OpenSpec struct {
	Name       string // "" if the options name everything
	Options    string // "driver=raw,offset=512", or "" ; with ImageOpts the name itself is such a list
	ImageOpts  bool
	Format     string
	Cache      string // "" = writeback for reads and writethrough semantics chosen by the opener
	AIO        string
	Discard    string
	ReadOnly   bool
	Snapshot   bool
	CopyOnRead bool
	ForceShare bool
}

// Image is what an opener returns.
type Image struct {
	Dev *block.Device
	// Writethrough: every write is followed by a flush.
	Writethrough bool
	Close        func() error
	// Info prints the format-specific block of the info command; nil if there is none.
	Info func(w io.Writer) error
	// FormatName and VMStateOffset are shown by info.
	FormatName    string
	VMStateOffset int64
	// Breakpoints of a fault-injecting layer of the stack; nil if there is none.
	Breakpoints Breakpoints
	// Reopen changes how the image is open; nil if it cannot.
	Reopen func(ctx context.Context, spec ReopenSpec) error
}

// ReopenSpec is what the reopen command asks for.
type ReopenSpec struct {
	ReadOnly  bool
	ReadWrite bool
	Cache     string
	Options   string
}

// Breakpoints suspends requests at named events by tag.
type Breakpoints interface {
	Break(event, tag string) error
	RemoveBreak(tag string) error
	Resume(tag string) error
	Suspended(tag string) bool
}

// VMState is implemented by drivers that store machine state behind the disk (-b).
type VMState interface {
	ReadVMState(ctx context.Context, p []byte, pos int64) error
	WriteVMState(ctx context.Context, p []byte, pos int64) error
}

// Config of a shell.
type Config struct {
	Prog  string // what errors begin with
	In    io.Reader
	Out   io.Writer
	Err   io.Writer
	Open  func(ctx context.Context, spec OpenSpec) (*Image, error)
	Alloc func(n int) []byte // buffers for requests; nil = make
	// CheckCache, CheckAIO and CheckDiscard judge option values; they return what was wrong.
	CheckCache, CheckAIO, CheckDiscard func(string) error
	// Defaults are the command line's own open options, which the open command starts from.
	Defaults OpenSpec
}

// Shell runs commands. Commands run one at a time; the requests that aio commands start run beside them.
type Shell struct {
	cfg  Config
	img  *Image
	aio  sync.WaitGroup
	quit bool

	mu struct {
		sync.Mutex // serialises output, so that lines of concurrent requests do not mix
	}
}

// errUsage makes the dispatcher print the command's usage line.
var errUsage = errors.New("usage")

// errFailed says that the command failed and has said why.
var errFailed = errors.New("failed")

// New makes a shell.
func New(cfg Config) *Shell {
	if cfg.Alloc == nil {
		cfg.Alloc = func(n int) []byte { return make([]byte, n) }
	}
	return &Shell{cfg: cfg}
}

// SetImage hands the shell an image that is already open.
func (s *Shell) SetImage(img *Image) { s.img = img }

// Run runs the commands in order, or those of the input if there are none, then waits for requests in flight and
// closes the image. It tells whether all commands succeeded.
func (s *Shell) Run(ctx context.Context, commands []string) bool {
	ok := true
	if len(commands) > 0 {
		for _, c := range commands {
			ok = s.Command(ctx, c) && ok
			if s.quit {
				break
			}
		}
	} else {
		ok = s.interact(ctx)
	}
	s.aio.Wait()
	if s.img != nil {
		if err := s.closeImage(); err != nil {
			s.errorf("%v", err)
			ok = false
		}
	}
	return ok
}

func (s *Shell) interact(ctx context.Context) bool {
	ok := true
	in := bufio.NewReader(s.cfg.In)
	for !s.quit {
		s.printf("%s> ", s.cfg.Prog)
		line, err := in.ReadString('\n')
		if line != "" {
			ok = s.Command(ctx, strings.TrimRight(line, "\r\n")) && ok
		}
		if err != nil {
			break
		}
	}
	return ok
}

// Command runs one line and tells whether it succeeded.
func (s *Shell) Command(ctx context.Context, line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 {
		return true
	}
	cmd := findCommand(words[0])
	args := words[1:]
	switch {
	case cmd == nil:
		fmt.Fprintf(s.cfg.Err, "command \"%s\" not found\n", words[0])
		return false
	case !cmd.anyTime && s.img == nil:
		fmt.Fprintf(s.cfg.Err, "no file open, try 'help open'\n")
		return false
	case len(args) < cmd.minArgs || cmd.maxArgs >= 0 && len(args) > cmd.maxArgs:
		s.badCount(cmd, len(args))
		return false
	}
	err := cmd.run(s, ctx, &invocation{cmd: cmd, args: args, start: time.Now()})
	if errors.Is(err, errUsage) {
		s.printf("%s\n", cmd.oneLine())
	}
	return err == nil
}

func (s *Shell) badCount(cmd *command, n int) {
	var want string
	switch {
	case cmd.maxArgs < 0:
		want = fmt.Sprintf("at least %d", cmd.minArgs)
	case cmd.minArgs == cmd.maxArgs:
		want = fmt.Sprint(cmd.minArgs)
	default:
		want = fmt.Sprintf("between %d and %d", cmd.minArgs, cmd.maxArgs)
	}
	fmt.Fprintf(s.cfg.Err, "bad argument count %d to %s, expected %s arguments\n", n, cmd.name, want)
}

// printf prints on standard output; lines of requests that complete at the same time do not mix.
func (s *Shell) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.cfg.Out, format, args...)
}

// Printf is printf for layers that report through the shell (a breakpoint that suspends a request).
func (s *Shell) Printf(format string, args ...any) { s.printf(format, args...) }

// errorf prints "PROG: …" on standard error.
func (s *Shell) errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.cfg.Err, "%s: %s\n", s.cfg.Prog, fmt.Sprintf(format, args...))
}

func (s *Shell) closeImage() error {
	img := s.img
	s.img = nil
	return img.Close()
}
