package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// words splits a command as a shell does, as far as records need: blanks, and single quotes around a word.
func words(s string) (out []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(s, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

// TestChangesPrintWhatTheGoldenOnesPrint runs create, resize, snapshot and the exerciser, each on fresh images; afterwards the real tool
// judges the images that were changed.
func TestChangesPrintWhatTheGoldenOnesPrint(t *testing.T) {
	list := append(readRecords(t, "testdata/changes/records.txt"), readRecords(t, "testdata/changes/io.txt")...)
	if len(list) < 29 {
		t.Fatalf("only %d records were read", len(list))
	}
	pristine := t.TempDir()
	script, err := filepath.Abs("testdata/listings/images.sh")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Tool(t, "qemu-img")
	cmd := exec.Command(testenv.Tool(t, "bash"), script)
	cmd.Dir = pristine
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range list {
		t.Run(r.command, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("cp", "-r", pristine+"/.", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Chdir(dir)
			var code int
			var out, errs bytes.Buffer
			for part := range strings.SplitSeq(r.command, " && ") {
				c, o, e := run(t, words(part)...)
				out.WriteString(o)
				errs.WriteString(e)
				if code = c; c != 0 {
					break
				}
			}
			if got, want := strings.TrimSpace(steady(timing.ReplaceAllString(out.String(), "ops; T"))), strings.TrimSpace(steady(r.stdout)); got != want {
				t.Errorf("prints\n%s\nwant\n%s", got, want)
			}
			if exit := "[exit " + string(rune('0'+code)) + "]"; exit != r.exit || (errs.Len() > 0) != r.fails {
				t.Errorf("%s, standard error %q; want %s and an error: %v", exit, errs.String(), r.exit, r.fails)
			}
			for _, name := range []string{"c.qcow2", "v3.qcow2", "snap.qcow2"} {
				if matches, _ := filepath.Glob(name); len(matches) == 1 && code == 0 {
					testenv.Run(t, "qemu-img", "check", "-q", name)
				}
			}
		})
	}
}
