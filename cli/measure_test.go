package cli

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// sameAsReal runs a command line with the real qemu-img and in-process, and compares what is printed and the exit status.
func sameAsReal(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "qemu-img"), args...)
	var want bytes.Buffer
	cmd.Stdout = &want
	wantCode := 0
	var ee *exec.ExitError
	if err := cmd.Run(); errors.As(err, &ee) {
		wantCode = ee.ExitCode()
	}
	code, out, errs := run(t, append([]string{"qemu-img"}, args...)...)
	if code != wantCode || out != want.String() {
		t.Errorf("%q: exit %d\n%s%s\nthe real tool exits %d\n%s", args, code, out, errs, wantCode, want.String())
	}
}

func TestMeasureOfNewImagesEqualsTheRealOne(t *testing.T) {
	for _, size := range []string{"1000000", "3T"} {
		for _, o := range []string{"", "cluster_size=512", "cluster_size=4k,refcount_bits=64", "cluster_size=2M,refcount_bits=1", "extended_l2=on",
			"extended_l2=on,cluster_size=128k", "preallocation=metadata", "preallocation=full", "compat=0.10", "encrypt.format=luks,encrypt.key-secret=s", "backing_file=x,backing_fmt=raw"} {
			args := []string{"measure", "-O", "qcow2", "--size", size}
			if o != "" {
				args = append(args, "-o", o)
			}
			if strings.Contains(o, "luks") {
				args = append(args, "--object", "secret,id=s,data=x")
			}
			sameAsReal(t, args...)
		}
		sameAsReal(t, "measure", "--size", size)
		sameAsReal(t, "measure", "-O", "raw", "--output=json", "--size", size)
	}
	sameAsReal(t, "measure", "-O", "qcow2", "--size", "129G", "-o", "cluster_size=512")
}

func TestMeasureOfCopiesEqualsTheRealOne(t *testing.T) {
	listingImages(t)
	for _, name := range []string{"v3.qcow2", "v2.qcow2", "opts.qcow2", "mid.qcow2", "top.qcow2", "snap.qcow2", "bitmap.qcow2", "plain.raw"} {
		for _, o := range []string{"cluster_size=4k", "backing_file=x,backing_fmt=raw"} {
			sameAsReal(t, "measure", "-O", "qcow2", "--output=json", name, "-o", o)
		}
		sameAsReal(t, "measure", "-O", "qcow2", name)
		sameAsReal(t, "measure", name)
		sameAsReal(t, "measure", "-U", "-O", "raw", "--output=json", name)
	}
	sameAsReal(t, "measure", "-O", "qcow2", "-l", "first", "snap.qcow2")
	sameAsReal(t, "measure", "--image-opts", "-O", "qcow2", "driver=qcow2,file.driver=file,file.filename=v3.qcow2")
}

func TestMeasureRefusesWhatTheRealOneRefuses(t *testing.T) {
	listingImages(t)
	for _, line := range []string{"", "--size 1M v3.qcow2", "-f raw --size 1M", "-O vmdk --size 1M", "-O qcow2 --size 1M -o nonsense=1", "-O qcow2 --size x",
		"-O qcow2 absent.qcow2", "-O qcow2 -l none snap.qcow2", "-O qcow2 --size 1M -o cluster_size=3000", "-O qcow2 --size 1M -o preallocation=some", "-O qcow2 --size 1M -o encrypt.format=luks", "v3.qcow2 v2.qcow2"} {
		args := append([]string{"qemu-img", "measure"}, strings.Fields(line)...)
		if code, out, errs := run(t, args...); code != 1 || out != "" || !strings.HasPrefix(errs, "qemu-img: ") {
			t.Errorf("%q: exit %d %q %q", line, code, out, errs)
		}
	}
}
