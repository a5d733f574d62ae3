package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/storage/mem"
)

// memImage gives a device in memory with contents.
func memImage(t testing.TB, contents []byte) *block.Device {
	t.Helper()
	d := block.NewDevice(mem.New(int64(len(contents))))
	if _, err := d.WriteAt(contents, 0); err != nil && len(contents) > 0 {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// contents reads a device whole.
func contents(t testing.TB, d *block.Device) []byte {
	t.Helper()
	b := make([]byte, d.Size())
	if _, err := d.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

// run checks and gathers the lines.
func run(t testing.TB, d *block.Device, o Options) (Result, []string, error) {
	t.Helper()
	var lines []string
	o.Report = func(f *Finding) {
		if f.Kind == 0 || f.String() == "" {
			t.Errorf("a finding without words: %+v", *f)
		}
		lines = append(lines, f.String())
	}
	r, err := Run(context.Background(), d, o)
	return r, lines, err
}

// exitCode is what the command line makes of a result.
func exitCode(r Result, err error) int {
	switch {
	case err != nil || r.Errors > 0:
		return 1
	case r.Corruptions > 0:
		return 2
	case r.Leaks > 0:
		return 3
	}
	return 0
}

// oracle is what the real tool says.
type oracle struct {
	exit  int
	lines []string
	json  map[string]any
}

func (o oracle) num(key string) int64 {
	f, _ := o.json[key].(float64)
	return int64(f)
}

// realCheck runs qemu-img check on a file.
func realCheck(t testing.TB, file string, args ...string) oracle {
	t.Helper()
	tool := testenv.Tool(t, "qemu-img")
	cmd := exec.Command(tool, append(append([]string{"check", "--output=json", "-f", "qcow2"}, args...), file)...)
	cmd.Dir = filepath.Dir(file) // it looks for a data file in the current folder
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var o oracle
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		o.exit = ee.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(stderr.String()) {
		o.lines = append(o.lines, strings.TrimSuffix(l, "\n"))
	}
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &o.json); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
	}
	return o
}

// writeFile puts bytes into a file of the test's own folder.
func writeFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// qemu runs qemu-img or qemu-io commands in a folder.
func qemu(t testing.TB, dir string, args ...string) {
	t.Helper()
	for try := 0; ; try++ {
		cmd := exec.Command(testenv.Tool(t, args[0]), args[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		// On a busy machine the real tool cannot calibrate its key derivation, and gives up.
		if try == 20 || !bytes.Contains(out, []byte("accurate CPU usage")) {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}

// flavour is a kind of image that the real tools make.
type flavour struct {
	name   string
	create []string // options of create
	size   string
	io     []string // qemu-io commands
	img    [][]string
}

var flavours = []flavour{
	{"default", nil, "4M", []string{"write -P 1 0 200k", "write -z 1M 256k", "write -z -u 2M 128k", "write -c -P 3 3M 64k", "write -c -P 4 3136k 64k", "discard 64k 64k"}, nil},
	{"v2", []string{"compat=0.10"}, "4M", []string{"write -P 1 0 200k", "write -c -P 3 3M 64k"}, [][]string{{"snapshot", "-c", "a"}}},
	{"extended", []string{"extended_l2=on,cluster_size=16k"}, "2M", []string{"write -P 1 0 5k", "write -P 2 100k 100k", "write -z 40k 3k", "write -c -P 3 1M 16k"}, nil},
	{"small clusters", []string{"cluster_size=512"}, "1M", []string{"write -P 1 0 90k", "write -c -P 3 512k 512", "write -z 600k 9k"}, [][]string{{"snapshot", "-c", "a"}, {"snapshot", "-c", "b"}}},
	{"one bit", []string{"refcount_bits=1,cluster_size=4k"}, "2M", []string{"write -P 1 0 90k", "write -c -P 3 512k 4k"}, nil},
	{"wide counts", []string{"refcount_bits=64,cluster_size=4k"}, "2M", []string{"write -P 1 0 90k", "write -c -P 3 512k 4k"}, [][]string{{"snapshot", "-c", "a"}, {"snapshot", "-c", "b"}, {"snapshot", "-d", "a"}}},
	{"4 bit", []string{"refcount_bits=4,cluster_size=1k,lazy_refcounts=on"}, "2M", []string{"write -P 1 0 90k", "write -P 5 1M 30k"}, [][]string{{"snapshot", "-c", "a"}}},
	{"data file", []string{"data_file=DATA"}, "2M", []string{"write -P 1 0 200k", "write -z 1M 64k"}, nil},
	{"bitmaps", []string{"cluster_size=4k"}, "2M", []string{"write -P 1 0 90k"}, [][]string{{"bitmap", "--add", "b0"}, {"bitmap", "--add", "--disable", "b1"}}},
	{"preallocated", []string{"preallocation=metadata,cluster_size=4k"}, "1M", []string{"write -P 1 0 90k"}, nil},
	{"luks", []string{"encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10,cluster_size=32k"}, "1M", nil, nil},
}

// makeImage lets the real tools make an image and returns its bytes. The folder is there as long as the test.
func makeImage(t testing.TB, f flavour) []byte {
	t.Helper()
	dir := t.TempDir()
	opts := strings.ReplaceAll(strings.Join(f.create, ","), "DATA", "data.raw")
	args := []string{"qemu-img", "create", "-q", "-f", "qcow2"}
	if strings.Contains(opts, "luks") {
		args = append(args, "--object", "secret,id=s,data=x")
	}
	if opts != "" {
		args = append(args, "-o", opts)
	}
	qemu(t, dir, append(args, "i.qcow2", f.size)...)
	if len(f.io) > 0 {
		args = []string{"qemu-io", "-f", "qcow2"}
		for _, c := range f.io {
			args = append(args, "-c", c)
		}
		qemu(t, dir, append(args, "i.qcow2")...)
	}
	for _, v := range f.img {
		args = append([]string{"qemu-img"}, v...)
		if v[0] == "bitmap" {
			last := args[len(args)-1]
			args = append(args[:len(args)-1], "i.qcow2", last)
		} else {
			args = append(args, "i.qcow2")
		}
		qemu(t, dir, args...)
	}
	b, err := os.ReadFile(filepath.Join(dir, "i.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSoundImagesAreJudgedAsTheRealToolDoes(t *testing.T) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			b := makeImage(t, f)
			want := realCheckBytes(t, f, b)
			for _, level := range []Level{Nothing, Leaks, All} {
				d := memImage(t, b)
				r, lines, err := run(t, d, Options{Repair: level})
				if err != nil || !r.Clean() || len(lines) > 0 {
					t.Fatalf("level %d: %+v %v %q", level, r, err, lines)
				}
				if diff := compareResults(r, want); diff != "" {
					t.Fatal(diff, want.lines)
				}
				if !bytes.Equal(contents(t, d), b) {
					t.Fatalf("level %d changed a sound image", level)
				}
			}
		})
	}
}

// realCheckBytes judges bytes; a data file, if the flavour has one, stands beside them.
func realCheckBytes(t testing.TB, f flavour, b []byte, args ...string) oracle {
	t.Helper()
	dir := t.TempDir()
	p := filepath.Join(dir, "i.qcow2")
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data.raw"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "data.raw"), 2<<20); err != nil {
		t.Fatal(err)
	}
	if f.name == "luks" {
		return realCheckOpts(t, p, args...)
	}
	return realCheck(t, p, args...)
}

// realCheckOpts opens an encrypted image, for which the real tool wants the secret even to check.
func realCheckOpts(t testing.TB, p string, args ...string) oracle {
	t.Helper()
	tool := testenv.Tool(t, "qemu-img")
	all := append([]string{"check", "--output=json", "--object", "secret,id=s,data=x"}, args...)
	all = append(all, "--image-opts", "driver=qcow2,encrypt.key-secret=s,file.driver=file,file.filename="+p)
	cmd := exec.Command(tool, all...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var o oracle
	var ee *exec.ExitError
	if err := cmd.Run(); errors.As(err, &ee) {
		o.exit = ee.ExitCode()
	}
	for l := range strings.Lines(stderr.String()) {
		o.lines = append(o.lines, strings.TrimSuffix(l, "\n"))
	}
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &o.json); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// compareResults holds numbers against the real tool's; it returns what differs.
func compareResults(r Result, o oracle) string {
	var diff []string
	for _, v := range []struct {
		key string
		got int64
	}{
		{"corruptions", r.Corruptions}, {"leaks", r.Leaks}, {"check-errors", r.Errors}, {"image-end-offset", r.ImageEnd},
		{"total-clusters", r.TotalClusters}, {"allocated-clusters", r.AllocatedClusters},
		{"fragmented-clusters", r.FragmentedClusters}, {"compressed-clusters", r.CompressedClusters},
	} {
		if want := o.num(v.key); v.got != want {
			diff = append(diff, fmt.Sprintf("%s is %d, the real tool says %d", v.key, v.got, want))
		}
	}
	return strings.Join(diff, "; ")
}
