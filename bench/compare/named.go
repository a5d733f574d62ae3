package compare

import (
	"slices"
	"strings"
	"unicode"
)

// nameAt reads a switch name at i and returns it with the place behind it; no name gives "".
func (p *parser) nameAt(i int) (string, int) {
	start := i
	for i < len(p.src) {
		r := p.src[i]
		letter := r == '_' || r < unicode.MaxASCII && unicode.IsLetter(r)
		if !letter && (i == start || !(r >= '0' && r <= '9' || r == '-' || r == '.')) {
			break
		}
		i++
	}
	return string(p.src[start:i]), i
}

// isNamed reports whether a named switch, its use or a directive starts at i.
func (p *parser) isNamed(i int) bool {
	if i+2 >= len(p.src) || p.src[i] != p.src[i+1] || p.src[i] != '{' && p.src[i] != '[' {
		return false
	}
	if p.src[i] == '{' && p.src[i+2] == '!' {
		return true
	}
	name, end := p.nameAt(i + 2)
	if name == "" || end >= len(p.src) {
		return false
	}
	cl := closing(p.src[i])
	return p.src[end] == ':' || p.src[end] == cl && end+1 < len(p.src) && p.src[end+1] == cl
}

// double reads {{…}} and [[…]]. It reports false if this is no matter of the template's and the first bracket is to
// be read by itself.
func (p *parser) double() (bool, error) {
	start, open := p.pos, p.src[p.pos]
	if !p.isNamed(start) {
		if open == '[' && start+2 < len(p.src) && unicode.IsSpace(p.src[start+2]) {
			p.take(2)
			return true, p.sequence(surround{close: "]]", open: start, barsOK: true})
		}
		return false, p.refuseDouble(start)
	}
	if p.src[start+2] == '!' {
		return true, p.directive(start)
	}
	axis := Column
	if open == '[' {
		axis = Row
	}
	name, after := p.nameAt(start + 2)
	if p.src[after] != ':' {
		p.refer(name, axis, start)
		p.pos = after + 2
		return true, nil
	}
	return true, p.define(name, axis, start, after+1)
}

// refuseDouble explains the likely slip of {{a|b}}; other doubled brackets are left to the shell.
func (p *parser) refuseDouble(start int) error {
	end, _, inner := p.scan(start)
	if end >= 0 && inner == start+1 {
		return p.errorAt(start, "a switch within brackets: switches do not nest (a named one is {{name: a|b}} or [[name: a|b]])")
	}
	return nil
}

// define reads {{name: a|b}}; body is the place behind the colon.
func (p *parser) define(name string, axis Axis, start, body int) error {
	cl := closing(p.src[start])
	end, bars, err := p.scanDouble(start, body, cl)
	if err != nil {
		return err
	}
	alts, err := p.alternatives(body, end, bars, true)
	if err != nil {
		return err
	}
	if p.given[name] == nil {
		if p.named[name] != nil {
			return p.errorAt(start, "switch %q is defined twice", name)
		}
		sw := &Switch{Name: name, Axis: axis, Alts: alts}
		p.named[name] = sw
		p.t.switches = append(p.t.switches, sw)
	} else if slices.Contains(p.t.switches, p.given[name]) {
		return p.errorAt(start, "switch %q is defined twice", name)
	} else if p.t.switches = append(p.t.switches, p.given[name]); p.given[name].Axis != axis {
		return p.errorAt(start, "switch %q is a %s here, but was given as a %s", name, axis, p.given[name].Axis)
	}
	p.refer(name, axis, start)
	p.pos = end + 2
	return nil
}

// scanDouble looks from body for the doubled closing bracket, and for the bars before it.
func (p *parser) scanDouble(start, body int, cl rune) (end int, bars []int, err error) {
	for i := body; i < len(p.src); i++ {
		switch r := p.src[i]; r {
		case '\\':
			if i+1 < len(p.src) && isSpecial(p.src[i+1]) {
				i++
			}
		case '|':
			bars = append(bars, i)
		case '{', '[':
			close, inside, inner := p.scan(i)
			if len(inside) > 0 || inner >= 0 || p.isNamed(i) {
				return 0, nil, p.errorAt(i, "a switch within a switch")
			}
			if close < 0 {
				return 0, nil, p.errorAt(i, "%q is never closed", r)
			}
			i = close
		case '}', ']':
			if r == cl && i+1 < len(p.src) && p.src[i+1] == cl {
				return i, bars, nil
			}
			return 0, nil, p.errorAt(i, "%q closes nothing (a plain one is written \\%c)", r, r)
		}
	}
	return 0, nil, p.errorAt(start, "%q is never closed", string([]rune{p.src[start], p.src[start]}))
}

func (p *parser) refer(name string, axis Axis, pos int) {
	p.flush()
	p.refs = append(p.refs, reference{name: name, axis: axis, part: len(p.t.parts), pos: pos})
	p.t.parts = append(p.t.parts, part{})
}

// directive reads {{!exclude …}}. Alone on its line, it takes the line with it.
func (p *parser) directive(start int) error {
	rest := string(p.src[start+3:])
	body, _, ok := strings.Cut(rest, "}}")
	if !ok {
		return p.errorAt(start, "\"{{\" is never closed")
	}
	spec, ok := strings.CutPrefix(body, "exclude")
	if !ok || spec == "" || !unicode.IsSpace([]rune(spec)[0]) {
		return p.errorAt(start+2, "unknown directive %q (there is: {{!exclude name=value, …}})", "!"+strings.TrimSpace(body))
	}
	p.excludes = append(p.excludes, reference{name: strings.TrimSpace(spec), pos: start})
	p.pos = start + 3 + len([]rune(body)) + 2
	lineStart := start == 0 || p.src[start-1] == '\n'
	if lineStart && p.pos < len(p.src) && p.src[p.pos] == '\n' {
		p.pos++
	}
	return nil
}

// resolve binds the names, once all definitions are known.
func (p *parser) resolve() error {
	for _, ref := range p.refs {
		sw := p.named[ref.name]
		if sw == nil {
			return p.errorAt(ref.pos, "switch %q is used but nowhere defined", ref.name)
		}
		if sw.Axis != ref.axis {
			return p.errorAt(ref.pos, "switch %q is a %s switch, but used as a %s switch", ref.name, sw.Axis, ref.axis)
		}
		p.t.parts[ref.part].sw = sw
	}
	for _, ref := range p.excludes {
		if err := p.t.Exclude(ref.name); err != nil {
			return p.errorAt(ref.pos, "%v", err)
		}
	}
	return nil
}
