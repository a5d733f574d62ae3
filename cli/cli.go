// Package cli is the command line: one file a verb, every verb callable in-process with its own streams, so that tests
// need no subprocess. Exit codes and what scripts parse equal the real tools'; error sentences are our own.
//
// What may enter: option parsing, output, exit codes. What may not: work on images (job, image) or formats.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Env is what a program run sees of the world.
type Env struct {
	Args   []string // Args[0] is the name the program was called by
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Context ends when the run should stop (SIGINT, SIGTERM).
	Context context.Context
}

// OSEnv is the Env of the running process. Call stop at the end.
func OSEnv() (env *Env, stop func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	return &Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Context: ctx}, stop
}

// verb is one command. run returns the exit code. A verb whose options are common ones and opts parses them with
// call.parse, which also answers --help from the texts here.
type verb struct {
	name    string
	summary string // half a sentence for the list of commands
	operand string // what follows the options in the synopsis: "FILE", "FILE1 FILE2"
	common  common // common options that it has
	opts    []opt  // options of its own; those with a help text are listed
	min     int    // least number of operands
	max     int    // most; -1 is any number
	note    string // what the help says behind the options, if anything
	run     func(c *call) int
}

// call is one run of one verb.
type call struct {
	*Env
	prog string   // what errors begin with: "qemu-img", "byre", "qemu-io"
	verb *verb    // nil in a one-verb personality
	args []string // what follows the verb
}

// errorf prints "PROG: …\n" on standard error and returns exit code 1.
func (c *call) errorf(format string, args ...any) int {
	fmt.Fprintf(c.Stderr, "%s: %s\n", c.prog, fmt.Sprintf(format, args...))
	return 1
}

// usageErrorf is errorf with the hint that getopt's users know.
func (c *call) usageErrorf(format string, args ...any) int {
	c.errorf(format, args...)
	fmt.Fprintf(c.Stderr, "Try '%s --help' for more information\n", c.prog)
	return 1
}

// Main chooses the personality from the name the program was called by, runs it and returns the exit code.
func Main(env *Env) int {
	if env.Context == nil {
		env.Context = context.Background()
	}
	prog := "byre"
	if len(env.Args) > 0 {
		prog = strings.TrimSuffix(filepath.Base(env.Args[0]), ".exe")
	}
	var args []string
	if len(env.Args) > 1 {
		args = env.Args[1:]
	}
	if v, ok := personalities[prog]; ok {
		return v(&call{Env: env, prog: prog, args: args})
	}
	return runVerbs(&call{Env: env, prog: prog, args: args})
}

// personalities are the names under which the binary is one tool with options of its own rather than a set of verbs.
var personalities = map[string]func(*call) int{}

// runVerbs is `byre VERB …` and `qemu-img VERB …`.
func runVerbs(c *call) int {
	for len(c.args) > 0 {
		switch first := c.args[0]; {
		case first == "-h" || first == "--help":
			return printHelp(c)
		case first == "-V" || first == "--version":
			return printVersion(c)
		case first == "-T" || first == "--trace":
			if len(c.args) < 2 {
				return c.usageErrorf("option '%s' requires an argument", first)
			}
			c.args = c.args[2:]
		case strings.HasPrefix(first, "-T") || strings.HasPrefix(first, "--trace="):
			c.args = c.args[1:]
		case strings.HasPrefix(first, "-"):
			return c.usageErrorf("unrecognized option '%s'", first)
		default:
			return runVerb(c, first)
		}
	}
	return c.usageErrorf("Not enough arguments")
}

func runVerb(c *call, name string) int {
	for i := range verbs {
		if v := &verbs[i]; v.name == name {
			c.verb, c.args = v, c.args[1:]
			return v.run(c)
		}
	}
	return c.usageErrorf("Command not found: %s", name)
}
