package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// cell is a kind of image that the real tools make.
type cell struct {
	compat      string
	cluster     int
	refcount    int
	extended    bool
	compression string // "", "zlib", "zstd"
	below       string // "", "raw", "chain", "data"
}

func (c cell) String() string {
	return fmt.Sprintf("%s,%d,%d,%v,%s,%s", c.compat, c.cluster, c.refcount, c.extended, c.compression, c.below)
}

// exists leaves out what the real tools cannot make, and in short runs cells that differ from others in little.
func (c cell) exists() bool {
	switch v2 := c.compat == "0.10"; {
	case v2 && (c.refcount != 16 || c.extended || c.compression == "zstd" || c.below == "data"):
		return false
	case c.extended && c.cluster < 16<<10:
		return false
	case c.below == "data" && c.compression != "":
		return false
	case os.Getenv("BYRE_TEST_LONG") != "":
		return true
	case c.refcount != 16:
		return c.cluster == 4096 && c.below == "" && c.compression == ""
	case c.cluster == 512 || c.cluster == 2<<20:
		return c.compression == "" && c.below == "" || c.compression == "zstd" && c.below == "raw"
	}
	return true
}

func cells() (out []cell) {
	for _, compat := range []string{"0.10", "1.1"} {
		for _, cluster := range []int{512, 4096, 65536, 2 << 20} {
			for _, refcount := range []int{1, 16, 64} {
				for _, extended := range []bool{false, true} {
					for _, compression := range []string{"", "zlib", "zstd"} {
						for _, below := range []string{"", "raw", "chain", "data"} {
							if c := (cell{compat, cluster, refcount, extended, compression, below}); c.exists() {
								out = append(out, c)
							}
						}
					}
				}
			}
		}
	}
	return out
}

// make builds the image x.qcow2 of the cell in the current folder.
func (c cell) make(t *testing.T) {
	t.Helper()
	size := 40 * c.cluster
	opts := fmt.Sprintf("compat=%s,cluster_size=%d,refcount_bits=%d", c.compat, c.cluster, c.refcount)
	if c.extended {
		opts += ",extended_l2=on"
	}
	if c.compression == "zstd" {
		opts += ",compression_type=zstd"
	}
	create := func(name, backing, format, o string) {
		args := []string{"create", "-q", "-f", "qcow2", "-o", o}
		if backing != "" {
			args = append(args, "-b", backing, "-F", format)
		}
		testenv.Run(t, "qemu-img", append(args, name, fmt.Sprint(size))...)
	}
	write := func(name string, cmds ...string) {
		args := []string{"-f", "qcow2"}
		for _, cmd := range cmds {
			args = append(args, "-c", cmd)
		}
		testenv.Run(t, "qemu-io", append(args, name)...)
	}
	cs := c.cluster
	backing, format := "", ""
	switch c.below {
	case "raw", "chain":
		if err := os.WriteFile("base.raw", []byte(strings.Repeat("byre", 30*cs/4)), 0o600); err != nil {
			t.Fatal(err)
		}
		backing, format = "base.raw", "raw"
		if c.compat != "0.10" { // a hole that map can see
			testenv.Run(t, "fallocate", "-p", "-o", fmt.Sprint(8*max(cs, 4096)), "-l", fmt.Sprint(2*max(cs, 4096)), "base.raw")
		}
	case "data":
		opts += ",data_file=data.raw"
	}
	if c.below == "chain" {
		create("low.qcow2", backing, format, opts)
		write("low.qcow2", fmt.Sprintf("write -P 3 %d %d", 4*cs, 3*cs), fmt.Sprintf("write -z %d %d", 9*cs, cs))
		backing, format = "low.qcow2", "qcow2"
	}
	create("x.qcow2", backing, format, opts)
	cmds := []string{fmt.Sprintf("write -P 1 0 %d", cs), fmt.Sprintf("write -P 2 %d 1k", 2*cs), fmt.Sprintf("write -z %d %d", 5*cs, 2*cs),
		fmt.Sprintf("write -z -u %d %d", 8*cs, cs), fmt.Sprintf("write -P 4 %d %d", 20*cs, 3*cs), fmt.Sprintf("discard %d %d", 21*cs, cs)}
	if c.compression != "" {
		cmds = append(cmds, fmt.Sprintf("write -c -P 5 %d %d", 12*cs, cs), fmt.Sprintf("write -c -P 6 %d %d", 13*cs, cs))
	}
	write("x.qcow2", cmds...)
}

var (
	compressedKey = regexp.MustCompile(`, "compressed": (true|false)`)
	childNode     = regexp.MustCompile(`(?m)^ *Child node '[^\n]*\n( +[^\n]*\n)*`)
)

// The differences between the installed release and the one whose output is ours are filtered; nothing else is.
func TestInfoAndMapPrintWhatTheInstalledToolPrints(t *testing.T) {
	testenv.Tool(t, "qemu-img")
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Chdir(t.TempDir())
			c.make(t)
			before := fileStates(t)
			var ours []output
			commands := [][]string{
				{"map", "--output=json", "x.qcow2"},
				{"map", "--output=json", "--start-offset=" + fmt.Sprint(c.cluster+512), "--max-length=" + fmt.Sprint(9*c.cluster), "x.qcow2"},
				{"map", "x.qcow2"},
				{"info", "x.qcow2"},
				{"info", "--backing-chain", "x.qcow2"},
				{"info", "--output=json", "x.qcow2"},
				{"info", "--output=json", "--backing-chain", "x.qcow2"},
			}
			for _, args := range commands {
				code, out, errs := run(t, append([]string{"qemu-img"}, args...)...)
				ours = append(ours, output{code, out, errs})
			}
			if after := fileStates(t); !reflect.DeepEqual(before, after) {
				t.Errorf("reading changed files:\n%v\n%v", before, after)
			}
			for i, args := range commands {
				compareRuns(t, args, ours[i])
			}
		})
	}
}

// output is what a run of ours gave.
type output struct {
	code         int
	stdout, errs string
}

func compareRuns(t *testing.T, args []string, ours output) {
	t.Helper()
	real, err := exec.Command("qemu-img", args...).Output()
	if (ours.code == 0) != (err == nil) {
		t.Errorf("%q: exit %d, the real tool %v; %s", args, ours.code, err, ours.errs)
	}
	if args[0] == "info" && args[1] == "--output=json" {
		var want, got any
		if err := json.Unmarshal(real, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(ours.stdout), &got); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, ours.stdout)
		}
		if !reflect.DeepEqual(stripNewer(got), stripRawFile(want)) {
			t.Errorf("%q says\n%v\nthe real tool\n%v", args, got, want)
		}
		return
	}
	got := childNode.ReplaceAllString(compressedKey.ReplaceAllString(ours.stdout, ""), "")
	if got != string(real) {
		t.Errorf("%q prints\n%s\nthe real tool\n%s", args, got, real)
	}
}

// stripNewer takes out what only the newer release prints.
func stripNewer(v any) any {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			stripNewer(e)
		}
	case map[string]any:
		delete(v, "children")
	}
	return v
}

// stripRawFile takes out what only the older release prints: the storage's facts at a raw image.
func stripRawFile(v any) any {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			stripRawFile(e)
		}
	case map[string]any:
		if s, ok := v["format-specific"].(map[string]any); ok && s["type"] == "file" {
			delete(v, "format-specific")
		}
	}
	return v
}

// fileStates is everything about the files here that reading could change.
func fileStates(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		out[name] = fileState(t, name)
	}
	return out
}
