package qcow2

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/qcow2/check"
	"byre/storage/mem"
)

// crashHistory is a history on recorded files, with what must hold at each cut.
type crashHistory struct {
	t     testing.TB
	clk   *mem.Clock
	f     flavour
	b     *bench
	steps []crashStep
	solid []solidState
}

// crashStep is an operation and the events it took.
type crashStep struct {
	op         op
	start, end int
	from, to   int64  // guest range whose contents it may change
	size       int64  // of the disk, when it has ended
	model      []byte // contents of the disk before, of an operation on snapshots
}

// solidState is what is durable from event pos on.
type solidState struct {
	pos   int
	steps int // operations that had ended
	model []byte
	saved map[string][]byte
}

func runCrashHistory(t testing.TB, f flavour, seed uint64, n int) *crashHistory {
	t.Helper()
	h := &crashHistory{t: t, clk: mem.NewClock(), f: f}
	h.b = newBenchOn(t, h.clk, f.o, f.open, testBase(f))
	rnd := rand.New(rand.NewPCG(seed, 99))
	h.isSolid()
	for range n {
		o := randomOp(rnd, h.b, defaultWeights)
		h.do(o)
	}
	h.do(op{kind: doReopen})
	h.b.verify()
	return h
}

func (h *crashHistory) isSolid() {
	h.solid = append(h.solid, solidState{h.clk.Now(), len(h.steps), bytes.Clone(h.b.model), maps.Clone(h.b.saved)})
}

func (h *crashHistory) do(o op) {
	h.t.Helper()
	s := crashStep{op: o, start: h.clk.Now(), from: o.off, to: o.off + o.n}
	switch o.kind {
	case doFlush, doReopen:
		s.to = s.from
	case doSnapshot, doApply, doDelete:
		s.model = bytes.Clone(h.b.model)
	case doDiscard:
		cs := h.b.im.geo.ClusterSize()
		s.from, s.to = s.from&^(cs-1), (s.to+cs-1)&^(cs-1)
	case doResize:
		s.from, s.to = min(o.n, int64(len(h.b.model))), 1<<62
	}
	if err := h.b.do(o); err != nil {
		h.t.Fatalf("%v: %v", o, err)
	}
	s.end, s.size = h.clk.Now(), int64(len(h.b.model))
	h.steps = append(h.steps, s)
	if h.b.refused {
		return
	}
	switch o.kind {
	case doFlush, doReopen, doResize, doSnapshot, doApply, doDelete:
		h.isSolid()
	}
}

// crashExpect is what must be found after a cut.
type crashExpect struct {
	model []byte
	sizes map[int64]bool
	saved map[string][]byte
	under *crashStep                // an operation on snapshots that the cut ended
	touch func(from, to int64) bool // whether a range may hold something else
}

func (h *crashHistory) expect(cut int) crashExpect {
	s := h.solid[0]
	for _, x := range h.solid {
		if x.pos <= cut {
			s = x
		}
	}
	e := crashExpect{model: s.model, sizes: map[int64]bool{int64(len(s.model)): true}, saved: s.saved}
	var ranges [][2]int64
	for i := range h.steps[s.steps:] {
		st := &h.steps[s.steps+i]
		if st.start >= cut {
			break
		}
		if st.model != nil {
			e.under = st
			continue
		}
		if st.from < st.to {
			ranges = append(ranges, [2]int64{st.from, st.to})
		}
		e.sizes[st.size] = true
	}
	e.touch = func(from, to int64) bool {
		for _, r := range ranges {
			if from < r[1] && r[0] < to {
				return true
			}
		}
		return false
	}
	return e
}

// judge wants the disk and its snapshots as they were.
func (e *crashExpect) judge(dev *block.Device) error {
	im := dev.Driver().(*Image)
	list := im.Snapshots()
	seen := map[string]bool{}
	for _, s := range list {
		seen[s.Name] = true
		want := e.saved[s.Name]
		if want == nil && e.under != nil && e.under.op.kind == doSnapshot && e.under.op.name == s.Name {
			want = e.under.model
		}
		if want == nil {
			return fmt.Errorf("there is a snapshot %s", s.Name)
		}
		v, err := im.OpenSnapshot(s.Name)
		if err != nil {
			return err
		}
		got := make([]byte, v.Size())
		err = v.ReadvAt(context.Background(), [][]byte{got}, 0)
		v.Close()
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("snapshot %s has other contents than it had, %v", s.Name, err)
		}
	}
	for name := range e.saved {
		if !seen[name] && !(e.under != nil && e.under.op.kind == doDelete && e.under.op.name == name) {
			return fmt.Errorf("snapshot %s is gone", name)
		}
	}
	err := e.compare(dev)
	if err != nil && e.under != nil && e.under.op.kind == doApply {
		want := e.saved[e.under.op.name]
		to := crashExpect{model: want, sizes: map[int64]bool{int64(len(want)): true}, touch: func(int64, int64) bool { return false }}
		if to.compare(dev) == nil {
			// From now on this is what must hold.
			*e = crashExpect{model: want, sizes: to.sizes, saved: e.saved, touch: to.touch}
			return nil
		}
	}
	return err
}

// compare reads the whole disk and wants every sector that nothing touched since the last flush as it was then.
func (e *crashExpect) compare(dev *block.Device) error {
	size := dev.Size()
	if !e.sizes[size] {
		return fmt.Errorf("the disk has %d bytes, want one of %v", size, e.sizes)
	}
	got := make([]byte, size)
	if err := dev.Read(context.Background(), got, 0); err != nil {
		return err
	}
	for at := int64(0); at < min(size, int64(len(e.model))); at += 512 {
		if !e.touch(at, at+512) && !bytes.Equal(got[at:at+512], e.model[at:at+512]) {
			return fmt.Errorf("flushed sector at %#x reads %x…, want %x…", at, got[at:at+4], e.model[at:at+4])
		}
	}
	return nil
}

// openCrashed opens what a cut left.
func (h *crashHistory) openCrashed(img, data *mem.File) (*block.Device, error) {
	o := h.f.open
	if data != nil {
		o.DataFile = block.NewDevice(data.Open(mem.Options{}))
	}
	im, err := Open(context.Background(), block.NewDevice(img.Open(mem.Options{GrowStep: 1 << 16})), o)
	if err != nil {
		return nil, err
	}
	var back *block.Device
	if h.b.base != nil {
		f := mem.NewFile("base", 0)
		f.WriteAt(h.b.base, 0)
		back = block.NewDevice(f.Open(mem.Options{ReadOnly: true}))
	}
	im.SetBacking(back)
	return block.NewDevice(im), nil
}

// judgeCheck wants at most leaks, and flags that differ because of them (qcow2-format §8.9), and that repairing leaks
// (everything, under the dirty bit) ends clean.
func judgeCheck(img *mem.File) error {
	ctx := context.Background()
	h, err := ReadHeader(ctx, block.NewDevice(img.Clone().Open(mem.Options{})), false)
	if err != nil {
		return err
	}
	level := check.Leaks
	if h.HasIncompatible(1) {
		level = check.All
	} else {
		var bad []string
		_, err := check.Run(ctx, block.NewDevice(img.Clone().Open(mem.Options{})), check.Options{Workers: 1, Report: func(f *check.Finding) {
			if f.Class != check.Leak && f.Kind != check.CopiedData && f.Kind != check.CopiedL2Table {
				bad = append(bad, f.String())
			}
		}})
		if err != nil {
			return err
		}
		if bad != nil {
			return fmt.Errorf("check found %s", strings.Join(bad, "; "))
		}
	}
	res, err := check.Run(ctx, block.NewDevice(img.Clone().Open(mem.Options{})), check.Options{Workers: 1, Repair: level})
	if err != nil || !res.Clean() {
		return fmt.Errorf("repair of level %d ends with %+v, %v", level, res, err)
	}
	return nil
}

// judge is everything that must hold after one cut.
func (h *crashHistory) judge(c *mem.Crash, e *crashExpect, rnd *rand.Rand) error {
	img := c.File(h.b.img)
	var data *mem.File
	if h.b.data != nil {
		data = c.File(h.b.data)
	}
	deep := rnd.IntN(4) == 0
	if deep {
		if err := judgeCheck(img); err != nil {
			return err
		}
	}
	dev, err := h.openCrashed(img, data)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	now := *e
	if err := now.judge(dev); err != nil {
		return err
	}
	if !deep {
		return dev.Close()
	}
	return h.goOn(dev, img, &now, rnd)
}

// goOn writes to an image after a cut, without a check before, and looks again.
func (h *crashHistory) goOn(dev *block.Device, img *mem.File, e *crashExpect, rnd *rand.Rand) error {
	ctx := context.Background()
	size := dev.Size()
	var mine [][2]int64
	want := map[int64][]byte{}
	for range 6 {
		n := min(512*(1+rnd.Int64N(8)), size)
		off := rnd.Int64N(size-n+1) &^ 511
		p := randomBytes(rnd, n)
		if err := dev.Write(ctx, p, off, 0); err != nil {
			return fmt.Errorf("write after the cut: %w", err)
		}
		mine = append(mine, [2]int64{off, off + n})
		for i := int64(0); i < n; i += 512 {
			want[off+i] = p[i : i+512]
		}
		if rnd.IntN(3) == 0 {
			if err := dev.Flush(ctx); err != nil {
				return err
			}
		}
	}
	if err := dev.Close(); err != nil {
		return fmt.Errorf("close after the cut: %w", err)
	}
	if err := judgeCheck(img); err != nil {
		return fmt.Errorf("after writing on: %w", err)
	}
	e2 := *e
	e2.touch = func(from, to int64) bool {
		for _, r := range mine {
			if from < r[1] && r[0] < to {
				return true
			}
		}
		return e.touch(from, to)
	}
	again, err := h.openCrashed(img, nil)
	if h.b.data != nil {
		return nil // the data file's clone went with the first opening
	}
	if err != nil {
		return err
	}
	defer again.Close()
	if err := e2.judge(again); err != nil {
		return fmt.Errorf("after writing on: %w", err)
	}
	for off, p := range want {
		got := make([]byte, 512)
		if err := again.Read(ctx, got, off); err != nil || !bytes.Equal(got, p) {
			return fmt.Errorf("after writing on: sector %#x: %v, %x…, want %x…", off, err, got[:4], p[:4])
		}
	}
	return nil
}

// cutAll visits crash states of the whole history and returns how many.
func (h *crashHistory) cutAll(seed uint64, subsets, torn int) (n int) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	for k := 0; k <= h.clk.Now() && !h.t.Failed(); k++ {
		e := h.expect(k)
		n += h.clk.Each(k, mem.Enumeration{Subsets: subsets, Torn: torn, Seed: seed}, func(c *mem.Crash) bool {
			if err := h.judge(c, &e, rnd); err != nil {
				h.t.Errorf("%s, seed %d: %v\n%v\n%s", h.f.name, seed, err, c, h.around(k))
				return false
			}
			return true
		})
	}
	return n
}

// around names the operations near a cut.
func (h *crashHistory) around(k int) string {
	var b strings.Builder
	for i, s := range h.steps {
		if s.end >= k-12 && s.start <= k {
			fmt.Fprintf(&b, "\tstep %d: events %d…%d: %v\n", i, s.start, s.end, s.op)
			for e := s.start; e < s.end && e < k; e++ {
				fmt.Fprintf(&b, "\t\t%d %v\n", e, h.clk.Event(e))
			}
		}
	}
	return b.String()
}

func TestPowerCutsLeaveSoundImages(t *testing.T) {
	want := 20000
	if n, err := strconv.Atoi(os.Getenv("BYRE_CUTS")); err == nil {
		want = n
	} else if testing.Short() {
		want = 2000
	}
	all := flavours()
	first, _ := strconv.ParseUint(os.Getenv("BYRE_SEED"), 10, 64)
	var total atomic.Int64
	for seed := first; total.Load() < int64(want) && !t.Failed(); {
		t.Run(fmt.Sprint("from seed ", seed), func(t *testing.T) {
			for range runtime.GOMAXPROCS(0) {
				f, s := all[int(seed)%len(all)], seed
				t.Run(fmt.Sprintf("%d %s", s, f.name), func(t *testing.T) {
					t.Parallel()
					h := runCrashHistory(t, f, s, 60)
					total.Add(int64(h.cutAll(s, 6, 2)))
					h.b.close()
				})
				seed++
			}
		})
	}
	t.Logf("%d cuts", total.Load())
}

// TestPowerCutsAreJudgedAlikeByTheRealTool takes a sample of cuts to the real check.
func TestPowerCutsAreJudgedAlikeByTheRealTool(t *testing.T) {
	qemu := testenv.Tool(t, "qemu-img")
	dir := t.TempDir()
	for seed, f := range flavours() {
		h := runCrashHistory(t, f, uint64(seed)+1000, 40)
		rnd := rand.New(rand.NewPCG(uint64(seed), 8))
		for range 6 {
			k := rnd.IntN(h.clk.Now() + 1)
			c := h.clk.CrashAt(k, func(int, *mem.Event) mem.Fate { return []mem.Fate{mem.Keep, mem.Drop}[rnd.IntN(2)] })
			path := dump(t, c.File(h.b.img), filepath.Join(dir, "image"))
			if h.b.data != nil {
				dump(t, c.File(h.b.data), filepath.Join(dir, "data"))
			}
			os.WriteFile(filepath.Join(dir, "base"), h.b.base, 0o644)
			args := []string{"check", "-f", "qcow2", "-r", "leaks", path}
			if hd, err := ReadHeader(context.Background(), block.NewDevice(c.File(h.b.img).Open(mem.Options{})), false); err != nil {
				t.Fatal(err)
			} else if hd.HasIncompatible(1) {
				args[4] = "all"
			}
			cmd := exec.Command(qemu, args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %v\n%s%v", f.name, args, err, out, c)
			}
		}
		h.b.close()
	}
}
