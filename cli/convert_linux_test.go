package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"byre/internal/testenv"
)

// allocated is how many bytes a file takes on its medium.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// loop makes a loop device over a file.
func loop(t *testing.T, path string, args ...string) string {
	t.Helper()
	testenv.Root(t)
	out, err := exec.Command(testenv.Tool(t, "losetup"), append(append([]string{"--show", "-f"}, args...), path)...).CombinedOutput()
	if err != nil {
		if testenv.CI() {
			t.Fatalf("no loop device: %v, %s", err, out)
		}
		t.Skipf("no loop device here: %v, %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { exec.Command("losetup", "-d", dev).Run() })
	return dev
}

// mount mounts something on a fresh folder, which it returns.
func mount(t *testing.T, args ...string) string {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
		if testenv.CI() {
			t.Fatalf("mount %q: %v, %s", args, err, out)
		}
		t.Skipf("cannot mount here: %v, %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	return dir
}

func init() { convertTests["writes block devices"] = convertToDevice }

func convertToDevice(t *testing.T, p func(string) string, s map[string]string) {
	testenv.Run(t, "qemu-img", "convert", "-O", "raw", s["v3"], p("real"))
	want, err := os.ReadFile(p("real"))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"", "-n", "-t none", "-n -t none -W", "-S 0"} {
		for _, sector := range []string{"512", "4096"} {
			t.Run(args+" "+sector, func(t *testing.T) {
				disk := p("disk")
				old := bytes.Repeat([]byte{0xcd}, 4<<20)
				if err := os.WriteFile(disk, old, 0o666); err != nil {
					t.Fatal(err)
				}
				dev := loop(t, disk, "--sector-size", sector)
				mustImg(t, append(append([]string{"convert", "-O", "raw"}, strings.Fields(args)...), s["v3"], dev)...)
				got, err := os.ReadFile(dev)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, append(bytes.Clone(want), old[len(want):]...)) {
					t.Fatal("wrong contents")
				}
			})
		}
	}
	if err := os.WriteFile(p("small"), make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	dev := loop(t, p("small"))
	if code, _, errs := img(t, "convert", "-O", "raw", s["v3"], dev); code != 1 || errs == "" {
		t.Errorf("a device that is too small: exit %d, %s", code, errs)
	}
	if _, err := os.Stat(dev); err != nil {
		t.Errorf("the device node is gone: %v", err)
	}
}

func TestConvertRefusesTheDeviceItReadsByAnotherNode(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("disk"), make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	dev := loop(t, p("disk"))
	info, err := os.Stat(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(p("node"), syscall.S_IFBLK|0o600, int(info.Sys().(*syscall.Stat_t).Rdev)); err != nil {
		t.Skip(err)
	}
	if code, _, errs := img(t, "convert", "-f", "raw", "-O", "raw", "-n", dev, p("node")); code != 1 || !strings.Contains(errs, "same file") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestAFullFileSystemEndsTheConversionWithoutATarget(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("a"), bytes.Repeat([]byte{1}, 8<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := mount(t, "-t", "tmpfs", "-o", "size=2m", "none")
	code, _, errs := img(t, "convert", "-f", "raw", "-O", "raw", p("a"), dir+"/o")
	if code != 1 || !strings.Contains(errs, "no space left") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := os.WriteFile(dir+"/o", []byte{1}, 0o666); err != nil {
		t.Fatal(err)
	}
	code, _, errs = img(t, "convert", "-f", "raw", "-O", "raw", p("a"), dir+"/o")
	if code != 1 || !strings.Contains(errs, "incomplete") {
		t.Errorf("an existing target: exit %d, %s", code, errs)
	}
}

func TestConvertSharesSpaceWhereTheFileSystemCan(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("fs"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p("fs"), 400<<20); err != nil {
		t.Fatal(err)
	}
	testenv.Root(t)
	testenv.Run(t, "mkfs.xfs", "-q", "-m", "reflink=1", p("fs"))
	dir := mount(t, "-o", "loop", p("fs"))
	data := make([]byte, 64<<20)
	for i := range data {
		data[i] = byte(i >> 12)
	}
	if err := os.WriteFile(dir+"/a", append(data, 1, 2, 3), 0o666); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "qemu-img", "convert", "-O", "qcow2", "-f", "raw", dir+"/a", dir+"/a.qcow2")
	for _, src := range []string{"/a", "/a.qcow2"} {
		testenv.Run(t, "sync", dir)
		before := free(t, dir)
		mustImg(t, "convert", "-O", "raw", dir+src, dir+"/o")
		testenv.Run(t, "sync", dir)
		used := before - free(t, dir)
		if used > 8<<20 {
			t.Errorf("%s: the copy takes %d bytes", src, used)
		}
		got, err := os.ReadFile(dir + "/o")
		if err != nil || !bytes.Equal(got[:len(data)+3], append(bytes.Clone(data), 1, 2, 3)) || !bytes.Equal(got[len(data)+3:], make([]byte, 509)) {
			t.Errorf("%s: wrong contents, %v", src, err)
		}
		os.Remove(dir + "/o")
	}
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

func TestSIGUSR1PrintsTheProgress(t *testing.T) {
	p := folder(t)
	if err := os.WriteFile(p("a"), bytes.Repeat([]byte{1}, 3<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() {
		_, _, errs := img(t, "convert", "-f", "raw", "-r", "4M", p("a"), p("o"))
		done <- errs
	}()
	for {
		if _, err := os.Stat(p("o")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	errs := <-done
	var percent float64
	if n, err := fmt.Sscanf(errs, "    (%f/100%%)\n", &percent); n != 1 || err != nil || percent >= 100 {
		t.Errorf("printed %q", errs)
	}
}

func TestConvertKeepsHolesAndMakesThem(t *testing.T) {
	p := folder(t)
	data := make([]byte, 4<<20)
	copy(data[1<<20:], bytes.Repeat([]byte{1}, 64<<10))
	if err := os.WriteFile(p("full.raw"), data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args        string
		least, most int64 // allocated bytes
	}{
		{"", 64 << 10, 80 << 10},
		{"-S 4k", 64 << 10, 80 << 10},
		{"-S 0", 4 << 20, 5 << 20},
		{"-n", 64 << 10, 80 << 10},
		{"-n -S 0", 4 << 20, 5 << 20},
		{"-o preallocation=full", 4 << 20, 5 << 20},
	} {
		if strings.Contains(c.args, "-n") { // an old target full of something else
			if err := os.WriteFile(p("o"), bytes.Repeat([]byte{0xff}, len(data)), 0o666); err != nil {
				t.Fatal(err)
			}
		} else {
			os.Remove(p("o"))
		}
		mustImg(t, append(append([]string{"convert", "-f", "raw", "-O", "raw"}, strings.Fields(c.args)...), p("full.raw"), p("o"))...)
		sameFiles(t, p("o"), p("full.raw"))
		if n := allocated(t, p("o")); n < c.least || n > c.most {
			t.Errorf("%q allocates %d bytes, not %d to %d", c.args, n, c.least, c.most)
		}
	}
}
