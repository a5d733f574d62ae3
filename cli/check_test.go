package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// checkImages lets the real tools make images in the current folder, sound and broken, and lists them.
func checkImages(t *testing.T) []string {
	t.Helper()
	run := func(args ...string) { testenv.Run(t, args[0], args[1:]...) }
	create := func(name string, args ...string) {
		run(append(append([]string{"qemu-img", "create", "-q", "-f", "qcow2"}, args...), name, "1M")...)
	}
	create("leak")
	run("qemu-io", "-f", "qcow2", "-c", "write 0 128k", "leak")
	base, err := os.ReadFile("leak")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, at int64, v ...byte) {
		b := bytes.Clone(base)
		copy(b[at:], v)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sound", 0)
	write("leak", 0x40000, make([]byte, 8)...)
	write("lost-count", 0x2000a, 0, 0)
	write("two-leaks", 0x2000a, 0, 7, 0, 9)
	write("low-count", 0x40008, 0x80, 0, 0, 0, 0, 5, 0, 0)
	write("reserved", 0x40000, 0x82, 0, 0, 0, 0, 5, 0, 0)
	write("unaligned", 0x40000, 0x80, 0, 0, 0, 0, 5, 2, 0)
	write("unaligned-zero", 0x40000, 0x80, 0, 0, 0, 0, 5, 2, 1)
	write("beyond", 0x40000, 0x80, 0, 0, 0, 7, 0, 0, 0)
	write("not-copied", 0x40000, 0, 0, 0, 0, 0, 5, 0, 0)
	write("l1-not-copied", 0x30000, 0, 0, 0, 0, 0, 4, 0, 0)
	write("corrupt-bit", 72, 0, 0, 0, 0, 0, 0, 0, 2)
	write("block-shared", 0x10000, 0, 0, 0, 0, 0, 4, 0, 0)
	create("mixed")
	run("qemu-io", "-f", "qcow2", "-c", "write 0 64k", "-c", "write 512k 64k", "-c", "write -c 256k 64k", "-c", "write 128k 64k", "mixed")
	run("qemu-img", "snapshot", "-c", "s", "mixed")
	run("qemu-io", "-f", "qcow2", "-c", "write 0 4k", "mixed")
	if err := os.WriteFile("raw", make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"sound", "leak", "lost-count", "two-leaks", "low-count", "reserved", "unaligned", "unaligned-zero", "beyond",
		"not-copied", "l1-not-copied", "corrupt-bit", "block-shared", "mixed", "raw"}
}

func TestCheckPrintsWhatTheRealOnePrints(t *testing.T) {
	t.Chdir(t.TempDir())
	images := checkImages(t)
	real := testenv.Tool(t, "qemu-img")
	for _, name := range images {
		original, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := [][]string{{}, {"-r", "leaks"}, {"-r", "all"}, {"-r", "all", "--output=json"}}
		if name == "two-leaks" {
			lines = append(lines, []string{"--output=json"}, []string{"-q"}, []string{"-q", "-r", "all"}, []string{"-U", "-f", "qcow2"}, []string{"-T", "none"})
		}
		for _, args := range lines {
			args = append(append([]string{"check"}, args...), name)
			line := strings.Join(args, " ")
			cmd := exec.Command(real, args...)
			var wantOut, wantErr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &wantOut, &wantErr
			wantCode := 0
			var ee *exec.ExitError
			if err := cmd.Run(); errors.As(err, &ee) {
				wantCode = ee.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, original, 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := Main(&Env{Args: append([]string{"qemu-img"}, args...), Stdout: &out, Stderr: &errs, Context: context.Background()})
			if err := os.WriteFile(name, original, 0o600); err != nil {
				t.Fatal(err)
			}
			if code != wantCode || out.String() != wantOut.String() || withoutErrors(errs.String()) != withoutErrors(wantErr.String()) {
				t.Errorf("%s\nexit %d:\n%s%s\nthe real tool exits %d:\n%s%s", line, code, out.String(), errs.String(), wantCode, wantOut.String(), wantErr.String())
			}
		}
	}
}

// withoutErrors leaves out the sentences behind the program's name: they are its own.
func withoutErrors(s string) string {
	var b strings.Builder
	for l := range strings.Lines(s) {
		if strings.HasPrefix(l, "qemu-img: ") {
			l = "qemu-img: <error>\n"
		}
		b.WriteString(l)
	}
	return b.String()
}

func TestCheckWithoutRepairLeavesTheFileAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range checkImages(t) {
		before, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		stat, _ := os.Stat(name)
		var out, errs bytes.Buffer
		Main(&Env{Args: []string{"byre", "check", "-p", name}, Stdout: &out, Stderr: &errs})
		after, _ := os.ReadFile(name)
		now, _ := os.Stat(name)
		if !bytes.Equal(before, after) || !stat.ModTime().Equal(now.ModTime()) {
			t.Errorf("%s was changed", name)
		}
		if name == "sound" && !strings.Contains(out.String(), "(100.00/100%)\r") {
			t.Errorf("no progress in %q", out.String())
		}
	}
}

func TestCheckTakesOptionStringsAndRefusesWrongOnes(t *testing.T) {
	t.Chdir(t.TempDir())
	checkImages(t)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--image-opts", "driver=qcow2,file.driver=file,file.filename=sound"}, 0},
		{[]string{`json:{"driver":"qcow2","file":{"driver":"file","filename":"leak"}}`}, 3},
		{[]string{"-f", "raw", "sound"}, 63},
		{[]string{"-r", "some", "sound"}, 1},
		{[]string{"--output=xml", "sound"}, 1},
		{[]string{"-f", "qcow2", "raw"}, 1},
		{[]string{"absent"}, 1},
		{nil, 1},
		{[]string{"sound", "leak"}, 1},
	} {
		var out, errs bytes.Buffer
		code := Main(&Env{Args: append([]string{"byre", "check"}, c.args...), Stdout: &out, Stderr: &errs})
		if code != c.code {
			t.Errorf("%q: exit %d, want %d: %s%s", c.args, code, c.code, out.String(), errs.String())
		}
		if code == 1 && !strings.HasPrefix(errs.String(), "byre: ") {
			t.Errorf("%q: no error is printed: %q", c.args, errs.String())
		}
	}
}

func TestCheckRepairsAnImageThatCannotBeOpened(t *testing.T) {
	t.Chdir(t.TempDir())
	checkImages(t)
	b, err := os.ReadFile("sound")
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(b[48:], 0)
	binary.BigEndian.PutUint32(b[56:], 0)
	if err := os.WriteFile("i", b, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := Main(&Env{Args: []string{"byre", "info", "i"}, Stdout: &out, Stderr: &errs}); code != 1 {
		t.Fatalf("an image without a refcount table opens: %d", code)
	}
	if code := Main(&Env{Args: []string{"byre", "check", "-r", "all", "i"}, Stdout: &out, Stderr: &errs}); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out.String(), errs.String())
	}
	testenv.Run(t, "qemu-img", "check", "i")
}
