package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"byre/internal/testenv"
)

// script is run by both programs on a raw file of 1 MiB; every line of output but timings must be equal.
var script = []string{
	"write -P 7 0 4k", "read -P 7 0 4k", "read -P 8 0 4k", "read -v 0 20", "read -v 4090 12", "write 513 1", "write -P 300 0 4k",
	"write -P x 0 4k", "write -zP 1 0 4k", "write -u 0 4k", "write -n 0 4k", "write -b 0 4k", "write -c 0 4k",
	"write -c 100 4k", "read -s 0 0 4k", "read -P 0 -l 8k 0 4k", "read -P 0 -s 8k 0 4k", "read -Q 0 4k", "write -f -z 0 4k",
	"readv 0 4k 4k", "readv -P 0 0 4k", "readv 0 100", "writev -P 3 0 513", "writev 0 4k 512 1k", "read -v 500 32", "writev -q 0 4k", "writev -C 0 4k", "readv -C 0 4k", "write -C 0 4k", "read -C 0 4k", "discard -C 0 4k", "length", "readv 0 3G", "aio_write 0 3G", "aio_read x 1", "aio_write 0 x", "read -Pq 0 1",
	"aio_write -z 0 4k 4k", "aio_write -z 0 4k", "aio_flush", "aio_write -P 9 8k 4k", "aio_flush", "aio_read -P 9 8k 4k", "aio_flush",
	"aio_read -P 1 8k 4k", "aio_flush", "aio_write -u 0 4k", "aio_read -i 0 4k", "aio_write -i 0 4k", "aio_write 9M 4k", "aio_flush",
	"aio_read 9M 4k", "aio_flush", "aio_write -c 0 4k", "aio_read -v 0 16", "aio_flush",
	"discard 0 4k", "discard -q 0 4k", "discard 0", "discard x 1", "discard 0 3G", "discard 9M 4k",
	"alloc 0", "alloc 0 4k", "alloc 1", "alloc 4M", "alloc x", "alloc 9E", "alloc -1", "length", "truncate", "truncate x", "truncate 2M", "length",
	"truncate -m foo 3M", "sleep", "sleep 1", "sleep x", "help foo", "break a b", "resume A", "remove_break A",
	"sigraise", "sigraise x", "sigraise 900", "read -q 0 4k", "read -qv 0 20", "flush", "aio_flush", "  read   0   4k  ", "# foo",
	"write 2G 4k", "read 3M 4k", "read 2097000 4096", "write -1 4k", "read 0 3G", "read 0 9G", "write -s NOSUCH 0 4k", "write -s PAT 0 16",
	"read -v 0 16", "write -s PAT -P 1 0 16", "write -s PAT -z 0 16", "info", "read 0xfff 0x10", "read 1.5k 512", "read 1k5 1",
	"write -P 0x1f 0 1", "write -P 010 0 1", "read 0 4k 5k", "write -zu 0 4k", "write -z 1 1", `read "0" 4k`, "read -P 1 0 0",
	"write 0 0", "readv 0 0", "discard 0 0", "write -p 0 4k", "read -p 0 4k", "read -bq 0 4k", "read -b 100 4k", "info x", "map x", "flush x",
	"read -P 1 -s x 0 4k", "read -P 1 -l x 0 4k", "r 0 1", "w 0 1", "a 0", "d 0 1", "l", "f", "i", "s 1", "?  nosuch", "nosuch",
	"open", "open NOFILE", "open A B", "writev 0 2G 2G", "writev 0 x", "write -bz 0 4k", "write -bc 0 4k", "write -fb 0 4k",
	"aio_write -zP 1 0 4k", "reopen x", "reopen -r -w", "reopen -c foo", "truncate -m full 3M", "length", "map",
	"close", "read 0 4k", "length", "close",
}

var timing = regexp.MustCompile(`(?m)ops; .*$|^\d+,1,.*$`)

func TestTheShellPrintsWhatTheRealOnePrints(t *testing.T) {
	qemuIO := testenv.Tool(t, "qemu-io")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "PAT"), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(script) < 150 {
		t.Errorf("the script has %d lines", len(script))
	}
	for _, name := range []string{"disk", "ours"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, line := range script {
		wantOut, wantErr, wantCode := runReal(t, qemuIO, line)
		out, errs, ok := runOurs(t, line)
		if filter(out) != filter(wantOut) || filter(errs) != filter(wantErr) || ok != (wantCode == 0) {
			t.Errorf("%q: got %q, %q, success %v\nwant %q, %q, exit %d", line, out, errs, ok, wantOut, wantErr, wantCode)
		}
	}
}

func filter(s string) string {
	s = timing.ReplaceAllString(s, "ops; T")
	if strings.HasPrefix(s, "qemu-io: ") { // error sentences are our own
		return "qemu-io: …"
	}
	return s
}

// runReal runs one line in the real tool on the file "disk", which keeps its contents from line to line.
func runReal(t *testing.T, tool, line string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "-f", "raw", "-c", line, "disk")
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", line, err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// runOurs runs one line in this program on the file "ours".
func runOurs(t *testing.T, line string) (out, errs string, ok bool) {
	t.Helper()
	var o, e bytes.Buffer
	code := Main(&Env{Args: []string{"qemu-io", "-f", "raw", "-c", line, "ours"}, Stdin: strings.NewReader(""), Stdout: &o, Stderr: &e})
	return o.String(), e.String(), code == 0
}
