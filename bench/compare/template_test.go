package compare

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// grid lists all commands of a template, column by column within each row.
func grid(t *Template) string {
	var out []string
	for _, row := range t.Rows() {
		for _, col := range t.Columns() {
			if t.Excluded(col, row) {
				out = append(out, "-")
				continue
			}
			out = append(out, t.Command(col, row))
		}
	}
	return strings.Join(out, "\n")
}

func ids(list []Choice) string {
	var out []string
	for _, c := range list {
		out = append(out, c.ID)
	}
	return strings.Join(out, ";")
}

func TestTemplatesGiveTheMatrixTheyDescribe(t *testing.T) {
	tests := []struct {
		name, template   string
		cols, rows, grid string
	}{
		{"no switch is one cell", "true", "", "", "true"},
		{"a column switch", "{a|b}", "a;b", "", "a\nb"},
		{"a row switch", "[a|b]", "", "a;b", "a\nb"},
		{"both", "x {a|b} y [c|d] z", "a;b", "c;d", "x a y c z\nx b y c z\nx a y d z\nx b y d z"},
		{"the last column switch varies fastest", "{a|b}{c|d}", "a / c;a / d;b / c;b / d", "", "ac\nad\nbc\nbd"},
		{"the last row switch varies fastest", "[a|b] [c|d]", "", "a / c;a / d;b / c;b / d", "a c\na d\nb c\nb d"},
		{"three alternatives", "{a|b|c}", "a;b;c", "", "a\nb\nc"},
		{"newlines within text and alternatives", "x\n{a\nb|c}\n", "a\nb;c", "", "x\na\nb\n\nx\nc\n"},
		{"equal alternatives stay two columns", "{a|a}", "a;a (2)", "", "a\na"},
		{"arithmetic of the shell", "[-s 2K|-s $((1024*2+512))]", "", "-s 2K;-s $((1024*2+512))", "-s 2K\n-s $((1024*2+512))"},
		{"a switch within arithmetic", "$(({1|2}*512))", "1;2", "", "$((1*512))\n$((2*512))"},
		{"a bar within arithmetic", "$((5|2)) {a|b}", "a;b", "", "$((5|2)) a\n$((5|2)) b"},
		{"a bar within arithmetic within an alternative", "{$((5|2))|b}", "$((5|2));b", "", "$((5|2))\nb"},
		{"nested parentheses in arithmetic", "$(((1|2)+4))", "", "", "$(((1|2)+4))"},
		{"a variable", "${VAR} $VAR", "", "", "${VAR} $VAR"},
		{"a variable within an alternative", "{${A}|$B}", "${A};$B", "", "${A}\n$B"},
		{"classic: a switch of variable names", "${A|B}", "A;B", "", "$A\n$B"},
		{"a switch within an expansion", "${V:-{a|b}}", "a;b", "", "${V:-a}\n${V:-b}"},
		{"an array element", "${a[0]} ${a[@]}", "", "", "${a[0]} ${a[@]}"},
		{"a test", "[ -e x ] && y", "", "", "[ -e x ] && y"},
		{"a test with a switch", "[ {a|b} = a ]", "a;b", "", "[ a = a ]\n[ b = a ]"},
		{"a test and an or", "[ -e x ] || y", "", "", "[ -e x ] || y"},
		{"a double test with bars", "[[ -e x || $a =~ b|c ]]", "", "", "[[ -e x || $a =~ b|c ]]"},
		{"a double test with a switch", "[[ -e {x|y} ]]", "x;y", "", "[[ -e x ]]\n[[ -e y ]]"},
		{"a glob", "rm x[0-9] [[:alpha:]]", "", "", "rm x[0-9] [[:alpha:]]"},
		{"brace expansion", "echo {1..3} {a,b}", "", "", "echo {1..3} {a,b}"},
		{"empty braces", "find -exec rm {} +", "", "", "find -exec rm {} +"},
		{"a command group with a switch", "{ echo {a|b}; }", "a;b", "", "{ echo a; }\n{ echo b; }"},
		{"escaped brackets and bars", `\{a\|b\} \[c\]`, "", "", "{a|b} [c]"},
		{"an escaped bar within an alternative", `{a\|x|b}`, "a|x;b", "", "a|x\nb"},
		{"an escaped brace within an alternative", `{\{|\}}`, "{;}", "", "{\n}"},
		{"escapes within a test", `[ a \| b ]`, "", "", "[ a | b ]"},
		{"other backslashes are the shell's", `a\nb \\ \$x {a\n|b}`, `a\n;b`, "", "a\\nb \\\\ \\$x a\\n\na\\nb \\\\ \\$x b"},
		{"an empty alternative at the end", "x{-n|}", "-n;", "", "x-n\nx"},
		{"an empty alternative at the front", "x[|-n]", "", ";-n", "x\nx-n"},
		{"an empty alternative in the middle", "{a||b}", "a;;b", "", "a\n\nb"},
		{"two empty alternatives", "x{|}", "(none);(none) (2)", "", "x\nx"},
		{"a named switch and its reuse", "{{e: native|io_uring}} -i {{e}}", "native;io_uring", "", "native -i native\nio_uring -i io_uring"},
		{"a named row switch", "[[s: 4k | 64k]] [[s]]", "", "4k;64k", "4k 4k\n64k 64k"},
		{"a name used before its definition", "{{e}}{{e:a|b}}", "a;b", "", "aa\nbb"},
		{"a named switch of one alternative", "{{e: a}}{{e}}", "a", "", "aa"},
		{"a named switch with an empty alternative", "x{{e: |-n}}", ";-n", "", "x\nx-n"},
		{"a named switch with a variable inside", "{{e: ${A}|b}}", "${A};b", "", "${A}\nb"},
		{"a dollar before a named switch", "${{e: A|B}}", "A;B", "", "$A\n$B"},
		{"named and unnamed switches", "{{e: a|b}} [x|y]", "a;b", "x;y", "a x\nb x\na y\nb y"},
		{"an exclusion", "{{!exclude e=a, s=y}}\n{{e: a|b}} [[s: x|y]]", "a;b", "x;y", "a x\nb x\n-\nb y"},
		{"an exclusion by place", "{a|b} [x|y]{{!exclude col1=b,row1=x}}", "a;b", "x;y", "a x\n-\na y\nb y"},
		{"letters beyond ASCII", "é {ä|ö} \\{", "ä;ö", "", "é ä {\né ö {"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tpl, err := Parse(tt.template)
			if err != nil {
				t.Fatal(err)
			}
			cols, rows := ids(tpl.Columns()), ids(tpl.Rows())
			// an all-empty label of a switch prints as (none)
			norm := func(s string) string {
				parts := strings.Split(s, ";")
				for i, p := range parts {
					if p == "" && len(parts) > 1 {
						parts[i] = "(none)"
					}
				}
				return strings.Join(parts, ";")
			}
			if cols != norm(tt.cols) || rows != norm(tt.rows) {
				t.Errorf("columns %q rows %q, want %q %q", cols, rows, norm(tt.cols), norm(tt.rows))
			}
			if got := grid(tpl); got != tt.grid {
				t.Errorf("commands:\n%s\nwant:\n%s", got, tt.grid)
			}
		})
	}
}

func TestMalformedTemplatesAreRefusedWithTheirPlace(t *testing.T) {
	tests := []struct {
		name, template string
		line, col      int
		says           string
	}{
		{"nothing", "", 1, 1, "empty"},
		{"only space", " \n\t", 1, 1, "empty"},
		{"a bar at the top", "a|b", 1, 2, `\|`},
		{"a bar after a switch", "{a|b}|c", 1, 6, "outside"},
		{"a bar on a later line", "x\ny {a|b}\n z | w", 3, 4, "outside"},
		{"an unclosed brace", "x {a|b", 1, 3, "never closed"},
		{"an unclosed bracket", "x\n[a|b", 2, 1, "never closed"},
		{"an unclosed plain brace", "x {a", 1, 3, "never closed"},
		{"an unclosed expansion", "${x", 1, 2, "never closed"},
		{"a stray brace", "a} b", 1, 2, "closes nothing"},
		{"a stray bracket", "{a|b} ]", 1, 7, "closes nothing"},
		{"brackets that cross", "{a[|}]", 1, 1, "never closed"},
		{"the wrong closing bracket", "{a|b]", 1, 1, "never closed"},
		{"a switch in an alternative", "{a{b|c}|d}", 1, 3, "switch within a switch"},
		{"a row switch in an alternative", "{a[b|c]|d}", 1, 3, "switch within a switch"},
		{"a named switch in an alternative", "{a{{n: b}}|d}", 1, 3, "switch within a switch"},
		{"a switch in plain braces", "{a{b|c}}", 1, 3, "do not nest"},
		{"a switch in plain brackets", "[a[b|c]]", 1, 3, "do not nest"},
		{"doubled braces without a name", "{{a|b}}", 1, 1, "{{name: a|b}}"},
		{"an unknown name", "x {{e}}", 1, 3, "nowhere defined"},
		{"a name of the other axis", "{{e: a|b}} [[e]]", 1, 12, "column switch, but used as a row switch"},
		{"a name defined twice", "{{e: a|b}}\n{{e: a|b}}", 2, 1, "defined twice"},
		{"an unclosed named switch", "{{e: a|b}", 1, 9, "closes nothing"},
		{"an unclosed named switch at the end", "{{e: a|b", 1, 1, "never closed"},
		{"a switch within a named switch", "{{e: {a|b}|c}}", 1, 6, "switch within a switch"},
		{"an unknown directive", "{{!skip x}} {a|b}", 1, 3, "unknown directive"},
		{"an exclusion of an unknown switch", "{a|b}{{!exclude q=a}}", 1, 6, "no switch is named"},
		{"an exclusion of an unknown value", "{a|b}{{!exclude col1=z}}", 1, 6, "no alternative"},
		{"an exclusion that is no choice", "{a|b}{{!exclude col1}}", 1, 6, "want name=value"},
		{"an unclosed directive", "{a|b}{{!exclude col1=a", 1, 6, "never closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tpl, err := Parse(tt.template)
			if err == nil {
				t.Fatalf("accepted, as\n%s", grid(tpl))
			}
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Fatalf("%v is no SyntaxError", err)
			}
			if se.Line != tt.line || se.Column != tt.col || !strings.Contains(se.Msg, tt.says) {
				t.Errorf("got %v, want %d:%d with %q", err, tt.line, tt.col, tt.says)
			}
		})
	}
}

func TestAMatrixBeyondReasonIsRefused(t *testing.T) {
	if _, err := Parse(strings.Repeat("{0|1|2|3|4|5|6|7|8|9}", 5)); err == nil {
		t.Fatal("100000 columns were accepted")
	}
}

func TestGivenSwitchesDefineAndReplaceNames(t *testing.T) {
	bin := &Switch{Name: "bin", Axis: Column, Alts: []Alternative{{"old", "/x/a"}, {"new", "/x/b"}}}
	tpl, err := Parse("{{bin}} bench [[s: 1|2]]", bin, &Switch{Name: "s", Axis: Row, Alts: []Alternative{{"9", "9"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(ids(tpl.Columns()), ids(tpl.Rows()), grid(tpl)); got != "old;new9/x/a bench 9\n/x/b bench 9" {
		t.Errorf("got %q", got)
	}
	if !tpl.Uses("bin") || tpl.Uses("row1") {
		t.Error("Uses is wrong")
	}
	if _, err := Parse("[[bin: a|b]]", bin); err == nil {
		t.Error("a row definition of a given column switch was accepted")
	}
	if err := tpl.Exclude("bin=old, s=9"); err != nil {
		t.Fatal(err)
	}
	if got := grid(tpl); got != "-\n/x/b bench 9" {
		t.Errorf("got %q", got)
	}
}

func TestGivenSwitchesCanBeShellVariables(t *testing.T) {
	bin := &Switch{Name: "bin", Axis: Column, Alts: []Alternative{{"old", "/x/it's"}, {"new", "/y"}}}
	tpl, err := Parse("$BIN bench", bin)
	if err != nil {
		t.Fatal(err)
	}
	if got := grid(tpl); got != "BIN='/x/it'\\''s'\n$BIN bench\nBIN='/y'\n$BIN bench" || ids(tpl.Columns()) != "old;new" {
		t.Errorf("got %q", got)
	}
	if err := tpl.Exclude("bin=old"); err != nil {
		t.Error(err)
	}
	if _, err := Parse("qemu-img bench", bin); err == nil || !strings.Contains(err.Error(), "$BIN") {
		t.Errorf("an unused switch: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"{a|b} [c|d]", "${x:-{a|b}}", `\{ \\|`, "{{e: a|b}}{{e}}{{!exclude e=a}}", "[[ a || b ]]", "$((1|2))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tpl, err := Parse(s)
		if err != nil {
			return
		}
		for _, row := range tpl.Rows() {
			for _, col := range tpl.Columns() {
				_ = tpl.Command(col, row)
				_ = tpl.Excluded(col, row)
			}
		}
	})
}
