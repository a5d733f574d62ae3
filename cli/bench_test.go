package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"byre/internal/testenv"
)

// benchFile makes a raw file of some size.
func benchFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.img")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// runMain runs a command line in-process.
func benchMain(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = Main(&Env{Args: append([]string{"qemu-img", "bench"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: t.Context()})
	return code, out.String(), errs.String()
}

var benchTimes = regexp.MustCompile(`\d+\.\d{3} seconds`)

func TestBenchPrintsTheClassicLines(t *testing.T) {
	path := benchFile(t, 1<<20)
	tests := []struct{ args, want string }{
		{"-c 100 -d 4 -w", "Sending 100 write requests, 4096 bytes each, 4 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\n"},
		{"-c 100 -d 4 --flush-interval 50 -w", "Sending 100 write requests, 4096 bytes each, 4 in parallel (starting at offset 0, step size 4096)\nSending flush every 50 requests\nRun completed in T.\n"},
		{"-c 0x10 -q", "Sending 16 read requests, 4096 bytes each, 64 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\n"},
		{"-c 10 -s 0", "Sending 10 read requests, 0 bytes each, 64 in parallel (starting at offset 0, step size 0)\nRun completed in T.\n"},
		{"-c 0", "Sending 0 read requests, 4096 bytes each, 64 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\n"},
		{"-c 300 -s 2k -S 64k -o 1k -i threads -t writeback", "Sending 300 read requests, 2048 bytes each, 64 in parallel (starting at offset 1024, step size 65536)\nRun completed in T.\n"},
		{"-c 10 -w --flush-interval 0 -d 2", "Sending 10 write requests, 4096 bytes each, 2 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\n"},
		{"-c 10 --rw=mix --verify", "Sending 10 random read and write requests, 4096 bytes each, 64 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\nVerified N bytes.\n"},
		{"--duration 0.01 --rw=randread", "Sending random read requests for 10ms, 4096 bytes each, 64 in parallel (starting at offset 0, step size 4096)\nRun completed in T.\n"},
	}
	for _, tt := range tests {
		code, out, errs := benchMain(t, append(strings.Fields("-f raw "+tt.args), path)...)
		out = benchTimes.ReplaceAllString(out, "T")
		out = regexp.MustCompile(`Verified \d+`).ReplaceAllString(out, "Verified N")
		if code != 0 || out != tt.want || errs != "" {
			t.Errorf("%s: exit %d\n%s%s\nwant\n%s", tt.args, code, out, errs, tt.want)
		}
	}
}

func TestBenchRefusesWhatTheClassicToolRefuses(t *testing.T) {
	path := benchFile(t, 1<<20)
	tests := []struct{ args, says string }{
		{"-d 0", "Invalid queue depth specified"},
		{"-d -1", "Invalid queue depth specified"},
		{"-d 70000000000", "Invalid queue depth specified"},
		{"-c -1", "Invalid request count specified"},
		{"-c 1k", "Invalid request count specified"},
		{"-w --pattern 256", "Invalid pattern byte specified"},
		{"-t foo", "cache mode"},
		{"-i foo", "foo"},
		{"-S 3G", "Invalid step_size specified. Must be between 0 and 2147483647."},
		{"-s 3G", "Invalid buffer size specified. Must be between 0 and 2147483647."},
		{"-o -1", "Invalid offset specified"},
		{"--flush-interval 5", "--flush-interval is only available in write tests"},
		{"-w -d 8 --flush-interval 4", "Flush interval can't be smaller than depth"},
		{"-w --rw=read", "-w contradicts --rw=read"},
		{"--rw=sideways", "sideways"},
		{"-n -i threads", "contradicts"},
		{"-n", "native"}, // needs direct I/O
		{"--duration 0", "Invalid duration"},
		{"--warmup x", "Invalid warm-up"},
		{"--read-share 101", "Invalid share of reads"},
		{"second.img", "second"},
	}
	for _, tt := range tests {
		code, out, errs := benchMain(t, append(append([]string{"-f", "raw"}, path), strings.Fields(tt.args)...)...)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "qemu-img: ") || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: exit %d, %q, %q; want %q", tt.args, code, out, errs, tt.says)
		}
	}
	if code, _, errs := benchMain(t); code != 1 || !strings.Contains(errs, "Expecting") {
		t.Errorf("no file: exit %d, %s", code, errs)
	}
	if code, _, errs := benchMain(t, "-f", "raw", path+".not"); code != 1 || errs != "qemu-img: Could not open '"+path+".not': No such file or directory\n" {
		t.Errorf("a missing file: exit %d, %s", code, errs)
	}
	code, out, errs := benchMain(t, "-f", "raw", "-c", "2", "-o", "2M", path)
	if code != 1 || !strings.HasPrefix(out, "Sending 2 read requests") || strings.Contains(out, "completed") || !strings.HasPrefix(errs, "qemu-img: Failed request: ") {
		t.Errorf("a start beyond the end: exit %d, %q, %q", code, out, errs)
	}
}

func TestBenchWritesThePatternAndJSON(t *testing.T) {
	path := benchFile(t, 1<<20)
	code, out, errs := benchMain(t, "-f", "raw", "-w", "-c", "64", "-s", "4k", "-S", "16k", "--pattern", "0xa5", "--verify", "--warmup", "8", "--output=json", "--flush-interval", "64", path)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var res struct {
		RW                   string
		Requests, Bytes      int64
		Seconds, IOPS        float64
		VerifiedBytes        int64              `json:"verified-bytes"`
		Latency              map[string]float64 `json:"latency-us"`
		Counters, PerRequest map[string]float64
	}
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if res.RW != "write" || res.Requests != 64 || res.Bytes != 64*4096 || res.VerifiedBytes != 72*4096 || res.Seconds <= 0 || res.IOPS <= 0 || res.Counters["flush-requests"] != 1 {
		t.Errorf("got %s", out)
	}
	for _, p := range []string{"min", "mean", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"} {
		if res.Latency[p] <= 0 {
			t.Errorf("latency %s is %g", p, res.Latency[p])
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data {
		if want := byte(0xa5) * byte(1-min(1, i%16384/4096)); b != want {
			t.Fatalf("byte %#x is %#x, want %#x", i, b, want)
		}
	}
}

func TestBenchVerifyFailsOnOtherContents(t *testing.T) {
	path := benchFile(t, 1<<20)
	if code, _, errs := benchMain(t, "-f", "raw", "-w", "-c", "256", "--verify", "--seed", "5", path); code != 0 {
		t.Fatal(errs)
	}
	if code, out, errs := benchMain(t, "-f", "raw", "-c", "256", "--verify", "--seed", "5", path); code != 0 || !strings.Contains(out, "Verified 1048576 bytes") {
		t.Fatal(errs)
	}
	if code, _, errs := benchMain(t, "-f", "raw", "-c", "256", "--verify", "--seed", "6", path); code != 1 || !strings.Contains(errs, "verification failed") {
		t.Errorf("another seed: exit %d, %s", code, errs)
	}
}

// What the installed tool prints and how it exits, byre prints and does, error sentences and times aside.
func TestBenchAnswersAsTheRealTool(t *testing.T) {
	real := testenv.Tool(t, "qemu-img")
	path := benchFile(t, 1<<20)
	for _, args := range []string{
		"-c 100 -d 4", "-c 100 -d 4 -w --pattern 65", "-c 50 -w --flush-interval 64", "-c 100 -d 10 -w --flush-interval 20 --no-drain",
		"-c 10 -s 64k -S 32k -o 4096", "-c 1 -d 1 -t none", "-c 10 -t none -i native", "-c 10 -t none -n", "-c 10 -i threads -t unsafe -w",
		"-c 10 -t writethrough -w", "-c 10 -t directsync -w -d 2", "-c 0", "-c 5 -s 0", "-q -c 3", "-U -c 3",
		"-c -5", "-c 5k", "-d -3", "-d x", "-w --pattern 256", "-w --pattern -1", "-t foo", "-i foo", "-n", "-s 4G", "-S 4G", "-o x",
		"--flush-interval 10", "-w -d 8 --flush-interval 4", "-w --flush-interval x", "-c 2 -o 2M", "--nosuch", "-c",
	} {
		full := append(strings.Fields("-f raw "+args), path)
		if args == "-c" {
			full = strings.Fields("-f raw " + path + " -c")
		}
		cmd := exec.CommandContext(t.Context(), real, append([]string{"bench"}, full...)...)
		want, err := cmd.Output()
		wantCode := 0
		if err != nil {
			wantCode = cmd.ProcessState.ExitCode()
		}
		code, out, errs := benchMain(t, full...)
		masked := benchTimes.ReplaceAllString(out, "T")
		if code != wantCode || masked != benchTimes.ReplaceAllString(string(want), "T") || (errs == "") != (code == 0) {
			t.Errorf("%s: exit %d\n%s%s\nwant exit %d\n%s", args, code, out, errs, wantCode, want)
		}
	}
}
