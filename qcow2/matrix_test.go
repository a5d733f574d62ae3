package qcow2

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"byre/internal/testenv"
)

// cell is one image of the matrix.
type cell struct {
	version  string // compat
	cluster  int
	refcount int
	extended bool
	compress string // "", "zlib", "zstd"
	base     string // "", "raw", "chain", "data"
}

func (c cell) String() string {
	return fmt.Sprintf("%s/cluster=%d/refcount=%d/extended=%v/compress=%s/base=%s", c.version, c.cluster, c.refcount, c.extended, c.compress, c.base)
}

func (c cell) options(dir string) string {
	o := fmt.Sprintf("compat=%s,cluster_size=%d,refcount_bits=%d", c.version, c.cluster, c.refcount)
	if c.extended {
		o += ",extended_l2=on"
	}
	if c.compress == "zstd" {
		o += ",compression_type=zstd"
	}
	if c.base == "data" {
		o += ",data_file=" + filepath.Join(dir, "data.raw")
	}
	return o
}

// fills are qemu-io commands that leave every kind of cluster behind. Sizes
// are in units of the cluster, so that runs meet borders of all kinds.
func (c cell) fills(seed uint64, diskSize int) []string {
	r := rand.New(rand.NewPCG(seed, 7))
	var cmds []string
	for range 24 {
		off := r.IntN(diskSize/512-64) * 512
		n := min((r.IntN(5*c.cluster/512)+1)*512, diskSize-off, 300<<10)
		p := r.IntN(255) + 1
		switch k := r.IntN(10); {
		case k < 5:
			cmds = append(cmds, fmt.Sprintf("write -q -P %d %d %d", p, off, n))
		case k < 7:
			cmds = append(cmds, fmt.Sprintf("write -q -z %d %d", off, n))
		case k < 8:
			cmds = append(cmds, fmt.Sprintf("write -q -z -u %d %d", off, n))
		default:
			cmds = append(cmds, fmt.Sprintf("discard -q %d %d", off, n))
		}
	}
	return cmds
}

// compressed are commands that store compressed clusters where nothing is yet.
func (c cell) compressed(dir string) []string {
	if c.compress == "" || c.base == "data" {
		return nil
	}
	return []string{
		fmt.Sprintf("write -q -c -P 7 0 %d", c.cluster),
		fmt.Sprintf("write -q -c -s %s %d %d", filepath.Join(dir, "noise"), c.cluster, c.cluster),
		fmt.Sprintf("write -q -c -s %s %d %d", filepath.Join(dir, "text"), 2*c.cluster, c.cluster),
		fmt.Sprintf("write -q -c -P 9 %d %d", 3*c.cluster, c.cluster),
		fmt.Sprintf("write -q -c -s %s %d %d", filepath.Join(dir, "text"), 4*c.cluster, c.cluster),
	}
}

// Images of all kinds that the real tools can make read back identical.
func TestImagesOfTheRealToolsReadBackIdentical(t *testing.T) {
	testenv.Tool(t, "qemu-img")
	for _, version := range []string{"0.10", "1.1"} {
		for _, cluster := range []int{512, 4096, 65536, 2 << 20} {
			for _, refcount := range []int{1, 16, 64} {
				for _, extended := range []bool{false, true} {
					for _, compress := range []string{"", "zlib", "zstd"} {
						for _, base := range []string{"", "raw", "chain", "data"} {
							c := cell{version, cluster, refcount, extended, compress, base}
							if c.worth() {
								t.Run(c.String(), func(t *testing.T) { c.run(t) })
							}
						}
					}
				}
			}
		}
	}
}

// worth leaves out cells that cannot exist, and in short runs those that differ from others in the refcount width only.
func (c cell) worth() bool {
	switch {
	case c.version == "0.10" && (c.refcount != 16 || c.extended || c.compress == "zstd" || c.base == "data"):
		return false
	case c.extended && c.cluster < 16<<10:
		return false
	case c.base == "data" && c.compress != "":
		return false
	case os.Getenv("BYRE_TEST_LONG") == "" && c.refcount != 16 && (c.base != "" || c.cluster == 2<<20):
		return false
	}
	return true
}

func (c cell) run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	top := filepath.Join(dir, "top.qcow2")
	size := max(24*c.cluster, 192<<10)
	if c.cluster >= 2<<20 {
		size = 6*c.cluster + 512
	}
	c.sources(t, dir)
	args := []string{}
	switch c.base {
	case "raw":
		script0(t, filepath.Join(dir, "base.raw"), size-3*c.cluster/2)
		args = []string{"-b", "base.raw", "-F", "raw"}
	case "chain":
		script0(t, filepath.Join(dir, "base.raw"), size/2)
		low := c
		low.cluster, low.extended, low.compress, low.base = 65536, false, "", ""
		mustCreate(t, filepath.Join(dir, "low.qcow2"), low.options(dir), "-b", "base.raw", "-F", "raw", fmt.Sprint(size*3/4))
		script(t, filepath.Join(dir, "low.qcow2"), low.fills(1, size*3/4)...)
		mustCreate(t, filepath.Join(dir, "mid.qcow2"), c.options(dir), "-b", "low.qcow2", "-F", "qcow2", fmt.Sprint(size*5/4&^511))
		script(t, filepath.Join(dir, "mid.qcow2"), c.fills(2, size*5/4&^511)...)
		args = []string{"-b", "mid.qcow2", "-F", "qcow2"}
	}
	mustCreate(t, top, c.options(dir), append(args, fmt.Sprint(size))...)
	script(t, top, append(c.compressed(dir), c.fills(3, size)...)...)
	want := contents(t, top)
	unchanged(t, top)
	dev := device(t, top)
	checkReads(t, dev, want)
	checkExtents(t, dev, want)
	checkMap(t, dev, top)
	checkInfo(t, dev.Driver().(*Image), top)
}

// sources makes the files that qemu-io takes cluster contents from: noise does
// not compress, text does so that streams cross clusters.
func (c cell) sources(t *testing.T, dir string) {
	r := rand.New(rand.NewPCG(5, 5))
	noise, text := make([]byte, c.cluster), make([]byte, c.cluster)
	for i := range noise {
		noise[i] = byte(r.Uint32())
		text[i] = "etaoin shrdlu qcow"[r.IntN(18)]
	}
	for name, b := range map[string][]byte{"noise": noise, "text": text} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// script0 makes a raw file with some contents.
func script0(t *testing.T, path string, size int) {
	b := make([]byte, size)
	for i := range b {
		if i>>13%3 != 0 {
			b[i] = byte(i>>9) | 1
		}
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustCreate(t testing.TB, path, options string, args ...string) {
	t.Helper()
	a := append([]string{"create", "-q", "-f", "qcow2", "-o", options}, args[:len(args)-1]...)
	cmd := append(a, filepath.Base(path), args[len(args)-1])
	testenv.RunIn(t, filepath.Dir(path), "qemu-img", cmd...)
}
