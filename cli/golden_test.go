package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// run calls the program in-process.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(&Env{Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: t.Context()})
	return code, out.String(), errs.String()
}

// listingImages makes the images of testdata/listings in a folder of its own and goes there. They are copied as sparse
// as they can be, because listings tell holes.
func listingImages(t *testing.T) {
	t.Helper()
	testenv.Tool(t, "qemu-img")
	testenv.Tool(t, "qemu-io")
	script, err := filepath.Abs("testdata/listings/images.sh")
	if err != nil {
		t.Fatal(err)
	}
	made, dir := t.TempDir(), t.TempDir()
	cmd := exec.Command(testenv.Tool(t, "bash"), script)
	cmd.Dir = made
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("cp", "-r", "--sparse=always", made+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Chdir(dir)
}

// record is one command of a golden file with what it prints.
type record struct {
	command, stdout, exit string
	fails                 bool // something is said on standard error
}

// readRecords reads a file of records: "$ command", standard output, "--- standard error" with what is there, "[exit N]".
func readRecords(t *testing.T, name string) (out []record) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq("\n"+string(b), "\n$ ") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		var r record
		r.command, part, _ = strings.Cut(part, "\n")
		at := strings.LastIndex(part, "[exit ")
		r.exit, part = part[at:], part[:at]
		r.stdout, _, r.fails = strings.Cut(part, "--- standard error\n")
		out = append(out, r)
	}
	return out
}

// varying are the parts of listings that differ from run to run.
var varying = regexp.MustCompile(`(?m)("?(disk |actual-)size"?: )[^\n,]*|("date-n?sec": )\d+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

func steady(s string) string { return varying.ReplaceAllString(s, "${1}${3}*") }

func TestListingsEqualTheGoldenOnes(t *testing.T) {
	records := map[string][]record{}
	for _, name := range []string{"info", "info-json", "map", "map-json"} {
		records[name] = readRecords(t, "testdata/listings/"+name+".txt")
	}
	listingImages(t)
	n := 0
	for name, list := range records {
		for _, r := range list {
			n++
			code, out, errs := run(t, strings.Fields(r.command)...)
			if got := steady(out); got != steady(r.stdout) {
				t.Errorf("%s: %s prints\n%s\nwant\n%s", name, r.command, got, steady(r.stdout))
			}
			if exit := "[exit " + string(rune('0'+code)) + "]"; exit != r.exit || (errs != "") != r.fails {
				t.Errorf("%s: %s: %s, standard error %q; want %s and an error: %v", name, r.command, exit, errs, r.exit, r.fails)
			}
		}
	}
	if n < 35 {
		t.Errorf("only %d records were read", n)
	}
}
