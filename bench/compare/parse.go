package compare

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// SyntaxError is a fault of a template, with the place where it was found (both count from 1).
type SyntaxError struct {
	Line, Column int
	Msg          string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("template:%d:%d: %s", e.Line, e.Column, e.Msg)
}

// Parse reads a template. Given switches are defined beforehand, as if the template named them: their values come
// from the command line. One that the template defines itself is replaced by the given one. One that it does not use by
// {{name}} must be used as the shell variable $NAME, in capitals, which is then set at the front of every script.
func Parse(source string, given ...*Switch) (*Template, error) {
	p := &parser{src: []rune(source), t: &Template{Source: source}, named: map[string]*Switch{}, given: map[string]*Switch{}}
	for _, sw := range given {
		if len(sw.Alts) == 0 {
			return nil, fmt.Errorf("template: switch %q has no alternatives", sw.Name)
		}
		p.given[sw.Name] = sw
		p.named[sw.Name] = sw
	}
	if strings.TrimSpace(source) == "" {
		return nil, &SyntaxError{1, 1, "the template is empty"}
	}
	if err := p.sequence(surround{}); err != nil {
		return nil, err
	}
	var front []*Switch // those that the template does not define come first
	for _, sw := range given {
		if !slices.Contains(p.t.switches, sw) {
			front = append(front, sw)
		}
	}
	p.t.switches = append(front, p.t.switches...)
	if err := p.resolve(); err != nil {
		return nil, err
	}
	if err := p.variables(given); err != nil {
		return nil, err
	}
	return p.t, p.t.check()
}

// variables sets the shell variables that stand for given switches.
func (p *parser) variables(given []*Switch) error {
	var front []part
	for _, sw := range given {
		if p.t.Uses(sw.Name) {
			continue
		}
		name := strings.ToUpper(sw.Name)
		if !strings.Contains(p.t.Source, "$"+name) && !strings.Contains(p.t.Source, "${"+name) {
			open, close := "{{", "}}"
			if sw.Axis == Row {
				open, close = "[[", "]]"
			}
			return fmt.Errorf("template: there are values for %q, but neither %s%s%s nor $%s is used", sw.Name, open, sw.Name, close, name)
		}
		quoted := *sw
		quoted.Alts = nil
		for _, a := range sw.Alts {
			quoted.Alts = append(quoted.Alts, Alternative{Label: a.Label, Text: "'" + strings.ReplaceAll(a.Text, "'", `'\''`) + "'"})
		}
		for i, s := range p.t.switches {
			if s == sw {
				p.t.switches[i] = &quoted
			}
		}
		front = append(front, part{text: name + "="}, part{sw: &quoted}, part{text: "\n"})
	}
	p.t.parts = append(front, p.t.parts...)
	return nil
}

// parser walks the runes of a template once. Named switches are resolved at the end, since a name may be used
// before its definition.
type parser struct {
	src      []rune
	pos      int
	t        *Template
	text     strings.Builder
	named    map[string]*Switch
	given    map[string]*Switch
	refs     []reference
	excludes []reference
	unnamed  [2]int
}

// reference is a use of a name: the index of its part, and where it stands.
type reference struct {
	name string
	axis Axis
	part int
	pos  int
}

// surround says what surrounds a sequence: the bracket that ends it (0 at the top), and whether a bar is text.
type surround struct {
	close  string
	open   int
	barsOK bool
}

func (p *parser) errorAt(pos int, format string, args ...any) error {
	line, col := 1, 1
	for _, r := range p.src[:min(pos, len(p.src))] {
		if r == '\n' {
			line, col = line+1, 1
		} else {
			col++
		}
	}
	return &SyntaxError{line, col, fmt.Sprintf(format, args...)}
}

func (p *parser) at(s string) bool {
	rs := []rune(s)
	if p.pos+len(rs) > len(p.src) {
		return false
	}
	for i, r := range rs {
		if p.src[p.pos+i] != r {
			return false
		}
	}
	return true
}

func (p *parser) take(n int) {
	for range n {
		p.text.WriteRune(p.src[p.pos])
		p.pos++
	}
}

func (p *parser) flush() {
	if p.text.Len() > 0 {
		p.t.parts = append(p.t.parts, part{text: p.text.String()})
		p.text.Reset()
	}
}

func isSpecial(r rune) bool { return strings.ContainsRune("{}[]|", r) }

// sequence reads text and switches up to the closing bracket of its context, which it takes too.
func (p *parser) sequence(c surround) error {
	arith := 0 // open parentheses since $((
	for p.pos < len(p.src) {
		if c.close != "" && p.at(c.close) {
			p.take(len(c.close))
			return nil
		}
		switch r := p.src[p.pos]; {
		case r == '\\' && p.pos+1 < len(p.src) && isSpecial(p.src[p.pos+1]):
			p.pos++
			p.take(1)
		case arith == 0 && p.at("$(("):
			arith = 2
			p.take(3)
		case arith > 0 && (r == '(' || r == ')'):
			if r == '(' {
				arith++
			} else {
				arith--
			}
			p.take(1)
		case r == '|':
			if err := p.bar(c.barsOK || arith > 0); err != nil {
				return err
			}
		case r == '{' || r == '[':
			if err := p.bracket(); err != nil {
				return err
			}
		case r == '}' || r == ']':
			return p.errorAt(p.pos, "%q closes nothing (a plain one is written \\%c)", r, r)
		default:
			p.take(1)
		}
	}
	if c.close != "" {
		return p.errorAt(c.open, "%q is never closed", p.src[c.open])
	}
	p.flush()
	return nil
}

func (p *parser) bar(ok bool) error {
	if ok {
		p.take(1)
		return nil
	}
	if p.at("||") {
		p.take(2)
		return nil
	}
	return p.errorAt(p.pos, "'|' outside of a switch (a pipe is written \\|)")
}

// bracket reads what an opening bracket begins: a named switch, a switch, or something of the shell's.
func (p *parser) bracket() error {
	start, open := p.pos, p.src[p.pos]
	if p.at("{{") || p.at("[[") {
		done, err := p.double()
		if done || err != nil {
			return err
		}
	}
	end, bars, inner := p.scan(start)
	if end < 0 {
		return p.errorAt(start, "%q is never closed", open)
	}
	if len(bars) > 0 {
		return p.alternation(start, end, bars)
	}
	shell := start+1 < len(p.src) && unicode.IsSpace(p.src[start+1]) || open == '{' && start > 0 && p.src[start-1] == '$'
	if inner >= 0 && !shell {
		return p.errorAt(inner, "a switch within brackets: switches do not nest (a plain bracket is written \\%c)", open)
	}
	p.take(1)
	return p.sequence(surround{close: string(closing(open)), open: start})
}

func closing(open rune) rune {
	if open == '[' {
		return ']'
	}
	return '}'
}

// scan looks from the opening bracket at start for its partner: its place (-1 if there is none), the bars directly
// between the two, and the place of the first switch further inside (-1 if there is none).
func (p *parser) scan(start int) (end int, bars []int, inner int) {
	inner = -1
	stack := []int{start}
	hasBar := map[int]bool{}
	arith := 0
	for i := start + 1; i < len(p.src); i++ {
		switch r := p.src[i]; r {
		case '\\':
			if i+1 < len(p.src) && isSpecial(p.src[i+1]) {
				i++
			}
		case '(':
			if arith > 0 {
				arith++
			} else if i >= 2 && p.src[i-1] == '(' && p.src[i-2] == '$' {
				arith = 2
			}
		case ')':
			arith = max(0, arith-1)
		case '{', '[':
			stack = append(stack, i)
			if i+1 < len(p.src) && p.src[i+1] == r && p.isNamed(i) && (inner < 0 || i < inner) {
				inner = i
			}
		case '|':
			if arith > 0 && len(stack) == 1 {
				continue
			}
			top := stack[len(stack)-1]
			if len(stack) == 1 {
				bars = append(bars, i)
			} else if !hasBar[top] {
				hasBar[top] = true
				if inner < 0 || top < inner {
					inner = top
				}
			}
		case '}', ']':
			if closing(p.src[stack[len(stack)-1]]) != r {
				return -1, nil, -1
			}
			stack = stack[:len(stack)-1]
			if len(stack) == 0 {
				return i, bars, inner
			}
		}
	}
	return -1, nil, -1
}

// alternation reads the switch between the brackets at start and end.
func (p *parser) alternation(start, end int, bars []int) error {
	alts, err := p.alternatives(start+1, end, bars, false)
	if err != nil {
		return err
	}
	axis := Column
	prefix := "col"
	if p.src[start] == '[' {
		axis, prefix = Row, "row"
	}
	p.unnamed[axis]++
	sw := &Switch{Name: fmt.Sprintf("%s%d", prefix, p.unnamed[axis]), Axis: axis, Alts: alts, Implicit: true}
	p.flush()
	p.t.switches = append(p.t.switches, sw)
	p.t.parts = append(p.t.parts, part{sw: sw})
	p.pos = end + 1
	return nil
}

// alternatives cuts the text between from and to at the bars, and resolves escapes in each piece.
func (p *parser) alternatives(from, to int, bars []int, trim bool) ([]Alternative, error) {
	var alts []Alternative
	for _, bar := range append(bars, to) {
		text, err := p.plain(from, bar)
		if err != nil {
			return nil, err
		}
		if trim {
			text = strings.TrimSpace(text)
		}
		alts = append(alts, Alternative{Label: strings.TrimSpace(text), Text: text})
		from = bar + 1
	}
	return alts, nil
}

// plain returns one alternative without its escapes. Only brackets of the shell's may stand in it.
func (p *parser) plain(from, to int) (string, error) {
	var b strings.Builder
	for i := from; i < to; i++ {
		r := p.src[i]
		if r == '\\' && i+1 < to && isSpecial(p.src[i+1]) {
			i++
			r = p.src[i]
		} else if r == '{' || r == '[' {
			_, bars, inner := p.scan(i)
			if len(bars) > 0 || inner >= 0 || p.isNamed(i) {
				return "", p.errorAt(i, "a switch within a switch")
			}
		}
		b.WriteRune(r)
	}
	return b.String(), nil
}
