package qcow2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"byre/block"
	"byre/qcow2"
	"byre/qcow2/check"
	"byre/storage/fault"
	"byre/storage/mem"
)

// Staged interleavings: a request is suspended at each named step in turn while another arrives. Whatever the two are,
// the image must end as after one of the two orders, byte by byte, and be clean.

const (
	stageCluster = 64 << 10
	stageSize    = 16 * stageCluster
)

var errStage = errors.New("staged failure")

// stageFlavour is a kind of image.
type stageFlavour struct {
	name     string
	create   qcow2.CreateOptions
	write    qcow2.WriteOptions
	backed   bool
	snapshot bool
}

func stageFlavours() []stageFlavour {
	ext := qcow2.CreateOptions{ExtendedL2: true}
	discard := qcow2.WriteOptions{Discard: true}
	return []stageFlavour{
		{name: "plain", write: discard},
		{name: "v2", create: qcow2.CreateOptions{Version: 2}},
		{name: "backed", backed: true, write: discard},
		{name: "snapshot", snapshot: true},
		{name: "lazy", create: qcow2.CreateOptions{LazyRefcounts: true}, snapshot: true, backed: true},
		{name: "data file", create: qcow2.CreateOptions{DataFile: "data"}},
		{name: "extended", create: ext, write: discard},
		{name: "extended, backed, snapshot", create: ext, backed: true, snapshot: true},
		{name: "extended, strict", create: ext, write: qcow2.WriteOptions{Dependency: qcow2.DependencyStrict}, backed: true},
		{name: "extended, joined", create: ext, write: qcow2.WriteOptions{Dependency: qcow2.DependencyJoined, Discard: true}},
		{name: "extended, data file", create: qcow2.CreateOptions{DataFile: "data", ExtendedL2: true}},
	}
}

// stand is an image under test.
type stand struct {
	f          stageFlavour
	file, data *mem.File
	base       *mem.File
	fault      *fault.Driver
	dev        *block.Device
	im         *qcow2.Image
	failNext   atomic.Bool
}

// stageOp is a request. It touches [off, off+n) and leaves want there; want < 0 is a discard.
type stageOp struct {
	name   string
	off, n int64
	want   int
	do     func(s *stand) error
	check  func(t *testing.T, s *stand, may func(i int64, b byte) bool) // of what it saw
}

func stageWrite(off, n int64, fill byte, flags block.Flags) stageOp {
	how := ""
	if flags&block.Compressed != 0 {
		how = "compressed "
	}
	return stageOp{name: fmt.Sprintf("%swrite %d+%d", how, off, n), off: off, n: n, want: int(fill), do: func(s *stand) error {
		return s.dev.Write(context.Background(), bytes.Repeat([]byte{fill}, int(n)), off, flags)
	}}
}

func stageZero(off, n int64, flags block.Flags) stageOp {
	return stageOp{name: fmt.Sprintf("zero %d+%d flags %d", off, n, flags), off: off, n: n, do: func(s *stand) error {
		return s.dev.Zero(context.Background(), off, n, flags)
	}}
}

func stageDiscard(off, n int64) stageOp {
	return stageOp{name: fmt.Sprintf("discard %d+%d", off, n), off: off, n: n, want: -1, do: func(s *stand) error {
		return s.dev.Discard(context.Background(), off, n)
	}}
}

func stageRead(off, n int64) stageOp {
	var got []byte
	return stageOp{name: fmt.Sprintf("read %d+%d", off, n), do: func(s *stand) error {
		got = make([]byte, n)
		return s.dev.Read(context.Background(), got, off)
	}, check: func(t *testing.T, s *stand, may func(int64, byte) bool) {
		for i, b := range got {
			if !may(off+int64(i), b) {
				t.Fatalf("read %#x at %#x", b, off+int64(i))
			}
		}
	}}
}

// firstOps are suspended; c is the start of the cluster that they aim at.
func firstOps(c int64) []stageOp {
	const k = 1024
	return []stageOp{
		stageWrite(c+4*k, 2*k, 0xa1, 0),
		stageWrite(c+62*k, 10*k, 0xa2, 0),
		stageWrite(c+5*k+512, 512, 0xa3, block.FUA),
		stageZero(c+4*k, 8*k, 0),
		stageZero(c, 64*k, block.MayUnmap),
		stageDiscard(c, 64*k),
		stageRead(c+2*k, 62*k),
		stageWrite(c, 64*k, 0xa4, block.Compressed),
	}
}

// secondOps arrive meanwhile.
func secondOps(c int64) []stageOp {
	const k = 1024
	return []stageOp{
		stageWrite(c+4*k, 2*k, 0xb1, 0),
		stageWrite(c+40*k, 2*k, 0xb2, 0),
		stageWrite(c+60*k, 70*k, 0xb3, 0),
		stageWrite(12*stageCluster, 3*k, 0xb4, block.FUA),
		stageZero(c, 64*k, 0),
		stageZero(c, 64*k, block.MayUnmap),
		stageZero(c+32*k, 2*k, 0),
		stageDiscard(c, 64*k),
		stageDiscard(0, stageSize),
		stageWrite(c, 64*k, 0xb5, block.Compressed),
		stageRead(c, 64*k),
		{name: "flush", do: func(s *stand) error { return s.dev.Flush(context.Background()) }},
		{name: "grow", do: func(s *stand) error {
			return s.dev.Resize(context.Background(), 2*stageSize, block.ResizeOptions{})
		}},
		{name: "snapshot", do: func(s *stand) error {
			if s.f.create.DataFile != "" {
				return nil
			}
			_, err := s.im.CreateSnapshot(context.Background(), qcow2.SnapshotOptions{Name: "staged"})
			return err
		}, check: func(t *testing.T, s *stand, may func(int64, byte) bool) {
			if s.f.create.DataFile != "" {
				return
			}
			snap, err := s.im.OpenSnapshot("staged")
			if err != nil {
				t.Fatal(err)
			}
			dev := block.NewDevice(snap)
			got := make([]byte, stageSize)
			if err := dev.Read(context.Background(), got, 0); err != nil {
				t.Fatal(err)
			}
			dev.Close()
			for i, b := range got {
				if !may(int64(i), b) {
					t.Fatalf("the snapshot has %#x at %#x", b, i)
				}
			}
		}},
	}
}

// stageEvents are the steps at which a request is held.
var stageEvents = []block.Event{
	block.EventL2Load, block.EventL2Update, block.EventL2AllocCOWRead, block.EventL2AllocWrite, block.EventL1Update,
	block.EventReadAIO, block.EventReadBackingAIO, block.EventReadCompressed, block.EventWriteAIO, block.EventWriteCompressed,
	block.EventCOWRead, block.EventCOWWrite, block.EventRefblockLoad, block.EventRefblockUpdate, block.EventRefblockUpdatePart,
	block.EventClusterAlloc, block.EventClusterAllocBytes, block.EventClusterFree, block.EventClusterAllocSpace,
	block.EventFlushToOS, block.EventFlushToDisk, block.EventPwritev, block.EventPwritevZero, block.EventPwritevDone,
	block.EventNone, // not held at all: the two run free
}

// stageImage makes the image that all cases of a flavour start from: clusters 0 to 5 are data, partly data, plain
// zeros, nothing, compressed, and zeros with a place.
func stageImage(t *testing.T, f stageFlavour) *stand {
	t.Helper()
	s := &stand{f: f, file: mem.NewFile("image", 0)}
	if f.backed {
		s.base = mem.NewFile("base", 0)
		if _, err := s.base.WriteAt(bytes.Repeat([]byte{0xee}, stageSize), 0); err != nil {
			t.Fatal(err)
		}
	}
	o := f.create
	o.Size = stageSize
	if o.DataFile != "" {
		s.data = mem.NewFile("data", 0)
		o.Data = block.NewDevice(s.data.Open(mem.Options{}))
	}
	if f.backed {
		o.BackingFile = "base"
	}
	if err := qcow2.Create(context.Background(), block.NewDevice(s.file.Open(mem.Options{})), o); err != nil {
		t.Fatal(err)
	}
	s.open(t)
	partial := int64(stageCluster)
	if o.ExtendedL2 {
		partial = 2 << 10
	}
	for _, op := range []stageOp{
		stageWrite(0, stageCluster, 0x11, 0),
		stageWrite(stageCluster, partial, 0x12, 0),
		stageZero(2*stageCluster, stageCluster, block.MayUnmap),
		stageWrite(5*stageCluster, stageCluster, 0x15, 0),
		stageZero(5*stageCluster, stageCluster, 0),
	} {
		if err := op.do(s); err != nil {
			t.Fatal(op.name, err)
		}
	}
	if o.DataFile == "" {
		if err := stageWrite(4*stageCluster, stageCluster, 0x14, block.Compressed).do(s); err != nil {
			t.Fatal(err)
		}
	}
	if f.snapshot {
		if _, err := s.im.CreateSnapshot(context.Background(), qcow2.SnapshotOptions{Name: "before"}); err != nil {
			t.Fatal(err)
		}
	}
	s.close(t)
	return s
}

// open opens the image over a fault-injecting layer.
func (s *stand) open(t *testing.T) {
	t.Helper()
	hook := func(ty fault.IOType, _, _ int64) error {
		if ty != fault.BlockStatus && s.failNext.Load() && s.failNext.CompareAndSwap(true, false) {
			return &block.Error{Kind: block.KindIO, Op: ty.String(), Path: "image", Offset: block.NoOffset, Err: errStage}
		}
		return nil
	}
	d, err := fault.New(block.NewDevice(s.file.Open(mem.Options{})), fault.Config{Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	s.fault = d
	o := qcow2.Options{Write: s.f.write}
	if s.data != nil {
		o.DataFile = block.NewDevice(s.data.Open(mem.Options{}))
	}
	if s.base != nil {
		o.Backing = block.NewDevice(s.base.Open(mem.Options{ReadOnly: true}))
	}
	if s.im, err = qcow2.Open(context.Background(), block.NewDevice(d), o); err != nil {
		t.Fatal(err)
	}
	s.dev = block.NewDevice(s.im)
}

func (s *stand) close(t *testing.T) {
	t.Helper()
	if err := s.dev.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// clone gives a stand with files of its own.
func (s *stand) clone() *stand {
	c := &stand{f: s.f, file: s.file.Clone(), base: s.base}
	if s.data != nil {
		c.data = s.data.Clone()
	}
	return c
}

func (s *stand) contents(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, stageSize)
	if err := s.dev.Read(context.Background(), b, 0); err != nil {
		t.Fatalf("read back: %v", err)
	}
	return b
}

// stageEnd is how a request ended.
type stageEnd struct {
	stageOp
	err error
}

// may tells whether byte i may be b after the requests.
func mayBe(base []byte, ends ...stageEnd) func(i int64, b byte) bool {
	return func(i int64, b byte) bool {
		touched := false
		for _, e := range ends {
			if i < e.off || i >= e.off+e.n {
				continue
			}
			// A failed request may or may not have reached a byte, a discard may keep it or give it up (to what lies below).
			touched = touched || e.err == nil && e.want >= 0
			if e.want >= 0 && b == byte(e.want) || e.want < 0 && (b == 0 || b == 0xee) {
				return true
			}
		}
		return !touched && b == base[i]
	}
}

// stageCase runs first, held at e, and second, and judges. fail makes one request to the file fail after the release.
func stageCase(t *testing.T, from *stand, base []byte, first, second stageOp, e block.Event, fail bool) {
	t.Helper()
	s := from.clone()
	s.open(t)
	done1, done2 := make(chan error, 1), make(chan error, 1)
	if e != block.EventNone {
		s.fault.Break(e, "A")
	}
	go func() { done1 <- first.do(s) }()
	a, b := stageEnd{stageOp: first}, stageEnd{stageOp: second}
	ended := false
	if e != block.EventNone {
		for !ended && !s.fault.Suspended("A") {
			select {
			case a.err = <-done1:
				ended = true
			case <-time.After(20 * time.Microsecond):
			}
		}
		if ended {
			s.fault.RemoveBreak("A")
		}
	}
	go func() { done2 <- second.do(s) }()
	ended2 := false
	select {
	case b.err = <-done2:
		ended2 = true
	case <-time.After(time.Millisecond):
	}
	s.failNext.Store(fail)
	s.fault.Resume("A")
	limit := time.After(20 * time.Second)
	for _, w := range []struct {
		over bool
		c    chan error
		to   *error
		name string
	}{{ended, done1, &a.err, first.name}, {ended2, done2, &b.err, second.name}} {
		if w.over {
			continue
		}
		select {
		case *w.to = <-w.c:
		case <-limit:
			buf := make([]byte, 1<<20)
			t.Fatalf("%s does not end\n%s", w.name, buf[:runtime.Stack(buf, true)])
		}
	}
	s.failNext.Store(false)
	for _, x := range []stageEnd{a, b} {
		if x.err == nil {
			continue
		}
		// A compressed write is refused where something is allocated.
		refused := strings.HasPrefix(x.name, "compressed") && strings.Contains(x.err.Error(), "allocated already")
		if !refused && !(fail && errors.Is(x.err, errStage)) {
			t.Fatalf("%s: %v", x.name, x.err)
		}
	}
	judge(t, s, base, a, b, fail)
}

// judge compares contents, before and after closing, and checks the file.
func judge(t *testing.T, s *stand, base []byte, a, b stageEnd, fail bool) {
	t.Helper()
	may := mayBe(base, a, b)
	look := func(when string) []byte {
		got := s.contents(t)
		for i, x := range got {
			if !may(int64(i), x) {
				t.Fatalf("%s: byte %#x is %#x, was %#x", when, i, x, base[i])
			}
		}
		return got
	}
	var live []byte
	if !fail {
		live = look("live")
		seen := mayBe(base, stageEnd{stageOp: a.stageOp, err: errStage}, stageEnd{stageOp: b.stageOp, err: errStage})
		for _, x := range []stageEnd{a, b} {
			if x.check != nil {
				x.check(t, s, seen)
			}
		}
	}
	if err := s.dev.Close(); err != nil {
		if !fail {
			t.Fatalf("close: %v", err)
		}
		// Nothing was flushed, so what the requests have done may be lost.
		may = mayBe(base, stageEnd{stageOp: a.stageOp, err: errStage}, stageEnd{stageOp: b.stageOp, err: errStage})
	}
	var found strings.Builder
	r, err := check.Run(context.Background(), block.NewDevice(s.file.Open(mem.Options{ReadOnly: true})),
		check.Options{Workers: 1, Report: func(f *check.Finding) { fmt.Fprintln(&found, f) }})
	if err != nil || r.Corruptions+r.Errors > 0 || !fail && r.Leaks > 0 {
		t.Fatalf("ends %v, %v; check: %v, %+v\n%s", a.err, b.err, err, r, &found)
	}
	s.open(t)
	again := look("reopened")
	if live != nil && !bytes.Equal(live, again) {
		t.Fatal("contents differ after reopening")
	}
	s.close(t)
}

func TestWhateverArrivesWhileARequestIsHeldEndsInOneOfTheOrders(t *testing.T) {
	stageAll(t, false)
}

func TestAFailureOfOneOfTwoRequestsHurtsNobodyElse(t *testing.T) { stageAll(t, true) }

// stageAll runs a random choice of the cases over all flavours: about 150 (40 if short), or as many as BYRE_STAGE_CASES
// says.
func stageAll(t *testing.T, fail bool) {
	n := 150
	if testing.Short() {
		n = 40
	}
	if s := os.Getenv("BYRE_STAGE_CASES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	flavours := stageFlavours()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			from := stageImage(t, f)
			probe := from.clone()
			probe.open(t)
			base := probe.contents(t)
			probe.close(t)
			total := 6 * len(firstOps(0)) * len(secondOps(0)) * len(stageEvents)
			for c := range int64(6) {
				for _, first := range firstOps(c * stageCluster) {
					for _, second := range secondOps(c * stageCluster) {
						for _, e := range stageEvents {
							if rnd.IntN(total) >= n/len(flavours) {
								continue
							}
							if f.create.DataFile != "" && strings.Contains(first.name+second.name, "compressed") {
								continue // there is no such thing
							}
							name := fmt.Sprintf("cluster %d: %s held at %v, %s", c, first.name, e, second.name)
							if !t.Run(name, func(t *testing.T) { stageCase(t, from, base, first, second, e, fail) }) && t.Failed() {
								return
							}
						}
					}
				}
			}
		})
	}
}
