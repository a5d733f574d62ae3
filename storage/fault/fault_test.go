package fault

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"byre/block"
	"byre/storage/mem"
)

var bg = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func over(t testing.TB, size int64, cfg Config) (*block.Device, *Driver) {
	t.Helper()
	d, err := New(block.NewDevice(mem.New(size)), cfg)
	must(t, err)
	dev := block.NewDevice(d)
	t.Cleanup(func() { dev.Close() })
	return dev, d
}

func TestRulesFailTheRequestsTheyName(t *testing.T) {
	buf := make([]byte, 512)
	ops := []struct {
		name string
		do   func(d *block.Device) error
	}{
		{"read 0", func(d *block.Device) error { return d.Read(bg, buf, 0) }},
		{"read 2", func(d *block.Device) error { return d.Read(bg, buf, 1024) }},
		{"write 0", func(d *block.Device) error { return d.Write(bg, buf, 0, 0) }},
		{"zero 0", func(d *block.Device) error { return d.Zero(bg, 0, 512, block.NoFallback) }},
		{"discard 0", func(d *block.Device) error { return d.Discard(bg, 0, 512) }},
		{"flush", func(d *block.Device) error { return d.Flush(bg) }},
		{"extent", func(d *block.Device) error { _, err := d.Extent(bg, 0, 512, 0); return err }},
		{"read 0 again", func(d *block.Device) error { return d.Read(bg, buf, 0) }},
	}
	event := func(e block.Event) func(*block.Device) { return func(d *block.Device) { d.Event(bg, e) } }
	for _, c := range []struct {
		name   string
		opts   string
		before func(*block.Device)
		fails  string // one letter an op: x = fails
		errno  syscall.Errno
		kind   block.Kind
	}{
		{"nothing is armed before its event", "inject-error.0.event=l2_load", nil, "........", 0, 0},
		{"an event arms all but extents", "inject-error.0.event=l2_load", event(block.EventL2Load), "xxxxxx.x", 5, block.KindIO},
		{"none arms at once", "inject-error.0.event=none,inject-error.0.errno=28", nil, "xxxxxx.x", 28, block.KindNoSpace},
		{"one type", "inject-error.0.event=none,inject-error.0.iotype=write-zeroes,inject-error.0.errno=95", nil, "...x....", 95, block.KindUnsupported},
		{"block-status must be named", "inject-error.0.event=none,inject-error.0.iotype=block-status", nil, "......x.", 5, block.KindIO},
		{"one sector", "inject-error.0.event=none,inject-error.0.sector=2", nil, ".x......", 5, block.KindIO},
		{"sector -1 is any", "inject-error.0.event=none,inject-error.0.sector=-1,inject-error.0.iotype=read", nil, "xx.....x", 5, block.KindIO},
		{"once", "inject-error.0.event=none,inject-error.0.once=on", nil, "x.......", 5, block.KindIO},
		{"a later event arms instead", "inject-error.0.event=none,inject-error.1.event=cow_read,inject-error.1.iotype=flush",
			event(block.EventCOWRead), ".....x..", 5, block.KindIO},
		{"both rules of an event", "inject-error.0.event=none,inject-error.0.iotype=flush,inject-error.1.event=none,inject-error.1.iotype=discard",
			nil, "....xx..", 5, block.KindIO},
		{"another state", "inject-error.0.event=l2_load,inject-error.0.state=2", event(block.EventL2Load), "........", 0, 0},
		{"the state is reached", "inject-error.0.event=l2_load,inject-error.0.state=2,set-state.0.event=cow_read,set-state.0.state=1,set-state.0.new_state=2",
			func(d *block.Device) { d.Event(bg, block.EventCOWRead); d.Event(bg, block.EventL2Load) }, "xxxxxx.x", 5, block.KindIO},
		{"the state is reached by the same event: too late", "inject-error.0.event=l2_load,inject-error.0.state=2,set-state.0.event=l2_load,set-state.0.new_state=2",
			event(block.EventL2Load), "........", 0, 0},
	} {
		cfg, err := ParseOptions(tree(c.opts), nil)
		must(t, err)
		dev, _ := over(t, 4096, cfg)
		if c.before != nil {
			c.before(dev)
		}
		got := ""
		for _, op := range ops {
			err := op.do(dev)
			if err == nil {
				got += "."
				continue
			}
			got += "x"
			var errno syscall.Errno
			if !errors.As(err, &errno) || errno != c.errno || block.KindOf(err) != c.kind {
				t.Errorf("%s: %s: %v (%v)", c.name, op.name, err, block.KindOf(err))
			}
		}
		if got != c.fails {
			t.Errorf("%s: %s, want %s", c.name, got, c.fails)
		}
	}
}

// tree makes "a=b,c=d" a map.
func tree(s string) map[string]string {
	m := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

func TestSkippedRequestsPass(t *testing.T) {
	dev, _ := over(t, 4096, Config{Rules: []Rule{{Event: block.EventNone, Types: Of(Write, Resize), Skip: 2, Once: true}}})
	for i, want := range []bool{true, true, false, true} {
		var err error
		if i%2 == 0 {
			err = dev.Write(bg, []byte{1}, 0, 0)
		} else {
			err = dev.Resize(bg, 8192, block.ResizeOptions{})
		}
		if (err == nil) != want {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestTheHookSeesEveryRequest(t *testing.T) {
	var seen []string
	cause := errors.New("no")
	dev, d := over(t, 4096, Config{Hook: func(ty IOType, off, n int64) error {
		seen = append(seen, ty.String())
		if ty == Resize {
			return cause
		}
		return nil
	}})
	dev.Read(bg, make([]byte, 4), 0)
	dev.Flush(bg)
	if _, err := d.GrowTo(bg, 1<<20); !errors.Is(err, cause) {
		t.Fatal(err)
	}
	if s := strings.Join(seen, " "); s != "read flush resize" {
		t.Fatal(s)
	}
}

func TestBreaksSuspendAndResumeByTag(t *testing.T) {
	dev, d := over(t, 4096, Config{})
	var log strings.Builder
	d.SetLog(&log)
	var wg sync.WaitGroup
	done := make(chan string, 3)
	run := func(name string, e block.Event) {
		wg.Go(func() {
			if err := dev.Event(bg, e); err != nil {
				name += ": " + err.Error()
			}
			done <- name
		})
	}
	d.Break(block.EventWriteAIO, "A")
	run("first", block.EventWriteAIO)
	must(t, d.WaitBreak(bg, "A"))
	run("second", block.EventWriteAIO) // the break is spent
	if got := <-done; got != "second" {
		t.Fatal(got)
	}
	d.Break(block.EventCOWRead, "A")
	run("third", block.EventCOWRead)
	for n := 0; n < 2; {
		time.Sleep(time.Millisecond)
		d.mu.Lock()
		n = len(d.mu.suspended)
		d.mu.Unlock()
	}
	if d.Resume("B") || !d.Resume("A") { // the last suspended goes first
		t.Fatal("resumed the wrong tag")
	}
	if got := <-done; got != "third" {
		t.Fatal(got)
	}
	if !d.Suspended("A") || d.RemoveBreak("A") {
		t.Fatal("remove")
	}
	if got := <-done; got != "first" {
		t.Fatal(got)
	}
	wg.Wait()
	want := "blkdebug: Suspended request 'A'\nblkdebug: Suspended request 'A'\n" +
		"blkdebug: Resuming request 'A'\nblkdebug: Resuming request 'A'\n"
	if log.String() != want {
		t.Fatalf("%q", log.String())
	}
	d.Break(block.EventCOWRead, "never")
	if !d.RemoveBreak("never") {
		t.Fatal("a break that nobody has reached was not found")
	}
	must(t, dev.Event(bg, block.EventCOWRead))
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	dev, d := over(t, 4096, Config{})
	ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
	defer cancel()
	if err := d.WaitBreak(ctx, "A"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	d.Break(block.EventCOWRead, "A")
	if err := dev.Event(ctx, block.EventCOWRead); !errors.Is(err, context.DeadlineExceeded) || d.Suspended("A") {
		t.Fatal(err)
	}
}

func TestLimitsAreShownAndProved(t *testing.T) {
	cfg, err := ParseOptions(tree("align=4k,max-transfer=64k,opt-write-zero=8192,max-write-zero=1M,opt-discard=4k,max-discard=2M"), nil)
	must(t, err)
	_, d := over(t, 1<<20, cfg)
	g := d.Geometry()
	if g.RequestAlign != 4096 || g.MaxTransfer != 65536 || g.ZeroAlign != 8192 || g.MaxZero != 1<<20 || g.DiscardAlign != 4096 || g.MaxDiscard != 2<<20 {
		t.Fatalf("%+v", g)
	}
	for _, err := range []error{
		d.ReadvAt(bg, [][]byte{make([]byte, 512)}, 0),
		d.ReadvAt(bg, [][]byte{make([]byte, 4096)}, 512),
		d.WritevAt(bg, [][]byte{make([]byte, 128<<10)}, 0, 0),
		d.ZeroAt(bg, 0, 2<<20, 0),
		d.DiscardAt(bg, 0, 4<<20),
	} {
		if block.KindOf(err) != block.KindInvalid {
			t.Error(err)
		}
	}
	if err := d.ZeroAt(bg, 0, 4096, 0); block.KindOf(err) != block.KindUnsupported {
		t.Error(err)
	}
}

func TestTheLastUnitMayReachBeyondAFixedEnd(t *testing.T) {
	below := mem.NewFile("f", 5000)
	d, err := New(block.NewDevice(below.Open(mem.Options{Fixed: true})), Config{Limits: Limits{Align: 4096}})
	must(t, err)
	b := make([]byte, 8192)
	for i := range b {
		b[i] = 7
	}
	must(t, d.WritevAt(bg, [][]byte{b[:4096], b[4096:]}, 0, 0))
	must(t, d.ReadvAt(bg, [][]byte{b[:6000], b[6000:]}, 0))
	if below.Size() != 5000 || b[4999] != 7 || b[5000] != 0 || b[8191] != 0 {
		t.Fatal("wrong tail")
	}
	must(t, d.ZeroAt(bg, 4096, 4096, 0))
	must(t, d.DiscardAt(bg, 4096, 4096))
}

func TestConfigurationFilesGiveTheSameRules(t *testing.T) {
	const text = `
# a comment
[inject-error]
event = "l2_load"
iotype = "read"
errno = "28"
sector = "9"
once = "on"
immediately = "on"
state = "2"

[set-state "id"]
  event = "read_aio"
state= "1"
new_state ="2"
`
	name := t.TempDir() + "/blkdebug.conf"
	must(t, os.WriteFile(name, []byte(text), 0o666))
	cfg, err := ParseOptions(tree("config="+name+",inject-error.0.event=none"), os.ReadFile)
	must(t, err)
	want := Rule{Event: block.EventL2Load, State: 2, Types: Of(Read), Errno: 28, Sector: 9, At: true, Once: true, Immediately: true}
	if len(cfg.Rules) != 2 || cfg.Rules[0] != want || cfg.Rules[1] != (Rule{Event: block.EventNone}) {
		t.Errorf("%+v", cfg.Rules)
	}
	if len(cfg.Transitions) != 1 || cfg.Transitions[0] != (Transition{block.EventReadAIO, 1, 2}) {
		t.Errorf("%+v", cfg.Transitions)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	for _, opts := range []string{
		"inject-error.0.event=nosuch", "inject-error.0.errno=5", "inject-error.1.event=none", "inject-error.x.event=none",
		"inject-error.0=none", "inject-error.0.event=none,inject-error.0.once=maybe", "inject-error.0.event=none,inject-error.0.iotype=resize",
		"inject-error.0.event=none,inject-error.0.errno=-5", "inject-error.0.event=none,inject-error.0.sector=x",
		"inject-error.0.event=none,inject-error.0.what=1", "set-state.0.event=none,set-state.0.errno=1", "nosuch=1", "align=x", "align=-1",
	} {
		if _, err := ParseOptions(tree(opts), nil); block.KindOf(err) != block.KindInvalid {
			t.Errorf("%s: %v", opts, err)
		}
	}
	for _, text := range []string{"[nosuch]\n", "event = \"none\"\n", "[inject-error]\nevent = none\n", "[inject-error]\n", "[inject-error\n", "[a b c]\n",
		"[inject-error]\nevent = \"none\"\nfoo = \"1\"\n"} {
		var cfg Config
		if err := ParseFile(&cfg, "f", []byte(text)); block.KindOf(err) != block.KindInvalid || !strings.Contains(err.Error(), "f: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, l := range []Limits{{Align: 3}, {Align: 512, MaxTransfer: 100}, {OptZero: 4096, MaxZero: 1024}, {MaxDiscard: 1 << 40}, {Align: 1 << 31}} {
		if _, err := New(block.NewDevice(mem.New(0)), Config{Limits: l}); block.KindOf(err) != block.KindInvalid {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if _, err := ParseOptions(tree("config=nosuch"), func(string) ([]byte, error) { return nil, os.ErrNotExist }); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("[inject-error]\nevent = \"l2_load\"\nonce = \"on\"\n[set-state \"x\"]\nevent=\"none\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var cfg Config
		if ParseFile(&cfg, "f", b) == nil {
			if d, err := New(block.NewDevice(mem.New(512)), cfg); err == nil {
				d.ReadvAt(bg, [][]byte{make([]byte, 512)}, 0)
			}
		}
	})
}
