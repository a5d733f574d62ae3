package ioshell

import (
	"context"
	"strings"
	"time"
)

// command is one entry of the language.
type command struct {
	name    string
	alt     string
	args    string // usage of its arguments
	brief   string
	help    string
	minArgs int
	maxArgs int  // -1 = any number
	anyTime bool // also when no file is open
	run     func(s *Shell, ctx context.Context, inv *invocation) error
}

// invocation is one call of a command.
type invocation struct {
	cmd   *command
	args  []string
	start time.Time
}

func (c *command) oneLine() string {
	return strings.TrimRight(c.name+" "+c.args, " ") + padIfBare(c.args) + " -- " + c.brief
}

// padIfBare: a command that lists an empty argument string prints a second blank, as map and sleep always have.
func padIfBare(args string) string {
	if args == " " {
		return " "
	}
	return ""
}

// commands is the language in alphabetical order. It is filled in init because help reads it.
var commands []command

func init() {
	commands = []command{
		{name: "abort", anyTime: true, brief: "simulate a program crash using abort(3)", run: (*Shell).abort},
		{name: "aio_flush", brief: "completes all outstanding aio requests", run: (*Shell).aioFlush},
		{name: "aio_read", args: "[-Ciqv] [-P pattern] off len [len..]", minArgs: 2, maxArgs: -1,
			brief: "asynchronously reads a number of bytes", help: helpAIORead, run: (*Shell).aioRead},
		{name: "aio_write", args: "[-Cfiquz] [-P pattern] off len [len..]", minArgs: 2, maxArgs: -1,
			brief: "asynchronously writes a number of bytes", help: helpAIOWrite, run: (*Shell).aioWrite},
		{name: "alloc", alt: "a", args: "offset [count]", minArgs: 1, maxArgs: 2,
			brief: "checks if offset is allocated in the file", run: (*Shell).alloc},
		{name: "break", args: "event tag", minArgs: 2, maxArgs: 2,
			brief: "sets a breakpoint on event and tags the stopped request as tag", run: (*Shell).breakAt},
		{name: "close", alt: "c", brief: "close the current open file", run: (*Shell).closeCommand},
		{name: "discard", alt: "d", args: "[-Cq] off len", minArgs: 2, maxArgs: -1,
			brief: "discards a number of bytes at a specified offset", help: helpDiscard, run: (*Shell).discard},
		{name: "flush", alt: "f", brief: "flush all in-core file state to disk", run: (*Shell).flush},
		{name: "help", alt: "?", args: "[command]", maxArgs: 1, anyTime: true,
			brief: "help for one or all commands", run: (*Shell).help},
		{name: "info", alt: "i", brief: "prints information about the current file", run: (*Shell).info},
		{name: "length", alt: "l", brief: "gets the length of the current file", run: (*Shell).lengthCommand},
		{name: "map", args: " ", brief: "prints the allocated areas of a file", run: (*Shell).mapCommand},
		{name: "open", alt: "o", args: "[-rsCnkU] [-t cache] [-d discard] [-o options] [path]", minArgs: 1, maxArgs: -1,
			anyTime: true, brief: "open the file specified by path", help: helpOpen, run: (*Shell).open},
		{name: "quit", alt: "q", maxArgs: -1, anyTime: true, brief: "exit the program", run: (*Shell).quitCommand},
		{name: "read", alt: "r", args: "[-abCqv] [-P pattern [-s off] [-l len]] off len", minArgs: 2, maxArgs: -1,
			brief: "reads a number of bytes at a specified offset", help: helpRead, run: (*Shell).read},
		{name: "readv", args: "[-Cqv] [-P pattern] off len [len..]", minArgs: 2, maxArgs: -1,
			brief: "reads a number of bytes at a specified offset", help: helpReadv, run: (*Shell).readv},
		{name: "remove_break", args: "tag", minArgs: 1, maxArgs: 1,
			brief: "remove a breakpoint by tag", run: (*Shell).removeBreak},
		{name: "reopen", args: "[(-r|-w)] [-c cache] [-o options]", maxArgs: -1,
			brief: "reopens an image with new options", help: helpReopen, run: (*Shell).reopen},
		{name: "resume", args: "tag", minArgs: 1, maxArgs: 1,
			brief: "resumes the request tagged as tag", run: (*Shell).resume},
		{name: "sigraise", args: "signal", minArgs: 1, maxArgs: 1, anyTime: true,
			brief: "raises a signal", help: helpSigraise, run: (*Shell).sigraise},
		{name: "sleep", minArgs: 1, maxArgs: 1, anyTime: true,
			brief: "waits for the given value in milliseconds", run: (*Shell).sleep},
		{name: "truncate", alt: "t", args: "[-m prealloc_mode] off", minArgs: 1, maxArgs: 3,
			brief: "truncates the current file at the given offset", run: (*Shell).truncate},
		{name: "wait_break", args: "tag", minArgs: 1, maxArgs: 1,
			brief: "waits for the suspension of a request", run: (*Shell).waitBreak},
		{name: "write", alt: "w", args: "[-bcCfnquz] [-P pattern | -s source_file] off len", minArgs: 2, maxArgs: -1,
			brief: "writes a number of bytes at a specified offset", help: helpWrite, run: (*Shell).write},
		{name: "writev", args: "[-Cfq] [-P pattern] off len [len..]", minArgs: 2, maxArgs: -1,
			brief: "writes a number of bytes at a specified offset", help: helpWritev, run: (*Shell).writev},
	}
}

func findCommand(name string) *command {
	for i := range commands {
		if c := &commands[i]; name == c.name || c.alt != "" && name == c.alt {
			return c
		}
	}
	return nil
}

// flags is what getopts found: the letters given, and their arguments.
type flags struct {
	set  map[byte]bool
	args map[byte]string
	rest []string
}

func (f flags) has(c byte) bool { return f.set[c] }

// getopts parses letters in the C library's notation ("bCP:qv"); an operand does not end the options.
func (s *Shell) getopts(inv *invocation, spec string) (flags, error) {
	f := flags{set: map[byte]bool{}, args: map[byte]string{}}
	for i := 0; i < len(inv.args); i++ {
		a := inv.args[i]
		if a == "--" {
			f.rest = append(f.rest, inv.args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			f.rest = append(f.rest, a)
			continue
		}
		for j := 1; j < len(a); j++ {
			at := strings.IndexByte(spec, a[j])
			if at < 0 || a[j] == ':' {
				return f, s.optionError("%s: invalid option -- '%c'\n", inv.cmd.name, a[j])
			}
			f.set[a[j]] = true
			if at+1 == len(spec) || spec[at+1] != ':' {
				continue
			}
			switch {
			case j+1 < len(a):
				f.args[a[j]] = a[j+1:]
			case i+1 < len(inv.args):
				i++
				f.args[a[j]] = inv.args[i]
			default:
				return f, s.optionError("%s: option requires an argument -- '%c'\n", inv.cmd.name, a[j])
			}
			break
		}
	}
	return f, nil
}

func (s *Shell) optionError(format, name string, letter byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	writeTo(s.cfg.Err, format, name, letter)
	return errUsage
}
