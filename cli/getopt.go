package cli

import (
	"fmt"
	"strings"
)

// argKind says whether an option takes an argument.
type argKind uint8

const (
	noArg argKind = iota
	needArg
	optArg // long: only as --name=value
)

// opt is one option of a verb: a short letter (0 if none), a long name ("" if none), or both. Options are told apart
// in what getopt returns by key.
type opt struct {
	short byte
	long  string
	arg   argKind
	name  string // what the help calls the argument: "FMT"
	help  string // what the help says; "" leaves the option out of it
}

// key is what a parsed option is called: the long name if there is one, else the letter.
func (o opt) key() string {
	if o.long != "" {
		return o.long
	}
	return string(o.short)
}

// parsed is one option as given.
type parsed struct {
	key   string
	value string
}

// getopt parses as GNU getopt_long does: options and operands may be mixed, "--" ends the options, letters may be
// bundled (-pq) and carry their argument (-Oraw), long names may be shortened while they stay unique.
func getopt(args []string, opts []opt) (got []parsed, operands []string, err error) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return got, append(operands, args[i+1:]...), nil
		case strings.HasPrefix(a, "--"):
			p, used, err := getLong(a[2:], args[i+1:], opts)
			if err != nil {
				return nil, nil, err
			}
			got, i = append(got, p), i+used
		case len(a) > 1 && a[0] == '-':
			ps, used, err := getShort(a[1:], args[i+1:], opts)
			if err != nil {
				return nil, nil, err
			}
			got, i = append(got, ps...), i+used
		default:
			operands = append(operands, a)
		}
	}
	return got, operands, nil
}

func getLong(a string, rest []string, opts []opt) (p parsed, used int, err error) {
	name, value, has := strings.Cut(a, "=")
	o, err := findLong(name, opts)
	if err != nil {
		return p, 0, err
	}
	switch {
	case o.arg == noArg && has:
		return p, 0, fmt.Errorf("option '--%s' doesn't allow an argument", o.long)
	case o.arg == needArg && !has:
		if len(rest) == 0 {
			return p, 0, fmt.Errorf("option '--%s' requires an argument", o.long)
		}
		return parsed{o.key(), rest[0]}, 1, nil
	}
	return parsed{o.key(), value}, 0, nil
}

func findLong(name string, opts []opt) (opt, error) {
	var found []opt
	for _, o := range opts {
		if o.long == "" || !strings.HasPrefix(o.long, name) {
			continue
		}
		if o.long == name {
			return o, nil
		}
		found = append(found, o)
	}
	switch len(found) {
	case 0:
		return opt{}, fmt.Errorf("unrecognized option '--%s'", name)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, o := range found {
		names = append(names, "'--"+o.long+"'")
	}
	return opt{}, fmt.Errorf("option '--%s' is ambiguous; possibilities: %s", name, strings.Join(names, " "))
}

func getShort(a string, rest []string, opts []opt) (got []parsed, used int, err error) {
	for i := 0; i < len(a); i++ {
		o, ok := findShort(a[i], opts)
		switch {
		case !ok:
			return nil, 0, fmt.Errorf("invalid option -- '%c'", a[i])
		case o.arg == needArg && i+1 < len(a):
			return append(got, parsed{o.key(), a[i+1:]}), 0, nil
		case o.arg == needArg && len(rest) == 0:
			return nil, 0, fmt.Errorf("option requires an argument -- '%c'", a[i])
		case o.arg == needArg:
			return append(got, parsed{o.key(), rest[0]}), 1, nil
		}
		got = append(got, parsed{o.key(), ""})
	}
	return got, 0, nil
}

func findShort(c byte, opts []opt) (opt, bool) {
	for _, o := range opts {
		if o.short == c {
			return o, true
		}
	}
	return opt{}, false
}
