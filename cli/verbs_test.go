package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

func TestVersionIsWhatToolsParse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"qemu-img", "--version"}, "qemu-img version 9.2.0 (byre "},
		{[]string{"/usr/bin/qemu-img", "-V"}, "qemu-img version 9.2.0 (byre "},
		{[]string{"byre", "--version"}, "qemu-img version 9.2.0 (byre "},
		{[]string{"qemu-io", "--version"}, "qemu-io version 9.2.0 (byre "},
	} {
		code, out, errs := run(t, c.args...)
		if code != 0 || !strings.HasPrefix(out, c.want) || strings.Count(out, "\n") != 1 || errs != "" {
			t.Errorf("%q: exit %d, %q, %q", c.args, code, out, errs)
		}
	}
}

// every option that the real tool lists for a verb is listed and taken by ours.
func TestEveryVerbHasTheOptionsOfTheRealOne(t *testing.T) {
	out, err := exec.Command(testenv.Tool(t, "qemu-img"), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	option := regexp.MustCompile(`-(-[a-z][a-z-]*|[a-zA-Z])\b`)
	real := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && strings.HasPrefix(line, "  ") && strings.HasPrefix(rest, "[") || strings.HasPrefix(rest, "(--") {
			real[name] = option.FindAllString(rest, -1)
		}
	}
	if len(real["info"]) < 5 || len(real["convert"]) < 20 {
		t.Fatalf("the real help was not understood: %v", real)
	}
	for i := range verbs {
		v := &verbs[i]
		code, help, _ := run(t, "qemu-img", v.name, "--help")
		if code != 0 || !strings.HasPrefix(help, "usage: qemu-img "+v.name) {
			t.Errorf("%s --help: exit %d\n%s", v.name, code, help)
		}
		for _, o := range real[v.name] {
			if !regexp.MustCompile(`(?m)^ +(-\w, )?` + regexp.QuoteMeta(o) + `\b`).MatchString(help) {
				t.Errorf("%s --help does not list %s", v.name, o)
			}
		}
	}
	code, help, _ := run(t, "qemu-img", "--help")
	for i := range verbs {
		if code != 0 || !strings.Contains(help, "\n  "+verbs[i].name+" ") {
			t.Errorf("--help does not list %s", verbs[i].name)
		}
	}
	for _, want := range []string{"Supported formats:", "qcow2", "raw"} {
		if !strings.Contains(help, want) {
			t.Errorf("--help does not say %q", want)
		}
	}
}

func TestWrongCommandLinesFailWithAHint(t *testing.T) {
	for _, args := range [][]string{
		{}, {"nosuch"}, {"--nosuch"}, {"info"}, {"info", "a", "b"}, {"info", "-x", "a"}, {"info", "--output=xml", "a"},
		{"info", "--output"}, {"map", "--start-offset=-1", "a"}, {"info", "--image-opts", "-f", "raw", "a"},
		{"bench", "--zero-policy=x", "a"}, {"bench", "--dependency=x", "a"}, {"bench", "-i", "x", "a"},
		{"info", "--object", "secret", "a"}, {"info", "--object", "nosuch,id=x", "a"}, {"-T"},
	} {
		code, out, errs := run(t, append([]string{"qemu-img"}, args...)...)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "qemu-img: ") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
	if code, _, errs := run(t, "qemu-img", "-T", "trace:x", "--trace=y", "info", "/nonexistent"); code != 1 || !strings.Contains(errs, "No such file") {
		t.Errorf("with -T: exit %d, %q", code, errs)
	}
}

func TestUntrustedOpensNoOtherFile(t *testing.T) {
	listingImages(t)
	for _, args := range [][]string{
		{"map", "--untrusted", "top.qcow2"}, {"map", "--untrusted", "ext.qcow2"},
		{"info", "--untrusted", "--backing-chain", "top.qcow2"}, {"compare", "--untrusted", "base.raw", "top.qcow2"},
		{"convert", "--untrusted", "-O", "raw", "top.qcow2", "out.raw"},
		{"bench", "--untrusted", "-c", "1", "-f", "qcow2", "top.qcow2"}, {"io", "--untrusted", "-c", "read 0 512", "top.qcow2"},
	} {
		code, _, errs := run(t, append([]string{"qemu-img"}, args...)...)
		if code == 0 || !strings.Contains(errs, "mid.qcow2") && !strings.Contains(errs, "ext.data") {
			t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
	if _, err := os.Stat("out.raw"); err == nil {
		t.Error("a refused convert left a target behind")
	}
	for _, args := range [][]string{{"info", "--untrusted", "top.qcow2"}, {"inspect", "--untrusted", "--safety", "top.qcow2"},
		{"map", "--untrusted", "v3.qcow2"}} {
		if code, _, errs := run(t, append([]string{"qemu-img"}, args...)...); code != 0 && args[0] != "map" {
			t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
	for i := range verbs {
		if _, help, _ := run(t, "qemu-img", verbs[i].name, "--help"); !strings.Contains(help, "--untrusted") && !strings.HasPrefix(verbs[i].name, "simple") {
			t.Errorf("%s has no --untrusted", verbs[i].name)
		}
	}
}

func TestInspectPrintsTablesAndSafety(t *testing.T) {
	listingImages(t)
	for _, args := range [][]string{{"--l1", "--l2", "--refcounts", "v3.qcow2"}, {"opts.qcow2"}, {"--snapshot=second one", "--l2", "snap.qcow2"},
		{"bitmap.qcow2"}, {"--safety", "ext.qcow2"}, {"--safety", "plain.raw"}, {"--safety", "--image-opts", "driver=qcow2,file.filename=top.qcow2"}} {
		code, out, errs := run(t, append([]string{"byre", "inspect", "--output=json"}, args...)...)
		var v map[string]any
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || errs != "" {
			t.Errorf("%q: exit %d, %v, %q\n%s", args, code, err, errs, out)
		}
		code, text, errs := run(t, append([]string{"byre", "inspect"}, args...)...)
		if code != 0 || errs != "" || !strings.HasPrefix(text, "filename: ") {
			t.Errorf("%q: exit %d, %q\n%s", args, code, errs, text)
		}
	}
	_, out, _ := run(t, "byre", "inspect", "--safety", "--output=json", "top.qcow2")
	for _, want := range []string{`"name": "mid.qcow2"`, `"format": "qcow2"`, `"self-contained": false`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nwant %s in it", out, want)
		}
	}
	_, out, _ = run(t, "byre", "inspect", "--l2", "-s", "4M", "-l", "64k", "v3.qcow2")
	if strings.Count(out, "l1-index=") != 1 || !strings.Contains(out, "type=compressed") {
		t.Errorf("one compressed cluster should be listed:\n%s", out)
	}
	if code, _, errs := run(t, "byre", "inspect", "plain.raw"); code != 1 || !strings.Contains(errs, "not a qcow2") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if code, _, errs := run(t, "byre", "inspect", "--snapshot=nosuch", "snap.qcow2"); code != 1 || !strings.Contains(errs, "nosuch") {
		t.Errorf("exit %d, %q", code, errs)
	}
}
