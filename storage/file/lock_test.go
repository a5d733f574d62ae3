//go:build linux

package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/internal/ofdlock"
	"byre/internal/testenv"
)

// hold starts the real qemu-io on the image and returns its process id once it has it open.
func hold(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "qemu-io"), args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	fmt.Fprintln(in, "length") // answered when the image is open
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("qemu-io %v: %v", args, err)
	}
	if !strings.Contains(line, "MiB") {
		t.Fatalf("qemu-io %v says %q", args, line)
	}
	go io.Copy(io.Discard, out)
	return cmd.Process.Pid
}

func image(t *testing.T, format string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	testenv.Run(t, "qemu-img", "create", "-q", "-f", format, path, "1M")
	return path
}

func TestAnImageThatTheRealToolHoldsIsRefusedWithItsProcess(t *testing.T) {
	for _, c := range []struct {
		holder string
		args   []string
		locks  Locks
		want   bool
	}{
		{"qcow2 writer", []string{"-f", "qcow2"}, LocksReadWrite, false},
		{"qcow2 writer", []string{"-f", "qcow2"}, LocksReadOnly, false},
		{"qcow2 writer", []string{"-f", "qcow2"}, LocksShared, true},
		{"qcow2 reader", []string{"-r", "-f", "qcow2"}, LocksReadWrite, false},
		{"qcow2 reader", []string{"-r", "-f", "qcow2"}, LocksReadOnly, true},
		{"qcow2 reader", []string{"-r", "-f", "qcow2"}, LocksShared, true},
		{"forced reader", []string{"-r", "-U", "-f", "qcow2"}, LocksReadWrite, true},
	} {
		t.Run(fmt.Sprintf("%s against %v", c.holder, c.locks), func(t *testing.T) {
			path := image(t, "qcow2")
			pid := hold(t, append(c.args, path)...)
			f, err := Open(ctx, path, Options{Locks: c.locks, ReadOnly: c.locks.Used&PermWrite == 0})
			if c.want {
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				return
			}
			var conflict *ofdlock.Conflict
			if block.KindOf(err) != block.KindLocked || !errors.As(err, &conflict) {
				t.Fatalf("got %v", err)
			}
			if conflict.PID != pid || !strings.Contains(err.Error(), fmt.Sprintf("process %d (qemu-io)", pid)) {
				t.Errorf("the holder is process %d, the error says: %v", pid, err)
			}
			if f, err := Open(ctx, path, Options{NoLock: true}); err != nil {
				t.Errorf("without locks: %v", err)
			} else {
				f.Close()
			}
		})
	}
}

func TestAnImageThatIsHeldHereIsRefusedByTheRealTool(t *testing.T) {
	for _, c := range []struct {
		locks Locks
		args  []string
		want  bool
	}{
		{LocksReadWrite, []string{"-f", "qcow2"}, false},
		{LocksReadWrite, []string{"-r", "-f", "qcow2"}, false},
		{LocksReadWrite, []string{"-r", "-U", "-f", "qcow2"}, true},
		{LocksReadOnly, []string{"-f", "qcow2"}, false},
		{LocksReadOnly, []string{"-r", "-f", "qcow2"}, true},
		{LocksShared, []string{"-f", "qcow2"}, true},
	} {
		t.Run(fmt.Sprintf("%v against %v", c.locks, c.args), func(t *testing.T) {
			path := image(t, "qcow2")
			f, err := Open(ctx, path, Options{Locks: c.locks, ReadOnly: c.locks.Used&PermWrite == 0})
			if err != nil {
				t.Fatal(err)
			}
			try := func() ([]byte, error) {
				return exec.Command(testenv.Tool(t, "qemu-io"), append(c.args, "-c", "length", path)...).CombinedOutput()
			}
			out, err := try()
			if (err == nil) != c.want || !c.want && !bytes.Contains(out, []byte("lock")) {
				t.Errorf("qemu-io: %v\n%s", err, out)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if out, err := try(); err != nil {
				t.Errorf("after Close: %v\n%s", err, out)
			}
		})
	}
}

func TestASecondOpenInTheSameProcessIsAStrangerToo(t *testing.T) {
	f := create(t, Options{}, CreateOptions{Size: 4096})
	_, err := Open(ctx, f.path, Options{})
	var c *ofdlock.Conflict
	if !errors.As(err, &c) || c.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
}

func TestReopenChangesModeAndLocks(t *testing.T) {
	for _, o := range modes() {
		t.Run(name(o), func(t *testing.T) {
			available(t, o)
			f := create(t, o, CreateOptions{Size: 1 << 20})
			d := noise(1, 8192)
			if err := f.WritevAt(ctx, [][]byte{d}, 0, 0); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			readers := make(chan error, 4)
			for range 4 { // requests run across the change
				go func() {
					for {
						select {
						case <-stop:
							readers <- nil
							return
						default:
						}
						p := make([]byte, 8192)
						if err := f.ReadvAt(ctx, [][]byte{p}, 0); err != nil || !bytes.Equal(p, d) {
							readers <- fmt.Errorf("read across a reopen: %v", err)
							return
						}
					}
				}()
			}
			for range 5 {
				if err := f.Reopen(ctx, block.ReopenOptions{ReadOnly: true}); err != nil {
					t.Fatal(err)
				}
				if !f.Geometry().ReadOnly {
					t.Error("not read-only after Reopen")
				}
				if err := f.WritevAt(ctx, [][]byte{d}, 0, 0); err == nil {
					t.Error("a write went through the read-only file")
				}
				other, err := Open(ctx, f.path, Options{ReadOnly: true, Locks: LocksReadOnly})
				if err != nil {
					t.Fatalf("a reader beside a reader: %v", err)
				}
				if err := f.Reopen(ctx, block.ReopenOptions{}); block.KindOf(err) != block.KindLocked {
					t.Errorf("reopen for writing beside a reader that forbids it: %v", err)
				}
				other.Close()
				if err := f.Reopen(ctx, block.ReopenOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := Open(ctx, f.path, Options{}); block.KindOf(err) != block.KindLocked {
					t.Errorf("a second writer after Reopen: %v", err)
				}
				if err := f.WritevAt(ctx, [][]byte{d}, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			close(stop)
			for range 4 {
				if err := <-readers; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSetLocksUpgradesAndFallsBack(t *testing.T) {
	f := create(t, Options{}, CreateOptions{Size: 4096})
	f.Close()
	f, err := Open(ctx, f.path, Options{ReadOnly: true, Locks: LocksShared})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := Open(ctx, f.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetLocks(LocksReadOnly); block.KindOf(err) != block.KindLocked {
		t.Errorf("forbidding writes while somebody writes: %v", err)
	}
	w.Close()
	if err := f.SetLocks(LocksReadOnly); err != nil {
		t.Error(err)
	}
	if _, err := Open(ctx, f.path, Options{}); block.KindOf(err) != block.KindLocked {
		t.Errorf("a writer beside a reader that forbids it: %v", err)
	}
}
