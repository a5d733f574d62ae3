package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/bench/compare"
	"byre/internal/testenv"
)

// simplebenchMain runs a command line in-process, with a template on standard input.
func simplebenchMain(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	testenv.Tool(t, "bash")
	var out, errs strings.Builder
	code = Main(&Env{Args: append([]string{"byre", "simplebench"}, args...), Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Context: t.Context()})
	return code, out.String(), errs.String()
}

// fakeTool is a program that takes the verbs create and bench and says how long its requests took.
func fakeTool(t *testing.T, dir, name, perRequest string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	script := `#!/bin/bash
case $1 in
--version) echo "` + name + ` version 1" ;;
create) touch "${@: -2:1}" ;;
bench)
	[ -e "${@: -1}" ] || { echo "no image ${@: -1}" >&2; exit 1; }
	while [ $# -gt 0 ]; do case $1 in -s) size=${2%K} ;; -c) count=$2 ;; esac; shift; done
	echo "Sending $count write requests, $size K each"
	echo "Run completed in $((count * size * ` + perRequest + ` / 1000)).$(((count * size * ` + perRequest + ` % 1000) / 100))50 seconds." ;;
esac
`
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTemplatesOfOldRunAsPasted(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	fakeTool(t, dir, "qemu-img-old", "4")
	fakeTool(t, dir, "qemu-img-new", "3")
	// two binaries, two sizes
	code, out, errs := simplebenchMain(t, `qemu_img=$PWD/{qemu-img-old|qemu-img-new}
$qemu_img create -f qcow2 x.qcow2 1G
$qemu_img bench -w -t none -c 200 [-s 4K|-s 64K] x.qcow2
`, "-c", "3")
	want := `All results are in seconds

------  ------------  ------------
        qemu-img-old  qemu-img-new
-s 4K   3.25          2.45
                        -25%
-s 64K  51.2          38.5
                        -25%
------  ------------  ------------
`
	if code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("exit %d\n%s%s\nwant\n%s", code, out, errs, want)
	}
	if !strings.Contains(out, "-s 4K: qemu-img-new is 1.327 times faster than qemu-img-old") {
		t.Errorf("no sentence in\n%s", out)
	}
	// three rows for subclusters, one with arithmetic of the shell
	code, out, errs = simplebenchMain(t, `qemu_img=$PWD/qemu-img-{old|new}; \
$qemu_img create -f qcow2 -o extended_l2=on ssd.qcow2 1G; \
$qemu_img bench -c 1000 -d 8 [-s 2K|-s 2K -o 512|-s $((1024*2+512))] -w -t none -n ssd.qcow2
`, "-c", "2", "--warmup", "0", "-q")
	if code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	words := strings.Join(strings.Fields(out), " ")
	for _, row := range []string{"old new -s 2K 8.05 6.05 -25%", "-s 2K -o 512 8.05 6.05 -25%", "-s $((1024*2+512)) 10240 7680 -25%"} {
		if !strings.Contains(words, row) {
			t.Errorf("%q is not in\n%s", row, out)
		}
	}
	if _, err := os.Stat("results.json"); err != nil {
		t.Error(err)
	}
}

func TestTwoBuildsAreComparedForCI(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	old, slow := fakeTool(t, dir, "old", "4"), fakeTool(t, dir, "slow", "5")
	tpl := "touch x; {{bin}} bench -w -c 200 [-s 4K|-s 64K] x"
	code, _, errs := simplebenchMain(t, tpl, "-q", "-c", "3", "--bin", "old="+old, "--bin", "new="+slow, "--fail-if", "new > old * 1.05")
	if code != 1 || !strings.Contains(errs, "-s 4K: new > old * 1.05 holds") || !strings.Contains(errs, "-s 64K: new > old * 1.05 holds") {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, _, errs = simplebenchMain(t, "touch x; $BIN bench -w -c 200 -s 4K x", "-q", "-c", "3", "--bin", "old="+old, "--bin", "new="+slow, "--fail-if", "new > old * 1.3")
	if code != 0 || !strings.Contains(errs, "new > old * 1.3 does not hold") {
		t.Errorf("exit %d: %s", code, errs)
	}
	code, _, errs = simplebenchMain(t, tpl, "-q", "--bin", "old="+old, "--bin", "new="+slow, "--fail-if", "newer > old")
	if code != 1 || !strings.Contains(errs, `"newer > old"`) {
		t.Errorf("an unknown column: exit %d: %s", code, errs)
	}
	code, out, errs := simplebenchMain(t, "{{bin}} bench -c 1 -s 1K nothing", "-q", "-c", "1", "--bin", "old="+old)
	if code != 1 || !strings.Contains(out, "FAILED") || !strings.Contains(errs, "no image nothing") || !strings.Contains(errs, "nothing could be measured") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestDryRunsPrintEveryCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	code, out, errs := simplebenchMain(t, "", "-e", "{{bin}} [[dir]] {{x: 1|2}}{{!exclude x=2, row=b}} [[row: a|b]]", "--dry-run", "--bin", "sh=sh", "--dir", "here:.", "--set", "x=1|2|3", "--exclude", "x=3")
	sh := testenv.Tool(t, "sh")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	line := sh + " " + here + " "
	want := "# a :: sh / 1\n" + line + "1 a\n# a :: sh / 2\n" + line + "2 a\n# b :: sh / 1\n" + line + "1 b\n"
	if code != 0 || out != want {
		t.Errorf("exit %d\n%s%s\nwant\n%s", code, out, errs, want)
	}
	if _, err := os.Stat("results.json"); err == nil {
		t.Error("a dry run wrote results")
	}
}

func TestWorkingFoldersAreMadeAndRemoved(t *testing.T) {
	t.Chdir(t.TempDir())
	os.Mkdir("a", 0o777)
	os.Mkdir("b", 0o777)
	code, out, errs := simplebenchMain(t, "cd [[dir]] && touch left && pwd | grep -o '/[ab]/simplebench-' && echo 'Run completed in 1 seconds.'", "-q", "-c", "1", "--dir", "one:a", "--dir", "two:b")
	if code != 1 || !strings.Contains(errs, "'|' outside of a switch") {
		t.Errorf("a bare pipe: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = simplebenchMain(t, `cd [[dir]] && touch left && pwd \| grep -o '/\[ab\]/simplebench-' && echo 'Run completed in 1 seconds.'`, "-q", "-c", "1", "--dir", "one:a", "--dir", "two:b")
	if code != 0 || !strings.Contains(out, "one  1.00") || !strings.Contains(out, "two  1.00") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, d := range []string{"a", "b"} {
		if left, _ := os.ReadDir(d); len(left) != 0 {
			t.Errorf("%s holds %v", d, left)
		}
	}
}

func TestShowPrintsAndComparesSavedResults(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, f := range []string{"1", "2"} {
		if code, _, errs := simplebenchMain(t, "n="+f+"; {a|b} 2>/dev/null; echo Run completed in $n seconds.", "-q", "-c", "2", "--results", f+".json"); code != 0 {
			t.Fatal(errs)
		}
	}
	code, out, errs := simplebenchMain(t, "", "show", "1.json", "2.json", "--html", "r.html", "--svg", "r.svg")
	if code != 0 || errs != "" || !strings.Contains(out, "1.json: a  2.json: a  1.json: b    2.json: b") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, f := range []string{"r.html", "r.svg"} {
		if data, err := os.ReadFile(f); err != nil || !strings.Contains(string(data), "1.json: a") {
			t.Errorf("%s: %v", f, err)
		}
	}
	var raw map[string]any
	data, _ := os.ReadFile("2.json")
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	raw["machine"].(map[string]any)["cpus"] = 1000.0
	data, _ = json.Marshal(raw)
	os.WriteFile("3.json", data, 0o666)
	if _, _, errs := simplebenchMain(t, "", "show", "1.json", "3.json"); !strings.Contains(errs, "different machines") {
		t.Errorf("no warning: %s", errs)
	}
	for _, form := range []string{"markdown", "csv", "json"} {
		if code, out, errs := simplebenchMain(t, "", "show", "1.json", "--output", form); code != 0 || len(out) < 50 {
			t.Errorf("%s: exit %d\n%s%s", form, code, out, errs)
		}
	}
	if code, _, errs := simplebenchMain(t, "", "show", "none.json"); code != 1 || !strings.Contains(errs, "none.json") {
		t.Errorf("a missing file: %d %s", code, errs)
	}
}

func TestAllWritesAPageThatSaysWhereTheSubjectIsSlower(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	mine, theirs := fakeTool(t, dir, "byre", "5"), fakeTool(t, dir, "qemu-img", "4")
	code, out, errs := simplebenchMain(t, "", "-q", "-c", "2", "--warmup", "0", "--bin", "byre="+mine, "--against", "qemu-img="+theirs, "--set", "request=-s 2K", "--set", "extended_l2=on", "all", "subclusters")
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	page, err := os.ReadFile("performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Performance", "* byre: byre version 1", "* qemu-img: qemu-img version 1", "Of 2 comparisons with other tools on the same work, byre is faster in 0 and slower in 2",
		"## Where byre is slower", "| subclusters | on / -s 2K :: aio=native | qemu-img / native | +25% |", "![subclusters](performance/subclusters.svg)", "byre simplebench --count 2 --warmup 0 --bin byre=byre --against qemu-img=qemu-img"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	if strings.Contains(string(page), dir) {
		t.Error("the page names a folder of this machine")
	}
	if _, err := compare.Load("performance/subclusters.json"); err != nil {
		t.Error(err)
	}
}

func TestAllRefusesWhatCannotBeMeasuredBeforeMeasuring(t *testing.T) {
	t.Chdir(t.TempDir())
	// convert has no switch named aio, subclusters has no other trouble with it
	code, out, errs := simplebenchMain(t, "", "-q", "--dry-run", "--set", "aio=threads", "all", "subclusters", "convert")
	if code != 0 || !strings.Contains(out, "-i threads") || strings.Contains(out, "-i native") || !strings.Contains(out, "convert -f raw") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, args := range []string{"--set nosuch=1 all subclusters convert", "--exclude aio=native all subclusters convert"} {
		code, _, errs = simplebenchMain(t, "", strings.Fields("-q -c 1 "+args)...)
		if _, err := os.Stat("performance"); code != 1 || err == nil || errs == "" {
			t.Errorf("%s: exit %d, %s: something was measured", args, code, errs)
		}
	}
}

func TestSimplebenchRefusesWrongOptions(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ args, says string }{
		{"-c 0", "--count"}, {"-c x", "--count"}, {"--dimension miles", "miles"}, {"--output yaml", "yaml"},
		{"--confidence 100", "--confidence"}, {"--bin a=/no/such", "/no/such"}, {"--dir a:/no/such", "/no/such"},
		{"--regex (", "--regex"}, {"--fail-if a=b", "--fail-if"}, {"--set a", "--set"}, {"-e {a", "never closed"},
		{"nosuchfile", "nosuchfile"}, {"show", "Expecting"}, {"print nosuch", "nosuch"}, {"all nosuch", "nosuch"},
		{"-e true --set q=1", "no switch named"}, {"-e true --exclude q=1", "no switch is named"}, {"--slow-limit soon", "--slow-limit"},
	} {
		if code, _, errs := simplebenchMain(t, "", strings.Fields(tt.args)...); code != 1 || !strings.HasPrefix(errs, "byre: ") || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: exit %d, %s", tt.args, code, errs)
		}
	}
	if code, _, errs := simplebenchMain(t, "  \n"); code != 1 || !strings.Contains(errs, "empty") {
		t.Errorf("an empty template: exit %d, %s", code, errs)
	}
	if code, out, _ := simplebenchMain(t, "", "list"); code != 0 || !strings.Contains(out, "preallocation") {
		t.Errorf("list: %s", out)
	}
	if code, out, _ := simplebenchMain(t, "", "print", "convert"); code != 0 || !strings.Contains(out, "{{bin}} convert") {
		t.Errorf("print: %s", out)
	}
}
