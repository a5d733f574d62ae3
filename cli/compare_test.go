package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// realImg runs the real qemu-img.
func realImg(t *testing.T, args ...string) (code int, stdout string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "qemu-img"), args...)
	out, err := cmd.Output()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// steps are all lines of progress but those of 0 and 100 percent.
var steps = regexp.MustCompile(`    \([1-9]?[0-9]\.[0-9]*[1-9][0-9]*/100%\)\r`)

func compareLikeReal(t *testing.T, p func(string) string, sources map[string]string) {
	var images []string
	for _, name := range []string{"v3", "chain", "extended", "odd raw"} {
		src := sources[name]
		testenv.Run(t, "qemu-img", "convert", "-O", "raw", src, p(name+".copy"))
		images = append(images, src, p(name+".copy"))
	}
	testenv.Run(t, "qemu-img", "convert", "-O", "raw", sources["v3"], p("longer"))
	testenv.Run(t, "qemu-img", "resize", "-q", "-f", "raw", p("longer"), "5M")
	testenv.Run(t, "qemu-img", "convert", "-O", "raw", p("longer"), p("longer and more"))
	testenv.Run(t, "qemu-io", "-f", "raw", "-c", "write -P 3 4000k 1k", p("longer and more"))
	images = append(images, p("longer"), p("longer and more"), p("missing"))
	for i, a := range images {
		for _, b := range images[i:] {
			wantCode, want := realImg(t, "compare", a, b)
			code, out, errs := img(t, "compare", a, b)
			if code != wantCode || out != want || (errs != "") != (code > 1) {
				t.Errorf("%s and %s: exit %d, %q, %s\nwant %d, %q", a, b, code, out, errs, wantCode, want)
			}
		}
	}
	for _, args := range []string{"-q", "-p -q", "-p", "-s", "-T none", "-f qcow2 -F raw", "-U"} {
		for _, pair := range [][2]string{{sources["v3"], p("v3.copy")}, {sources["v3"], p("longer")}, {sources["v3"], p("longer and more")}} {
			line := append(append([]string{"compare"}, strings.Fields(args)...), pair[0], pair[1])
			wantCode, want := realImg(t, line...)
			code, out, _ := img(t, line...)
			out, want = steps.ReplaceAllString(out, ""), steps.ReplaceAllString(want, "") // how many depends on the pieces
			if code != wantCode || out != want {
				t.Errorf("%s of %v: exit %d, %q, want %d, %q", args, pair, code, out, wantCode, want)
			}
		}
	}
}

func TestCompareTellsErrorsFromDifferencesByItsExitCode(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("a"), make([]byte, 4<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	src := broken(t, p)
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", p("no L2"), "1M")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write 0 1M", p("no L2"))
	f, err := os.OpenFile(p("no L2"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x80, 0, 0, 0, 0, 1, 0, 1}, 3<<16); err != nil { // an L2 table at an odd place
		t.Fatal(err)
	}
	f.Close()
	ones := p("ones")
	if err := os.WriteFile(ones, []byte(strings.Repeat("\x01", 2<<20)), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want int
	}{
		{p("a"), 2}, {"--nonsense " + p("a") + " " + p("a"), 2}, {"-T x " + p("a") + " " + p("a"), 2},
		{p("a") + " " + p("missing"), 2}, {"-f qcow2 " + p("a") + " " + p("a"), 2},
		{src + " " + ones, 4}, {"-q " + src + " " + ones, 4}, {src + " " + p("a"), 1},
	} {
		if code, _, errs := img(t, append([]string{"compare"}, strings.Fields(c.args)...)...); code != c.want || (errs == "") != (c.want == 1) {
			t.Errorf("%s: exit %d, %s", c.args, code, errs)
		}
	}
	if code, _, errs := img(t, "compare", p("no L2"), ones); code != 3 || errs == "" {
		t.Errorf("an L2 table that cannot be read: exit %d, %s", code, errs)
	}
}
