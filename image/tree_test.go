package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"byre/block"
)

func show(t Tree) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, t[k]))
	}
	return strings.Join(parts, ";")
}

func TestOptionStringsAreReadAsTheRealToolsDo(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{in: "driver=qcow2,file.driver=file,file.filename=a.img", want: "driver=qcow2;file.driver=file;file.filename=a.img"},
		{in: "file.filename=a,,b=c", want: "file.filename=a,b=c"},
		{in: "file.filename=a,,,driver=raw", want: "driver=raw;file.filename=a,"},
		{in: "read-only", want: "read-only=on"},
		{in: "a=,b=2", want: "a=;b=2"},
		{in: "", want: ""},
		{in: "=x", err: "without a name"},
		{in: "a=1,a=2", err: "twice"},
		{in: "file=a,file.filename=b", err: "both a value and an object"},
		{in: "file=a,file-x=1,file.filename=b", err: "both a value and an object"},
	} {
		got, err := ParseOptionString(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !errors.Is(err, block.ErrInvalid) {
				t.Errorf("%q: %v, want an error with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || show(got) != c.want {
			t.Errorf("%q: %s, %v; want %s", c.in, show(got), err, c.want)
		}
	}
}

func TestJSONOptionsAreFlattened(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{in: `{"driver":"raw","offset":1024,"file":{"driver":"file","filename":"x"}}`,
			want: "driver=raw;file.driver=file;file.filename=x;offset=1024"},
		{in: `{"file.filename":"x","backing":null}`, want: "backing=<nil>;file.filename=x"},
		{in: `{"inject-error":[{"event":"a"},{"event":"b","once":true}]}`,
			want: "inject-error.0.event=a;inject-error.1.event=b;inject-error.1.once=true"},
		{in: `{"file":{"filename":"x"},"file.filename":"y"}`, err: "twice"},
		{in: `{"file":"x","file.filename":"y"}`, err: "both a value"},
		{in: `["x"]`, err: "not an object"},
		{in: `{} {}`, err: "follows"},
		{in: `{`, err: "JSON"},
		{in: strings.Repeat(`{"a":`, 20000), err: "JSON"},
	} {
		got, err := ParseJSON(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s: %v, want an error with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || show(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.in, show(got), err, c.want)
		}
	}
}

func TestSizesHaveSuffixesAndFractions(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64 // -1: an error
	}{
		{"0", 0}, {"512", 512}, {"512b", 512}, {"1k", 1024}, {"1K", 1024}, {"64M", 64 << 20}, {"1.5G", 3 << 29},
		{"7E", 7 << 60}, {"0x1e", 30}, {"0x10", 16}, {"0.5k", 512}, {"9223372036854775807", 1<<63 - 1},
		{"8E", -1}, {"9223372036854775808", -1}, {"-1", -1}, {"", -1}, {"k", -1}, {"1x", -1}, {"12xx", -1}, {"0x", -1},
		{"0x-1", -1}, {"0x1k", -1}, {"1.5", -1}, {"1.5.5k", -1}, {"1.e1k", -1}, {" 1", -1}, {"1 ", -1}, {"+1", -1},
	} {
		got, err := ParseSize(c.in)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%q: %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func FuzzOptionTrees(f *testing.F) {
	f.Add("driver=raw,file.filename=a,,b")
	f.Add(`{"driver":"raw","file":{"filename":"x"}}`)
	f.Fuzz(func(t *testing.T, s string) {
		if tree, err := ParseOptionString(s); err == nil {
			tree.take("file")
		}
		if tree, err := ParseJSON(s); err == nil {
			tree.take("file")
			if _, err := tree.takeBool("x", true); err != nil && !errors.Is(err, block.ErrInvalid) {
				t.Fatal(err)
			}
		}
		_, _ = ParseSize(s)
		_, _ = nameTree(s, true)
		_ = combine(s, s)
	})
}
