package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// output is what conversions write; it is removed before each run.
const output = "out"

// testCase is a command line that both programs understand. A target of 0 is none.
type testCase struct {
	name       string
	needs      []string // images, by name
	args       []string // run in the folder of the images
	wall, user float64  // targets: byre / qemu-img
}

var cases = []testCase{
	{name: "deflate to raw", needs: []string{"deflate"}, args: []string{"convert", "-O", "raw", "deflate", output}, wall: 0.60, user: 1.15},
	{name: "zstd to raw", needs: []string{"zstd"}, args: []string{"convert", "-O", "raw", "zstd", output}, wall: 0.70},
	{name: "uncompressed to raw", needs: []string{"plain"}, args: []string{"convert", "-O", "raw", "plain", output}, wall: 0.95},
	{name: "uncompressed to raw, no page cache", needs: []string{"plain"}, args: []string{"convert", "-t", "none", "-T", "none", "-O", "raw", "plain", output}, wall: 0.95},
	{name: "chain of 8 to raw", needs: []string{"chain"}, args: []string{"convert", "-O", "raw", "chain", output}},
	{name: "1 TiB empty to raw", needs: []string{"empty"}, args: []string{"convert", "-O", "raw", "empty", output}, wall: 1},
	{name: "map of 100,000 extents", needs: []string{"extents"}, args: []string{"map", "--output=json", "extents"}, wall: 1},
	{name: "info, deflate", needs: []string{"deflate"}, args: []string{"info", "deflate"}, wall: 1},
	{name: "info, 1 TiB empty", needs: []string{"empty"}, args: []string{"info", "empty"}, wall: 1},
	{name: "info, chain of 8", needs: []string{"chain"}, args: []string{"info", "--backing-chain", "chain"}, wall: 1},
	{name: "compare, deflate and raw", needs: []string{"deflate"}, args: []string{"compare", "deflate", "raw"}, wall: 1},
	{name: "compare, uncompressed and raw", needs: []string{"plain"}, args: []string{"compare", "plain", "raw"}, wall: 1},
}

// prepare makes the images that are not there yet.
func (b *bench) prepare(names []string) error {
	for _, name := range append([]string{"raw"}, names...) {
		path := filepath.Join(b.dir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := b.make(name, path); err != nil {
			os.Remove(path)
			return fmt.Errorf("make image %s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) make(name, path string) error {
	switch name {
	case "raw":
		return b.corpus(path)
	case "deflate":
		return b.qemuImg("convert", "-c", "-O", "qcow2", "raw", name)
	case "zstd":
		return b.qemuImg("convert", "-c", "-O", "qcow2", "-o", "compression_type=zstd", "raw", name)
	case "plain":
		return b.qemuImg("convert", "-O", "qcow2", "raw", name)
	case "empty":
		return b.qemuImg("create", "-q", "-f", "qcow2", name, "1T")
	case "extents":
		return b.extents(path)
	case "chain":
		return b.chain()
	}
	return errors.New("unknown image")
}

func (b *bench) qemuImg(args ...string) error {
	cmd := exec.Command(b.ref, args...)
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	return cmd.Run()
}

// corpus makes a tar archive of real files, cut to size.
func (b *bench) corpus(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size := b.size << 20
	t := tar.NewWriter(f)
	full := errors.New("full")
	err = filepath.WalkDir(b.tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be read is left out
		}
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at >= size {
			return errors.Join(err, full)
		}
		return add(t, p)
	})
	if err != nil && !errors.Is(err, full) {
		return err
	}
	if err == nil {
		return fmt.Errorf("%s holds less than %d MiB", b.tree, b.size)
	}
	return f.Truncate(size)
}

func add(t *tar.Writer, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	h.Name = path
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(t, in, info.Size())
	return err
}

// extents makes an image in which data and holes take turns, 50,000 of each.
func (b *bench) extents(path string) error {
	tmp := path + ".raw"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	defer f.Close()
	page := make([]byte, 4096)
	for i := range page {
		page[i] = byte(i | 1)
	}
	for i := range int64(50000) {
		if _, err := f.WriteAt(page, i*8192); err != nil {
			return err
		}
	}
	if err := f.Truncate(50000 * 8192); err != nil {
		return err
	}
	return b.qemuImg("convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4k", filepath.Base(tmp), filepath.Base(path))
}

// chain makes 8 layers; the lowest is compressed, each other one holds an eighth of the disk.
func (b *bench) chain() error {
	if err := b.prepare([]string{"deflate"}); err != nil {
		return err
	}
	backing := "deflate"
	for i := 1; i < 8; i++ {
		name := "chain"
		if i < 7 {
			name = "chain" + strconv.Itoa(i)
		}
		if err := b.qemuImg("create", "-q", "-f", "qcow2", "-b", backing, "-F", "qcow2", name); err != nil {
			return err
		}
		if err := b.fill(name, i); err != nil {
			return err
		}
		backing = name
	}
	return nil
}

// fill writes every eighth MiB of a layer.
func (b *bench) fill(name string, layer int) error {
	io, err := exec.LookPath("qemu-io")
	if err != nil {
		return err
	}
	args := []string{"-f", "qcow2"}
	for at := int64(layer); at < b.size; at += 8 {
		args = append(args, "-c", fmt.Sprintf("write -q -P %d %dM 1M", at&0xff, at))
	}
	cmd := exec.Command(io, append(args, name)...)
	cmd.Dir, cmd.Stderr = b.dir, os.Stderr
	return cmd.Run()
}
