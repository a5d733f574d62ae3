package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"byre/internal/testenv"
)

// stage is a staged interleaving: commands that both programs run on images of the same making.
type stage struct {
	name   string
	create string   // options for qemu-img create
	pre    []string // commands of qemu-io before, or other tools if the first word is one
	flags  string   // of qemu-io
	cmds   []string
	racy   bool // completions may come in any order
	// better: the real tool loses data here. Ours must succeed and leave a clean image.
	better bool
}

const backed = "-b base.raw -F raw" // base.raw is 1 MiB of 0xff

var stages = []stage{
	{name: "a write of a fresh cluster is suspended, others go on", cmds: []string{"break write_aio A", "aio_write -P 2 20k 2k", "wait_break A",
		"aio_write -P 3 40k 2k", "write -P 4 64k 2k", "resume A", "aio_flush", "read -P 2 20k 2k", "read -P 3 40k 2k", "read -P 0 0 20k"}, racy: true},
	{name: "an allocated cluster: nobody waits", cmds: []string{"write -P 1 0 64k", "break write_aio A", "aio_write -P 2 20k 2k", "wait_break A",
		"write -P 3 40k 2k", "write -P 4 64k 2k", "resume A", "aio_flush", "read -P 3 40k 2k", "read -P 2 20k 2k", "read -P 1 22k 18k"}},
	{name: "three small writes into fresh subclusters", create: "-o extended_l2=on", racy: true,
		cmds: []string{"break write_aio A", "aio_write -P 10 30k 2k", "wait_break A", "aio_write -P 11 20k 2k", "aio_write -P 12 40k 2k", "resume A",
			"aio_flush", "read -P 10 30k 2k", "read -P 11 20k 2k", "read -P 12 40k 2k", "read -P 0 42k 22k"}},
	{name: "subclusters of an allocated cluster do not wait for each other", create: "-o extended_l2=on",
		cmds: []string{"write -P 1 0 2k", "break write_aio B", "aio_write -P 2 20k 2k", "wait_break B", "write -P 3 40k 2k", "resume B", "aio_flush",
			"read -P 1 0 2k", "read -P 2 20k 2k", "read -P 3 40k 2k", "read -P 0 4k 16k"}},
	{name: "one subcluster: the later writers wait", create: "-o extended_l2=on", racy: true,
		cmds: []string{"write -P 1 0 2k", "break write_aio B", "aio_write -P 2 20k 2k", "wait_break B", "aio_write -P 13 21k 512", "aio_write -P 14 20k 512",
			"write -P 3 40k 2k", "resume B", "aio_flush", "read -P 14 20k 512", "read -P 2 20992 512", "read -P 13 21k 512"}},
	{name: "an external data file", create: "-o data_file=data.raw", cmds: []string{"write 64k 4k", "break write_aio A", "aio_write -P 2 0 4k", "wait_break A",
		"write -P 3 64k 4k", "resume A", "aio_flush", "read -P 2 0 4k", "read -P 3 64k 4k"}},
	{name: "copy on write reads the backing file", create: backed, cmds: []string{"break cow_read A", "aio_write -P 2 0 4k", "wait_break A", "write -P 3 64k 4k",
		"resume A", "aio_flush", "read -P 2 0 4k", "read -P 255 4k 60k", "read -P 3 64k 4k"}},
	{name: "nothing to copy: the break is not reached", cmds: []string{"break cow_read A", "write -P 2 0 4k", "remove_break A", "remove_break A"}},
	{name: "a break that is removed lets its request go", cmds: []string{"break write_aio A", "aio_write -P 2 0 4k", "wait_break A", "remove_break A", "aio_flush",
		"read -P 2 0 4k"}},
	{name: "two requests under one tag", cmds: []string{"write 0 256k", "break write_aio A", "aio_write -P 2 0 4k", "wait_break A", "break write_aio A",
		"aio_write -P 3 64k 4k", "resume A", "resume A", "resume A", "aio_flush", "read -P 2 0 4k", "read -P 3 64k 4k"}, racy: true},
	{name: "wrong breaks", cmds: []string{"break nosuch A", "break write_aio", "resume A", "remove_break B"}},
	{name: "a suspended read", cmds: []string{"write -P 1 0 64k", "break read_aio A", "aio_read -P 1 0 4k", "wait_break A", "write -P 2 64k 4k", "resume A", "aio_flush"}},
	{name: "a suspended flush", cmds: []string{"write -P 1 0 64k", "break flush_to_disk A", "aio_write -f -P 2 0 4k", "wait_break A", "read -P 1 4k 4k", "resume A", "aio_flush"}},
	{name: "a suspended load of an L2 table", pre: []string{"write -P 1 0 64k"}, cmds: []string{"break l2_load A", "aio_read -P 1 0 4k", "wait_break A",
		"resume A", "aio_flush"}},
	{name: "a suspended compressed write", cmds: []string{"write -c -P 7 0 64k", "break read_compressed A", "aio_read -P 7 0 4k", "wait_break A", "write -P 2 64k 4k",
		"resume A", "aio_flush"}},

	{name: "discard beside a write in flight", flags: "-d unmap", better: true, cmds: []string{"write -P 1 0 64k", "break write_aio A", "aio_write -P 2 0 64k",
		"wait_break A", "discard 0 64k", "write -P 3 128k 64k", "resume A", "aio_flush", "read -P 3 128k 64k"}},
	{name: "discard of a cluster that is about to be linked", better: true, cmds: []string{"write 0 64k", "write -z 0 64k", "break write_aio A", "aio_write -P 2 0 4k",
		"wait_break A", "discard 0 64k", "write -P 3 128k 64k", "resume A", "aio_flush", "read -P 3 128k 64k"}},
	{name: "discard of a cluster with a subcluster in flight", create: "-o extended_l2=on", better: true, cmds: []string{"write 0 2k", "break write_aio A",
		"aio_write -P 2 8k 2k", "wait_break A", "discard 0 64k", "write -P 3 128k 64k", "resume A", "aio_flush", "read -P 3 128k 64k"}},
	{name: "zeros beside a copy on write", create: backed, better: true, cmds: []string{"break cow_write A", "aio_write -P 2 0 4k", "wait_break A", "write -z 0 64k",
		"resume A", "aio_flush", "read -P 0 4k 60k"}},
	{name: "unmapped zeros beside a copy on write", create: backed, better: true, cmds: []string{"break cow_write A", "aio_write -P 2 0 4k", "wait_break A",
		"write -zu 0 64k", "resume A", "aio_flush", "read -P 0 4k 60k"}},
	{name: "zeros beside a copy on write of another subcluster", create: "-o extended_l2=on", pre: []string{"write -P 0xff 0 64k", "qemu-img snapshot -c s x.qcow2"},
		better: true, cmds: []string{"break cow_write A", "aio_write -P 2 0 2k", "wait_break A", "write -z 32k 2k", "resume A", "aio_flush", "read -P 0 32k 2k",
			"read -P 2 0 2k", "read -P 0xff 2k 30k", "read -P 0xff 34k 30k"}},
	{name: "a read of a cluster that is discarded and used again", flags: "-d unmap", better: true, cmds: []string{"write -P 1 0 64k", "break read_aio A",
		"aio_read -P 1 0 64k", "wait_break A", "discard 0 64k", "write -P 3 128k 64k", "resume A", "aio_flush"}},
}

// faults are injected errors. Both programs must print the same.
var faults = []stage{
	{name: "every read fails", flags: "iotype=read", cmds: []string{"read 0 4k", "write 0 4k"}},
	{name: "data writes fail once", flags: "event=write_aio,once=on,errno=28", cmds: []string{"write -P 1 0 4k", "write -P 2 0 4k", "read -P 2 0 4k"}},
	{name: "one sector fails", flags: "sector=1000,iotype=write", cmds: []string{"write -P 1 0 64k", "write -P 2 1M 64k", "read -P 2 1M 64k"}},
	{name: "copy on write fails", flags: "event=cow_read", cmds: []string{"write -P 1 0 4k", "read -P 255 0 64k", "write 64k 64k"}},
	{name: "zeros cannot be quick", flags: "event=none,iotype=write-zeroes,errno=95", cmds: []string{"write -P 1 0 4k", "read -P 1 0 4k", "read -P 255 4k 60k"}},
	{name: "a state is needed", flags: "event=write_aio,state=2", cmds: []string{"write -P 1 0 4k", "read -P 1 0 4k"}},
}

func TestStagedInterleavingsEndAsInTheRealShellOrBetter(t *testing.T) {
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, func(dir, img string) []string {
				return append(strings.Fields(s.flags), "-f", "qcow2", "blkdebug::"+img)
			})
		})
	}
	for _, s := range faults {
		t.Run(s.name, func(t *testing.T) {
			s.create = backed
			rule := "driver=qcow2,file.driver=blkdebug,file.image.driver=file,file.image.filename=x.qcow2"
			if !strings.Contains(s.flags, "event=") {
				rule += ",file.inject-error.0.event=none"
			}
			for _, o := range strings.Split(s.flags, ",") {
				rule += ",file.inject-error.0." + o
			}
			s.run(t, func(dir, img string) []string { return []string{"--image-opts", rule} })
		})
	}
}

func (s *stage) run(t *testing.T, args func(dir, img string) []string) {
	real := testenv.Tool(t, "qemu-io")
	var outs [2]string
	for i := range outs {
		dir := t.TempDir()
		t.Chdir(dir)
		s.prepare(t)
		line := args(dir, "x.qcow2")
		for _, c := range s.cmds {
			line = append(line, "-c", c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		var out, errs bytes.Buffer
		code := 0
		if i == 0 {
			cmd := exec.CommandContext(ctx, real, line...)
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run()
			code = cmd.ProcessState.ExitCode()
		} else {
			code = Main(&Env{Args: append([]string{"qemu-io"}, line...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: ctx})
		}
		if ctx.Err() != nil {
			t.Fatalf("does not end (program %d):\n%s", i, &out)
		}
		outs[i] = s.filter(out.String()) + dropLines(errs.String(), "qemu-io: ") + fmt.Sprintf("exit %d\n", code)
		if i == 1 {
			checkClean(t)
			if s.better && code != 0 {
				t.Errorf("fails:\n%s", outs[1])
			}
		}
	}
	if s.better {
		// The same requests complete, without the failures of verification.
		outs[0] = strings.ReplaceAll(outs[0], "exit 1", "exit 0")
		outs[0] = dropLines(outs[0], "Pattern verification failed")
	}
	if outs[0] != outs[1] {
		t.Errorf("the real one prints\n%s\nours\n%s", outs[0], outs[1])
	}
}

func (s *stage) prepare(t *testing.T) {
	if err := os.WriteFile("base.raw", bytes.Repeat([]byte{0xff}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "qemu-img", slices.Concat([]string{"create", "-q", "-f", "qcow2"}, strings.Fields(s.create), []string{"x.qcow2", "4M"})...)
	for _, p := range s.pre {
		if tool, rest, _ := strings.Cut(p, " "); tool == "qemu-img" {
			testenv.Run(t, tool, strings.Fields(rest)...)
		} else {
			testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", p, "x.qcow2")
		}
	}
}

// filter removes timings, and the order of completions where it is not determined.
func (s *stage) filter(out string) string {
	out = timing.ReplaceAllString(out, "ops; T")
	lines := strings.SplitAfter(out, "\n")
	if s.racy {
		slices.Sort(lines)
	}
	return strings.Join(lines, "")
}

func dropLines(s, prefix string) string {
	var out strings.Builder
	for l := range strings.SplitAfterSeq(s, "\n") {
		if !strings.HasPrefix(l, prefix) {
			out.WriteString(l)
		}
	}
	return out.String()
}

// checkClean proves that the image that is left has neither errors nor leaks.
func checkClean(t *testing.T) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "qemu-img"), "check", filepath.Join(".", "x.qcow2")).CombinedOutput()
	if err != nil {
		t.Errorf("the image is damaged: %v\n%s", err, out)
	}
}
