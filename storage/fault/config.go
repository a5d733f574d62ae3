package fault

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"byre/block"
)

// IsOption tells whether a flattened option key ("inject-error.0.event") belongs to the driver itself rather than to
// the image below it.
func IsOption(key string) bool {
	head, _, _ := strings.Cut(key, ".")
	switch head {
	case "config", "align", "max-transfer", "opt-write-zero", "max-write-zero", "opt-discard", "max-discard",
		"inject-error", "set-state", "take-child-perms", "unshare-child-perms":
		return true
	}
	return false
}

// ParseOptions makes a Config of flattened options: the keys of IsOption, others are errors. readFile gives the
// contents of the file that the option config names. Rules of the file come before those of the options.
func ParseOptions(opts map[string]string, readFile func(name string) ([]byte, error)) (Config, error) {
	var cfg Config
	groups := map[string]map[string]string{} // "inject-error.0" -> its keys
	for _, key := range slices.Sorted(maps.Keys(opts)) {
		val := opts[key]
		head, rest, dotted := strings.Cut(key, ".")
		switch {
		case key == "config":
			if val == "" {
				continue
			}
			b, err := readFile(val)
			if err != nil {
				return cfg, err
			}
			if err := ParseFile(&cfg, val, b); err != nil {
				return cfg, err
			}
		case dotted && (head == "inject-error" || head == "set-state"):
			index, name, ok := strings.Cut(rest, ".")
			if _, err := strconv.ParseUint(index, 10, 16); err != nil || !ok {
				return cfg, badf("no option %q", key)
			}
			id := head + "." + index
			if groups[id] == nil {
				groups[id] = map[string]string{}
			}
			groups[id][name] = val
		case head == "take-child-perms" || head == "unshare-child-perms":
			// Permissions between nodes do not exist here.
		default:
			if err := cfg.Limits.set(key, val); err != nil {
				return cfg, err
			}
		}
	}
	return cfg, cfg.addGroups(groups)
}

// addGroups adds rules and transitions in the order of their indexes, which must not have gaps.
func (cfg *Config) addGroups(groups map[string]map[string]string) error {
	for _, kind := range []string{"inject-error", "set-state"} {
		for i := 0; ; i++ {
			id := fmt.Sprintf("%s.%d", kind, i)
			if groups[id] == nil {
				break
			}
			if err := cfg.add(kind, groups[id]); err != nil {
				return err
			}
			delete(groups, id)
		}
	}
	for id := range groups {
		return badf("%s: indexes must count from 0 without gaps", id)
	}
	return nil
}

func (l *Limits) set(key, val string) error {
	to := map[string]*int64{"align": &l.Align, "max-transfer": &l.MaxTransfer, "opt-write-zero": &l.OptZero,
		"max-write-zero": &l.MaxZero, "opt-discard": &l.OptDiscard, "max-discard": &l.MaxDiscard}[key]
	if to == nil {
		return badf("no option %q", key)
	}
	n, err := parseSize(val)
	if err != nil {
		return badf("%s=%s is not a size", key, val)
	}
	*to = n
	return nil
}

// parseSize reads a number with an optional suffix b, k, M, G, T (powers of 1024).
func parseSize(s string) (int64, error) {
	shift := 0
	if i := strings.IndexAny(s, "bBkKmMgGtT"); i > 0 && i == len(s)-1 && !strings.HasPrefix(s, "0x") {
		shift = map[byte]int{'b': 0, 'k': 10, 'm': 20, 'g': 30, 't': 40}[s[i]|0x20]
		s = s[:i]
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, strconv.ErrRange
	}
	return n << shift, nil
}

func badf(format string, args ...any) error {
	return block.Errorf(block.KindInvalid, "", "blkdebug", block.NoOffset, format, args...)
}

// ParseFile adds the sections [inject-error] and [set-state] of a configuration file, lines of the form key = "value".
// The name is for errors only.
func ParseFile(cfg *Config, name string, text []byte) error {
	var kind string
	var keys map[string]string
	end := func() error {
		if kind == "" {
			return nil
		}
		return cfg.add(kind, keys)
	}
	sc := bufio.NewScanner(bytes.NewReader(text))
	sc.Buffer(nil, 1<<16)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		section, isSection := sectionName(line)
		key, val, isPair := pair(line)
		var err error
		switch {
		case line == "" || line[0] == '#':
		case isSection:
			if err = end(); err == nil && section != "inject-error" && section != "set-state" {
				err = badf("no section [%s]", section)
			}
			kind, keys = section, map[string]string{}
		case isPair && kind != "":
			keys[key] = val
		case isPair:
			err = badf("a value before the first section")
		default:
			err = badf("neither a section nor key = \"value\"")
		}
		if err != nil {
			return block.Errorf(block.KindInvalid, "parse", name, block.NoOffset, "line %d: %w", n, err)
		}
	}
	err := sc.Err()
	if err == nil {
		err = end()
	}
	if err != nil {
		return block.Errorf(block.KindInvalid, "parse", name, block.NoOffset, "%w", err)
	}
	return nil
}

// sectionName reads [name] or [name "id"].
func sectionName(line string) (string, bool) {
	if len(line) < 3 || line[0] != '[' || line[len(line)-1] != ']' {
		return "", false
	}
	f := strings.Fields(line[1 : len(line)-1])
	if len(f) == 2 && len(f[1]) > 2 && f[1][0] == '"' && strings.HasSuffix(f[1], `"`) {
		f = f[:1]
	}
	if len(f) != 1 {
		return "", false
	}
	return f[0], true
}

// pair reads key = "value".
func pair(line string) (key, val string, ok bool) {
	key, val, ok = strings.Cut(line, "=")
	key, val = strings.TrimSpace(key), strings.TrimSpace(val)
	if !ok || key == "" || len(val) < 2 || val[0] != '"' || val[len(val)-1] != '"' {
		return "", "", false
	}
	return key, val[1 : len(val)-1], true
}

// add adds the rule or transition that keys describe.
func (cfg *Config) add(kind string, keys map[string]string) error {
	p := reader{kind: kind, keys: keys}
	event := p.event()
	if kind == "set-state" {
		t := Transition{Event: event, State: p.number("state"), To: p.number("new_state")}
		cfg.Transitions = append(cfg.Transitions, t)
		return p.done()
	}
	r := Rule{Event: event, State: p.number("state"), Types: p.types(), Errno: syscall.Errno(p.number("errno")),
		Once: p.boolean("once"), Immediately: p.boolean("immediately")}
	if s, ok := p.take("sector"); ok {
		n, err := strconv.ParseInt(s, 0, 64)
		p.check(err == nil && n >= -1 && n < 1<<54, "sector", s)
		r.Sector, r.At = n, n >= 0
	}
	cfg.Rules = append(cfg.Rules, r)
	return p.done()
}

// reader takes the keys of one section; the first thing wrong is the error of done.
type reader struct {
	kind string
	keys map[string]string
	seen []string
	err  error
}

func (p *reader) take(key string) (string, bool) {
	p.seen = append(p.seen, key)
	s, ok := p.keys[key]
	return s, ok
}

func (p *reader) check(ok bool, key, val string) {
	if !ok && p.err == nil {
		p.err = badf("%s: %s cannot be %q", p.kind, key, val)
	}
}

func (p *reader) event() block.Event {
	s, ok := p.take("event")
	if !ok && p.err == nil {
		p.err = badf("%s: the event is missing", p.kind)
	}
	e, known := block.ParseEvent(s)
	p.check(known, "event", s)
	return e
}

func (p *reader) number(key string) int {
	s, ok := p.take(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 0, 31)
	p.check(err == nil, key, s)
	return int(n)
}

func (p *reader) boolean(key string) bool {
	s, ok := p.take(key)
	switch {
	case !ok, s == "off", s == "no", s == "n", s == "false":
		return false
	case s == "on", s == "yes", s == "y", s == "true":
		return true
	}
	p.check(false, key, s)
	return false
}

func (p *reader) types() Types {
	s, ok := p.take("iotype")
	if !ok {
		return 0
	}
	for t := Read; t < Resize; t++ {
		if t.String() == s {
			return Of(t)
		}
	}
	p.check(false, "iotype", s)
	return 0
}

func (p *reader) done() error {
	for k := range p.keys {
		if p.err == nil && !slices.Contains(p.seen, k) {
			p.err = badf("%s has no key %q", p.kind, k)
		}
	}
	return p.err
}
