package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestGetoptParsesAsGNUDoes(t *testing.T) {
	opts := []opt{{short: 'p'}, {short: 'q', long: "quiet"}, {short: 'O', arg: needArg}, {long: "output", arg: needArg},
		{long: "image-opts"}, {long: "image-raw"}}
	for _, c := range []struct{ in, want, err string }{
		{in: "a -p b", want: "p=;a,b"},
		{in: "-pqOraw x", want: "p=,quiet=,O=raw;x"},
		{in: "-O raw -- -p", want: "O=raw;-p"},
		{in: "--output=json -", want: "output=json;-"},
		{in: "--out json --qui", want: "output=json,quiet=;"},
		{in: "--image-o", want: "image-opts=;"},
		{in: "--image", err: "option '--image' is ambiguous; possibilities: '--image-opts' '--image-raw'"},
		{in: "--nosuch=1", err: "unrecognized option '--nosuch'"},
		{in: "--quiet=1", err: "option '--quiet' doesn't allow an argument"},
		{in: "--output", err: "option '--output' requires an argument"},
		{in: "-pO", err: "option requires an argument -- 'O'"},
		{in: "-x", err: "invalid option -- 'x'"},
	} {
		got, rest, err := getopt(strings.Fields(c.in), opts)
		var parts []string
		for _, p := range got {
			parts = append(parts, p.key+"="+p.value)
		}
		s := strings.Join(parts, ",") + ";" + strings.Join(rest, ",")
		if c.err != "" {
			if fmt.Sprint(err) != c.err {
				t.Errorf("%q: error %v, want %s", c.in, err, c.err)
			}
			continue
		}
		if err != nil || s != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.in, s, err, c.want)
		}
	}
	if !slices.IsSortedFunc(verbs, func(a, b verb) int { return strings.Compare(a.name, b.name) }) {
		t.Error("the verb table is not in alphabetical order")
	}
}
