package cli

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"byre/internal/testenv"
)

// img runs a command line of qemu-img's verbs in-process.
func img(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return imgContext(t.Context(), args...)
}

func imgContext(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = Main(&Env{Args: append([]string{"qemu-img"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: ctx})
	return code, out.String(), errs.String()
}

// mustImg is img for what must succeed without a word on standard error.
func mustImg(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	code, out, errs := img(t, args...)
	if code != 0 || errs != "" {
		t.Fatalf("%q: exit %d, %s", args, code, errs)
	}
	return out
}

// folder makes paths in a fresh folder.
func folder(t *testing.T) func(name string) string {
	dir := t.TempDir()
	return func(name string) string { return filepath.Join(dir, name) }
}

// convertSources makes images with all kinds of contents by the real tools: name -> path.
func convertSources(t *testing.T, p func(string) string) map[string]string {
	t.Helper()
	qemuImg := func(args ...string) { t.Helper(); testenv.Run(t, "qemu-img", args...) }
	qemuIO := func(args ...string) { t.Helper(); testenv.Run(t, "qemu-io", args...) }
	out := map[string]string{}
	base := p("base.raw")
	if err := os.WriteFile(base, bytes.Repeat([]byte("base"), 700<<10/4), 0o666); err != nil {
		t.Fatal(err)
	}
	out["raw"] = base
	for name, o := range map[string]string{
		"v2": "compat=0.10", "v3": "", "512": "cluster_size=512", "2M": "cluster_size=2M", "extended": "extended_l2=on,cluster_size=64k",
		"zstd": "compression_type=zstd", "data file": "data_file=" + p("data"), "1 bit": "refcount_bits=1",
	} {
		img := p(name + ".qcow2")
		if o == "" {
			qemuImg("create", "-q", "-f", "qcow2", img, "3M")
		} else {
			qemuImg("create", "-q", "-f", "qcow2", "-o", o, img, "3M")
		}
		args := []string{"-f", "qcow2", "-c", "write -P 1 0 70k", "-c", "write -P 2 300k 3k", "-c", "write -P 3 2303k 130k", "-c", "discard 64k 64k"}
		if name != "v2" {
			args = append(args, "-c", "write -z 128k 100k", "-c", "write -P 0 1M 20k")
		}
		if name != "data file" && name != "2M" && name != "512" {
			args = append(args, "-c", "write -c -P 4 512k 64k", "-c", "write -c -P 5 576k 64k")
		}
		qemuIO(append(args, img)...)
		out[name] = img
	}
	qemuImg("create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", p("mid.qcow2"), "4M")
	qemuIO("-f", "qcow2", "-c", "write -P 7 500k 300k", "-c", "write -z 64k 64k", p("mid.qcow2"))
	qemuImg("create", "-q", "-f", "qcow2", "-b", p("mid.qcow2"), "-F", "qcow2", p("top.qcow2"), "2M")
	qemuIO("-f", "qcow2", "-c", "write -P 8 0 64k", "-c", "write -P 9 1M 64k", p("top.qcow2"))
	out["chain"] = p("top.qcow2")
	qemuImg("create", "-q", "-f", "qcow2", p("empty.qcow2"), "5M")
	out["empty"] = p("empty.qcow2")
	if err := os.WriteFile(p("odd.raw"), []byte("no whole sector"), 0o666); err != nil {
		t.Fatal(err)
	}
	out["odd raw"] = p("odd.raw")
	return out
}

// sameFiles fails unless two files hold the same bytes.
func sameFiles(t *testing.T, got, want string) {
	t.Helper()
	g, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g, w) {
		t.Fatalf("%s and %s differ (%d and %d bytes)", got, want, len(g), len(w))
	}
}

// convertTests run on one set of images made by the real tools.
var convertTests = map[string]func(t *testing.T, p func(string) string, sources map[string]string){
	"gives what the real one gives":           convertToRaw,
	"concatenates its inputs":                 convertConcatenates,
	"leaves what lies behind":                 convertIntoExisting,
	"refuses to write what it reads":          convertRefusesItself,
	"leaves no target when interrupted":       convertInterrupted,
	"leaves a target that is too small alone": convertTooSmall,
	"follows no reference if untrusted":       convertUntrusted,
	"compares as the real one does":           compareLikeReal,
	"makes qcow2 images that are sound":       convertToQCOW2,
}

func TestConvertOfImagesMadeByTheRealTools(t *testing.T) {
	sources := convertSources(t, folder(t))
	for name, test := range convertTests {
		t.Run(name, func(t *testing.T) { test(t, folder(t), sources) })
	}
}

func convertToRaw(t *testing.T, p func(string) string, sources map[string]string) {
	for name, src := range sources {
		testenv.Run(t, "qemu-img", "convert", "-O", "raw", src, p(name))
	}
	for _, args := range []string{"", "-S 0", "-S 64k", "-W -m 3", "-C", "-t none -T none", "-t writeback", "-t directsync", "-r 100M", "-S 512 -m 1"} {
		for name, src := range sources {
			t.Run(name+" "+args, func(t *testing.T) {
				own := p("own.raw")
				os.Remove(own)
				mustImg(t, append(append([]string{"convert", "-O", "raw"}, strings.Fields(args)...), src, own)...)
				sameFiles(t, own, p(name))
			})
		}
	}
}

func convertConcatenates(t *testing.T, p func(string) string, s map[string]string) {
	inputs := []string{s["v3"], s["chain"], s["odd raw"], s["zstd"], s["raw"]}
	testenv.Run(t, "qemu-img", append(append([]string{"convert", "-O", "raw"}, inputs...), p("real"))...)
	mustImg(t, append(append([]string{"convert"}, inputs...), p("own"))...)
	sameFiles(t, p("own"), p("real"))
}

func TestConvertPrintsTheProgressOfTheRealOne(t *testing.T) {
	p := folder(t)
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", p("v3"), "64M")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 128k", "-c", "write -P 2 1M 5k", "-c", "write -z 2M 256k",
		"-c", "write -z -u 3M 64k", "-c", "write -c -P 3 4M 64k", "-c", "write -c -P 4 4160k 64k", "-c", "discard 64k 64k", p("v3"))
	want := "    (0.00/100%)\r    (32.00/100%)\r    (36.00/100%)\r    (68.00/100%)\r    (100.00/100%)\r    (100.00/100%)\r\n"
	for _, flag := range []string{"-p", "--progress", "--progress=plain"} {
		if out := mustImg(t, "convert", flag, "-O", "raw", p("v3"), p("o")); out != want {
			t.Errorf("%s: %q\nwant %q", flag, out, want)
		}
	}
	for _, flags := range []string{"", "-q -p", "--progress=auto", "--progress=none"} {
		if out := mustImg(t, append(append([]string{"convert"}, strings.Fields(flags)...), p("v3"), p("o"))...); out != "" {
			t.Errorf("%s: printed %q", flags, out)
		}
	}
	out := mustImg(t, "convert", "-p", "-S", "0", p("v3"), p("o"))
	if !strings.HasSuffix(out, "(100.00/100%)\r\n") || strings.Count(out, "\r") < 50 {
		t.Errorf("with everything allocated: %q", out)
	}
}

func convertIntoExisting(t *testing.T, p func(string) string, s map[string]string) {
	old := bytes.Repeat([]byte{0xab}, 6<<20)
	for _, args := range []string{"", "-t none", "-W", "-S 0"} {
		if err := os.WriteFile(p("t"), old, 0o666); err != nil {
			t.Fatal(err)
		}
		mustImg(t, append(append([]string{"convert", "-n", "-O", "raw"}, strings.Fields(args)...), s["v3"], p("t"))...)
		testenv.Run(t, "qemu-img", "convert", "-O", "raw", s["v3"], p("real"))
		got, err := os.ReadFile(p("t"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(p("real"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append(want, old[len(want):]...)) {
			t.Errorf("%q: wrong contents", args)
		}
	}
}

func convertRefusesItself(t *testing.T, p func(string) string, s map[string]string) {
	base, mid, data := s["raw"], filepath.Join(filepath.Dir(s["raw"]), "mid.qcow2"), filepath.Join(filepath.Dir(s["raw"]), "data")
	for _, err := range []error{os.Link(base, p("hard")), os.Symlink(mid, p("soft"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for src, targets := range map[string][]string{
		s["chain"]:     {s["chain"], p("soft"), p("hard"), base, "file:" + base},
		s["data file"]: {data},
		s["raw"]:       {p("hard")},
	} {
		for _, target := range targets {
			path := strings.TrimPrefix(target, "file:")
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range [][]string{nil, {"-n"}} {
				code, _, errs := img(t, append(append([]string{"convert", "-U"}, n...), "-O", "raw", src, target)...)
				if code != 1 || !strings.Contains(errs, "same file") {
					t.Errorf("%s to %s: exit %d, %s", src, target, code, errs)
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s was changed", path)
			}
		}
	}
}

// broken makes an image whose second half cannot be read.
func broken(t *testing.T, p func(string) string) string {
	t.Helper()
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", p("broken"), "2M")
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 2M", p("broken"))
	info, err := os.Stat(p("broken"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p("broken"), info.Size()-1<<20); err != nil {
		t.Fatal(err)
	}
	return p("broken")
}

func TestAFailedConversionLeavesNoTargetThatItMade(t *testing.T) {
	p := folder(t)
	src := broken(t, p)
	code, out, errs := img(t, "convert", "-p", src, p("new"))
	if code != 1 || !strings.HasPrefix(errs, "qemu-img: ") || !strings.HasSuffix(out, "\n") {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	if _, err := os.Lstat(p("new")); !os.IsNotExist(err) {
		t.Errorf("the target is still there: %v", err)
	}
	for _, n := range [][]string{nil, {"-n"}} {
		if err := os.WriteFile(p("old"), make([]byte, 3<<20), 0o666); err != nil {
			t.Fatal(err)
		}
		code, _, errs := img(t, append(append([]string{"convert"}, n...), "-O", "raw", src, p("old"))...)
		if code != 1 || !strings.Contains(errs, p("old")+"' is incomplete") {
			t.Errorf("%v: exit %d, %s", n, code, errs)
		}
		if _, err := os.Lstat(p("old")); err != nil {
			t.Errorf("%v: a target that was there before is gone: %v", n, err)
		}
	}
}

func TestSalvageGoesOnAfterReadErrors(t *testing.T) {
	p := folder(t)
	src := broken(t, p)
	code, _, errs := img(t, "convert", "--salvage", src, p("o"))
	if code != 0 || !strings.Contains(errs, "1048576 bytes at offset 1048576") {
		t.Fatalf("exit %d, %s", code, errs)
	}
	got, err := os.ReadFile(p("o"))
	if err != nil || !bytes.Equal(got, append(bytes.Repeat([]byte{1}, 1<<20), make([]byte, 1<<20)...)) {
		t.Fatalf("wrong contents, %v", err)
	}
}

func convertInterrupted(t *testing.T, p func(string) string, s map[string]string) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if _, err := os.Stat(p("o")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	code, _, errs := imgContext(ctx, "convert", "-r", "1k", s["v3"], p("o"))
	if code != 1 || !strings.Contains(errs, "interrupted") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, err := os.Lstat(p("o")); !os.IsNotExist(err) {
		t.Errorf("the target is still there: %v", err)
	}
}

func TestConvertOfASnapshot(t *testing.T) {
	p := folder(t)
	src := p("s.qcow2")
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", src, "1M")
	for i, name := range []string{"first", "second", "1"} {
		testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -P %d 0 128k", i+1), src)
		testenv.Run(t, "qemu-img", "snapshot", "-c", name, src)
	}
	testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 9 0 1M", src)
	for param, want := range map[string]byte{
		"first": 1, "2": 2, "second": 2, "1": 1, "snapshot.id=2": 2, "snapshot.name=1": 3, "snapshot.id=3,snapshot.name=1": 3,
	} {
		mustImg(t, "convert", "-l", param, src, p("o"))
		got, err := os.ReadFile(p("o"))
		if err != nil || len(got) != 1<<20 || got[0] != want || got[128<<10] != 0 {
			t.Errorf("-l %s: %d bytes, the first is %d, %v", param, len(got), got[0], err)
		}
	}
	for _, param := range []string{"none", "snapshot.id=first", "snapshot.id=1,snapshot.name=second", "snapshot.date=1"} {
		if code, _, errs := img(t, "convert", "-l", param, src, p("o2")); code != 1 || errs == "" {
			t.Errorf("-l %s: exit %d, %s", param, code, errs)
		}
	}
	if _, err := os.Lstat(p("o2")); !os.IsNotExist(err) {
		t.Error("a target was made for a snapshot that is not there")
	}
}

func TestConvertRefusesWhatDoesNotGoTogether(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("a"), make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"-C -c":                   "-C",
		"-C -S 4k":                "-C",
		"--target-image-opts":     "-n",
		"--target-is-zero":        "-n",
		"-n -o preallocation=off": "-o",
		"-B x -F raw":             "backing",
		"-F raw":                  "-F",
		"-c":                      "-c",
		"--bitmaps":               "bitmaps",
		"--skip-broken-bitmaps":   "--bitmaps",
		"-S 3":                    "multiple of 512",
		"-S 1G":                   "multiple of 512",
		"-S x":                    "sparse size",
		"-m 0":                    "1 to 16",
		"-m 17":                   "1 to 16",
		"-m x":                    "1 to 16",
		"-r x":                    "rate",
		"-t x":                    "cache",
		"-T x":                    "cache",
		"-O nonsense":             "nonsense",
		"-o nonsense=1":           "nonsense",
		"-l x":                    "snapshot",
		"--progress=x":            "progress",
		"--image-opts -f raw":     "image-opts",
		"-o preallocation=sparse": "preallocation",
		"--nonsense":              "nonsense",
		"-o backing_file=x":       "backing",
		"--target-image-opts -n":  "Could not open",
	} {
		code, _, errs := img(t, append(append([]string{"convert"}, strings.Fields(args)...), p("a"), p("o"))...)
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
		if _, err := os.Lstat(p("o")); !os.IsNotExist(err) {
			t.Fatalf("%s: made a target", args)
		}
	}
	for _, args := range []string{"convert", "convert " + p("a")} {
		if code, _, errs := img(t, strings.Fields(args)...); code != 1 || !strings.Contains(errs, "Expecting") {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := img(t, "convert", "-l", "x", p("a"), p("a"), p("o")); code != 1 || !strings.Contains(errs, "single source") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := img(t, "convert", p("missing"), p("o")); code != 1 || errs != "qemu-img: Could not open '"+p("missing")+"': No such file or directory\n" {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestConvertListsCreationOptions(t *testing.T) {
	out := mustImg(t, "convert", "-O", "raw", "-o", "help")
	for _, want := range []string{"Supported options:\n", "  preallocation=<str>    - ", "  size=<size>            - "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func convertTooSmall(t *testing.T, p func(string) string, s map[string]string) {
	old := bytes.Repeat([]byte{1}, 1<<20)
	if err := os.WriteFile(p("t"), old, 0o666); err != nil {
		t.Fatal(err)
	}
	code, _, errs := img(t, "convert", "-n", "-O", "raw", s["v3"], p("t"))
	if code != 1 || !strings.Contains(errs, "smaller than the input") || strings.Contains(errs, "incomplete") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if got, err := os.ReadFile(p("t")); err != nil || !bytes.Equal(got, old) {
		t.Error("the target was changed")
	}
}

func convertUntrusted(t *testing.T, p func(string) string, s map[string]string) {
	code, _, errs := img(t, "convert", "--untrusted", s["chain"], p("o"))
	if code != 1 || !strings.Contains(errs, "mid.qcow2") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, err := os.Lstat(p("o")); !os.IsNotExist(err) {
		t.Error("made a target")
	}
}

func convertToQCOW2(t *testing.T, p func(string) string, s map[string]string) {
	for _, args := range []string{"", "-c", "-c -o compression_type=zstd", "-o cluster_size=4k,extended_l2=off", "-o extended_l2=on", "-W", "-c -W",
		"-o compat=0.10", "-S 0", "-S 64k", "-t none", "-c -t writeback -o cluster_size=512", "-o preallocation=metadata", "-c -m 1 -o cluster_size=2M"} {
		names := []string{"v3"}
		if args == "" || args == "-c" || args == "-S 0" {
			names = []string{"chain", "odd raw", "empty"}
		}
		for _, name := range names {
			line := append(append([]string{"convert", "-O", "qcow2"}, strings.Fields(args)...), s[name], p("o"))
			mustImg(t, line...)
			if code, out := realImg(t, "compare", s[name], p("o")); code != 0 {
				t.Errorf("%s %s: %s", name, args, out)
			}
			if code, out := realImg(t, "check", p("o")); code != 0 {
				t.Errorf("%s %s: check exits with %d, %s", name, args, code, out)
			}
			os.Remove(p("o"))
		}
	}
}

func TestAFailedConversionLeavesNoDataFileThatItMade(t *testing.T) {
	p := folder(t)
	src := broken(t, p)
	if code, _, errs := img(t, "convert", "-O", "qcow2", "-o", "data_file="+p("data"), src, p("new")); code != 1 {
		t.Errorf("exit %d, %s", code, errs)
	}
	for _, name := range []string{"new", "data"} {
		if _, err := os.Lstat(p(name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func TestBitmapsAreNotLeftBehindInSilence(t *testing.T) {
	p := folder(t)
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", p("a"), "1M")
	mustImg(t, "convert", "--bitmaps", "-O", "qcow2", p("a"), p("o"))
	testenv.Run(t, "qemu-img", "bitmap", "--add", p("a"), "b0")
	if code, _, errs := img(t, "convert", "--bitmaps", "-O", "qcow2", p("a"), p("o")); code != 1 || !strings.Contains(errs, "1 persistent bitmaps") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestConvertOntoABackingFile(t *testing.T) {
	p := folder(t)
	s := convertSources(t, p)
	base := filepath.Join(filepath.Dir(s["chain"]), "mid.qcow2")
	for _, args := range []string{"-B " + base + " -F qcow2", "-o backing_file=" + base + ",backing_fmt=qcow2", "-c -B " + base + " -F qcow2"} {
		mustImg(t, append(append([]string{"convert", "-O", "qcow2"}, strings.Fields(args)...), s["chain"], p("o"))...)
		if code, out := realImg(t, "compare", s["chain"], p("o")); code != 0 {
			t.Errorf("%s: %s", args, out)
		}
		own, real := mustImg(t, "map", "--output=json", p("o")), mustImg(t, "map", "--output=json", s["chain"])
		if !strings.Contains(args, "-c") && strings.Count(own, `"depth": 0`) != strings.Count(real, `"depth": 0`) {
			t.Errorf("%s: the layers are not the same:\n%s\n%s", args, own, real)
		}
	}
	// Into an overlay that is there already, zeros have to hide what its backing file has.
	mustImg(t, "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", p("overlay"))
	mustImg(t, "convert", "-n", "-O", "qcow2", s["v3"], p("overlay"))
	testenv.Run(t, "qemu-img", "convert", "-O", "raw", s["v3"], p("want"))
	testenv.Run(t, "qemu-img", "convert", "-O", "raw", p("overlay"), p("got"))
	got, err := os.ReadFile(p("got"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(p("want"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:len(want)], want) {
		t.Error("the backing file shows through")
	}
}

func TestTheSameContentsGiveTheSameFile(t *testing.T) {
	p := folder(t)
	data := make([]byte, 24<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data { // text, noise and zeros, in pieces of 32 KiB
		switch i >> 15 % 5 {
		case 0, 3:
			data[i] = "some words, again and again; "[i%29]
		case 1:
			data[i] = byte(r.Uint32())
		}
	}
	if err := os.WriteFile(p("a"), data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"", "-c", "-c -o compression_type=zstd", "-c -o cluster_size=4k", "-S 0", "-o extended_l2=on"} {
		for i := range 4 {
			out := p(fmt.Sprint("o", i))
			mustImg(t, append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, strings.Fields(args)...), p("a"), out)...)
			if i > 0 {
				sameFiles(t, out, p("o0"))
			}
		}
		if code, out := realImg(t, "compare", "-f", "raw", "-F", "qcow2", p("a"), p("o0")); code != 0 {
			t.Errorf("%s: %s", args, out)
		}
	}
}
