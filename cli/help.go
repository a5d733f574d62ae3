package cli

import (
	"fmt"
	"io"
	"strings"

	"byre/image"
)

func printHelp(c *call) int {
	w := c.Stdout
	printVersion(c)
	fmt.Fprintf(w, "usage: %s [-h] [-V] [-T TRACE] COMMAND [OPTIONS] FILE…\n\n", c.prog)
	fmt.Fprint(w, "Creates, converts, checks and changes disk images.\n\n"+
		"  -h, --help         print this help\n"+
		"  -V, --version      print the version\n"+
		"  -T, --trace TRACE  accepted for compatibility; there are no trace points\n\n"+
		"Command syntax:\n")
	for i := range verbs {
		fmt.Fprintf(w, "  %s\n", verbs[i].synopsis())
	}
	fmt.Fprint(w, "\nCommands:\n")
	for i := range verbs {
		fmt.Fprintf(w, "  %-10s %s\n", verbs[i].name, verbs[i].summary)
	}
	fmt.Fprintf(w, "\n'%s COMMAND --help' explains the options of a command.\n\n", c.prog)
	fmt.Fprint(w, "FILE     a path, file:PATH, json:{…}, blkdebug:CONFIG:PATH\n"+
		"SIZE     bytes, or a number with a suffix: k, M, G, T, P or E for powers of 1024\n"+
		"CACHE    none, writeback, writethrough, directsync or unsafe\n\n"+
		"Supported formats: "+strings.Join(image.Drivers(), " ")+"\n")
	return 0
}

// printVerbHelp explains one verb.
func printVerbHelp(c *call, v *verb) int {
	w := c.Stdout
	fmt.Fprintf(w, "usage: %s %s\n\n%s.\n\n", c.prog, v.synopsis(), upperFirst(v.summary))
	printOpts(w, v.list())
	if v.note != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimRight(v.note, "\n"))
	}
	return 0
}

// synopsis is a verb's line in the list of commands.
func (v *verb) synopsis() string {
	var b strings.Builder
	b.WriteString(v.name)
	for _, o := range v.list() {
		if o.help == "" || o.long == "help" {
			continue
		}
		s := "--" + o.long
		sep := "="
		if o.short != 0 {
			s, sep = "-"+string(o.short), " "
		}
		if o.arg != noArg {
			s += sep + o.argName()
		}
		b.WriteString(" [" + s + "]")
	}
	return b.String() + " " + v.operand
}

func (o opt) argName() string {
	if o.name == "" {
		return "VALUE"
	}
	return o.name
}

func printOpts(w io.Writer, opts []opt) {
	for _, o := range opts {
		if o.help == "" {
			continue
		}
		s := "      "
		if o.short != 0 {
			s = "  -" + string(o.short)
			if o.long != "" {
				s += ", "
			}
		}
		if o.long != "" {
			s += "--" + o.long
		}
		switch {
		case o.arg == needArg && o.long != "":
			s += "=" + o.argName()
		case o.arg == needArg:
			s += " " + o.argName()
		case o.arg == optArg:
			s += "[=" + o.argName() + "]"
		}
		fmt.Fprintf(w, "%-30s %s\n", s, o.help)
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
