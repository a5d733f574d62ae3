package qcow2

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"byre/block"
	"byre/storage/fault"
	"byre/storage/mem"
)

// stage is an image whose requests can be suspended at named steps.
type stage struct {
	*bench
	fault *fault.Driver
}

func newStage(t testing.TB, o CreateOptions, open Options, base []byte) *stage {
	t.Helper()
	s := &stage{bench: &bench{t: t, ctx: context.Background(), base: base, open: open, saved: map[string][]byte{}}}
	if base != nil {
		o.BackingFile, o.BackingFormat = "base", "raw"
	}
	s.img, s.data = createMem(t, o)
	s.model = make([]byte, o.Size)
	copy(s.model, base)
	s.openStaged()
	return s
}

func (s *stage) openStaged() {
	s.t.Helper()
	var err error
	s.fault, err = fault.New(block.NewDevice(s.img.Open(mem.Options{GrowStep: 1 << 20})), fault.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	o := s.open
	if s.data != nil {
		o.DataFile = block.NewDevice(s.data.Open(mem.Options{}))
	}
	im, err := Open(s.ctx, block.NewDevice(s.fault), o)
	if err != nil {
		s.t.Fatal(err)
	}
	var back *block.Device
	if s.base != nil {
		f := mem.NewFile("base", 0)
		f.WriteAt(s.base, 0)
		back = block.NewDevice(f.Open(mem.Options{ReadOnly: true}))
	}
	im.SetBacking(back)
	s.im, s.dev = im, block.NewDevice(im)
}

func pattern(c byte, n int64) []byte { return bytes.Repeat([]byte{c}, int(n)) }

// async runs f and returns the channel of its error.
func async(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// done waits for an asynchronous request.
func (s *stage) done(what string, c <-chan error) {
	s.t.Helper()
	select {
	case err := <-c:
		if err != nil {
			s.t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		s.t.Fatalf("%s hangs", what)
	}
}

// suspended starts a write that stops at event e. It is not suspended if it ends without getting there.
func (s *stage) suspended(e block.Event, tag string, c byte, off, n int64) (end <-chan error, held bool) {
	s.t.Helper()
	s.fault.Break(e, tag)
	end = async(func() error { return s.dev.Write(s.ctx, pattern(c, n), off, 0) })
	for {
		select {
		case err := <-end:
			if err != nil {
				s.t.Fatalf("write: %v", err)
			}
			s.fault.RemoveBreak(tag)
			ended := make(chan error, 1)
			ended <- nil
			return ended, false
		case <-time.After(time.Millisecond):
			if s.fault.Suspended(tag) {
				return end, true
			}
		}
	}
}

func (s *stage) fill(c byte, off, n int64) {
	s.t.Helper()
	s.write(pattern(c, n), off)
}

func (s *stage) want(c byte, off, n int64) {
	s.t.Helper()
	got := make([]byte, n)
	if err := s.dev.Read(s.ctx, got, off); err != nil {
		s.t.Fatal(err)
	}
	for i, b := range got {
		if b != c {
			s.t.Fatalf("byte %#x is %#x, want %#x", off+int64(i), b, c)
		}
	}
}

// closeClean closes the image and wants nothing found by the library's check.
func (s *stage) closeClean() {
	s.t.Helper()
	s.close()
	s.checkImage()
}

var stageKinds = []struct {
	name string
	o    CreateOptions
}{
	{"plain", CreateOptions{Size: 4 << 20}},
	{"extended", CreateOptions{Size: 4 << 20, ExtendedL2: true}},
	{"data file", CreateOptions{Size: 4 << 20, DataFile: "data"}},
}

// TestOverwriteAndDiscard: a write into an allocated cluster is suspended, the cluster is discarded, another write
// allocates. The suspended write must not hit the other's data.
func TestOverwriteAndDiscard(t *testing.T) {
	for _, k := range stageKinds {
		t.Run(k.name, func(t *testing.T) {
			s := newStage(t, k.o, Options{Write: WriteOptions{Discard: true}}, nil)
			s.fill(1, 0, 64<<10)
			s.flush()
			a, _ := s.suspended(block.EventWriteAIO, "A", 2, 0, 64<<10)
			s.done("discard", async(func() error { return s.dev.Discard(s.ctx, 0, 64<<10) }))
			s.done("flush", async(func() error { return s.dev.Flush(s.ctx) }))
			s.done("write", async(func() error { return s.dev.Write(s.ctx, pattern(3, 64<<10), 128<<10, 0) }))
			s.fault.Resume("A")
			s.done("A", a)
			s.want(3, 128<<10, 64<<10)
			s.closeClean()
		})
	}
}

// TestLinkAndDiscard: the same where the suspended write would change the entry of a cluster that it reuses.
func TestLinkAndDiscard(t *testing.T) {
	for _, k := range stageKinds {
		for _, n := range []int64{4 << 10, 2 << 10} {
			t.Run(fmt.Sprint(k.name, n), func(t *testing.T) {
				s := newStage(t, k.o, Options{Write: WriteOptions{Discard: true}}, nil)
				s.fill(1, 0, 64<<10)
				if err := s.dev.Zero(s.ctx, 0, 64<<10, 0); err != nil {
					t.Fatal(err)
				}
				a, _ := s.suspended(block.EventWriteAIO, "A", 2, 0, n)
				s.done("discard", async(func() error { return s.dev.Discard(s.ctx, 0, 64<<10) }))
				s.done("flush", async(func() error { return s.dev.Flush(s.ctx) }))
				s.done("write", async(func() error { return s.dev.Write(s.ctx, pattern(3, 64<<10), 128<<10, 0) }))
				s.fault.Resume("A")
				s.done("A", a)
				s.want(3, 128<<10, 64<<10)
				s.want(0, 64<<10, 64<<10)
				s.closeClean()
			})
		}
	}
}

// TestZeroWriteStaysBesideCopyOnWrite: an acknowledged zero write is not undone by a copy-on-write that was under way.
func TestZeroWriteStaysBesideCopyOnWrite(t *testing.T) {
	for _, k := range stageKinds {
		for _, flags := range []block.Flags{0, block.MayUnmap} {
			t.Run(fmt.Sprint(k.name, flags), func(t *testing.T) {
				s := newStage(t, k.o, Options{Write: WriteOptions{Discard: true}}, pattern(0xff, 4<<20))
				a, held := s.suspended(block.EventCOWWrite, "A", 2, 0, 4<<10)
				if !held && k.name != "extended" { // there 4 KiB are whole subclusters
					t.Fatal("no copy-on-write")
				}
				s.done("zero", async(func() error { return s.dev.Zero(s.ctx, 0, 64<<10, flags) }))
				s.want(0, 4<<10, 60<<10)
				s.fault.Resume("A")
				s.done("A", a)
				s.want(0, 4<<10, 60<<10)
				s.want(0xff, 64<<10, 64<<10)
				s.closeClean()
			})
		}
	}
}

// TestZeroWriteBesideCopyOfSubclusters: the ranges do not even meet; a copy of the whole cluster is under way.
func TestZeroWriteBesideCopyOfSubclusters(t *testing.T) {
	s := newStage(t, CreateOptions{Size: 1 << 20, ExtendedL2: true}, Options{}, nil)
	s.fill(0xff, 0, 64<<10)
	if _, err := s.im.CreateSnapshot(s.ctx, SnapshotOptions{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	a, held := s.suspended(block.EventCOWWrite, "A", 2, 0, 2<<10)
	if !held {
		t.Fatal("no copy-on-write")
	}
	s.done("zero", async(func() error { return s.dev.Zero(s.ctx, 32<<10, 2<<10, 0) }))
	s.want(0, 32<<10, 2<<10)
	s.fault.Resume("A")
	s.done("A", a)
	s.want(2, 0, 2<<10)
	s.want(0xff, 2<<10, 30<<10)
	s.want(0, 32<<10, 2<<10)
	s.want(0xff, 34<<10, 30<<10)
	s.closeClean()
}

// TestReadKeepsItsCluster: a read is suspended after its lookup, the cluster is discarded and the place used again.
func TestReadKeepsItsCluster(t *testing.T) {
	s := newStage(t, CreateOptions{Size: 4 << 20}, Options{Write: WriteOptions{Discard: true}}, nil)
	s.fill(1, 0, 64<<10)
	s.fault.Break(block.EventReadAIO, "A")
	got := make([]byte, 64<<10)
	a := async(func() error { return s.dev.Read(s.ctx, got, 0) })
	if err := s.fault.WaitBreak(s.ctx, "A"); err != nil {
		t.Fatal(err)
	}
	if err := s.dev.Discard(s.ctx, 0, 64<<10); err != nil {
		t.Fatal(err)
	}
	s.flush()
	for i := int64(1); i < 20; i++ {
		s.fill(3, i*64<<10, 64<<10)
		s.flush()
	}
	s.fault.Resume("A")
	s.done("A", a)
	for i, b := range got {
		if b != 1 && b != 0 {
			t.Fatalf("byte %#x is %#x", i, b)
		}
	}
	s.closeClean()
}

// TestASingleFreedClusterIsUsedAgain without reopening, and the file does not grow for what fits there.
func TestASingleFreedClusterIsUsedAgain(t *testing.T) {
	s := newStage(t, CreateOptions{Size: 16 << 20}, Options{}, nil)
	s.fill(1, 0, 512<<10)
	s.flush()
	if err := s.dev.Discard(s.ctx, 128<<10, 64<<10); err != nil {
		t.Fatal(err)
	}
	s.flush()
	s.fill(2, 1<<20, 128<<10)
	s.fill(3, 2<<20, 64<<10)
	e, err := s.dev.Extent(s.ctx, 2<<20, 64<<10, 0)
	if err != nil || e.Host != 458752 {
		t.Fatalf("the last cluster lies at %d (%v), want 458752", e.Host, err)
	}
	s.closeClean()
	if size := s.img.Size(); size > 1048576 {
		t.Errorf("the file has %d bytes", size)
	}
}

// concurrent are the requests that may arrive while a write is suspended. Each says what it leaves of a byte.
var concurrent = []struct {
	name string
	run  func(s *stage, off, n int64) error
	leav func(old byte) byte
}{
	{"discard", func(s *stage, off, n int64) error { return s.dev.Discard(s.ctx, off, n) }, func(byte) byte { return 0 }},
	{"zero", func(s *stage, off, n int64) error { return s.dev.Zero(s.ctx, off, n, 0) }, func(byte) byte { return 0 }},
	{"zero-unmap", func(s *stage, off, n int64) error { return s.dev.Zero(s.ctx, off, n, block.MayUnmap) }, func(byte) byte { return 0 }},
	{"write", func(s *stage, off, n int64) error { return s.dev.Write(s.ctx, pattern(9, n), off, 0) }, func(byte) byte { return 9 }},
	{"flush", func(s *stage, off, n int64) error { return s.dev.Flush(s.ctx) }, func(b byte) byte { return b }},
	{"read", func(s *stage, off, n int64) error { return s.dev.Read(s.ctx, make([]byte, n), off) }, func(b byte) byte { return b }},
	{"snapshot", func(s *stage, off, n int64) error {
		_, err := s.im.CreateSnapshot(s.ctx, SnapshotOptions{Name: "s"})
		return err
	}, func(b byte) byte { return b }},
	{"resize", func(s *stage, off, n int64) error { return s.dev.Resize(s.ctx, 5<<20, block.ResizeOptions{}) }, func(b byte) byte { return b }},
}

// TestRequestsThatArriveAtEveryStepOfAWrite: whatever arrives, the result is as if the two had happened one after the
// other, in either order, and the image is sound.
func TestRequestsThatArriveAtEveryStepOfAWrite(t *testing.T) {
	events := []block.Event{block.EventL2AllocWrite, block.EventClusterAlloc, block.EventWriteAIO, block.EventCOWRead,
		block.EventCOWWrite, block.EventClusterAllocSpace, block.EventRefblockUpdate, block.EventL2Update, block.EventL1Update}
	// What is at the place before: nothing, data, zeros with a place, data shared with a snapshot, a compressed cluster.
	before := []string{"nothing", "data", "zeros", "shared", "compressed"}
	for _, k := range stageKinds {
		for _, base := range [][]byte{nil, pattern(0xee, 4<<20)} {
			for _, b := range before {
				if k.o.DataFile != "" && (b == "shared" || b == "compressed") {
					continue
				}
				t.Run(fmt.Sprintf("%s/backing=%v/%s", k.name, base != nil, b), func(t *testing.T) {
					for _, e := range events {
						for _, x := range concurrent {
							if k.o.DataFile != "" && x.name == "snapshot" {
								continue
							}
							arriveAt(t, k.o, base, b, e, x.name, x.run, x.leav)
						}
					}
				})
			}
		}
	}
}

func arriveAt(t *testing.T, o CreateOptions, base []byte, before string, e block.Event, name string,
	run func(*stage, int64, int64) error, leave func(byte) byte) {
	t.Helper()
	const at, n = 64<<10 + 4096, 6 << 10 // the suspended write
	const xat, xn = 64 << 10, 64 << 10   // what arrives
	s := newStage(t, o, Options{Write: WriteOptions{Discard: true}}, base)
	old := byte(0)
	if base != nil {
		old = 0xee
	}
	switch before {
	case "data", "shared":
		s.fill(1, xat, xn)
		old = 1
		if before == "shared" {
			if _, err := s.im.CreateSnapshot(s.ctx, SnapshotOptions{Name: "before"}); err != nil {
				t.Fatal(err)
			}
		}
	case "zeros":
		s.fill(1, xat, xn)
		if err := s.dev.Zero(s.ctx, xat, xn, 0); err != nil {
			t.Fatal(err)
		}
		old = 0
	case "compressed":
		if err := s.dev.Write(s.ctx, pattern(1, xn), xat, block.Compressed); err != nil {
			t.Fatal(err)
		}
		old = 1
	}
	s.flush()
	what := fmt.Sprintf("%v, %s", e, name)
	s.fault.Break(e, "A")
	a := async(func() error { return s.dev.Write(s.ctx, pattern(2, n), at, block.FUA) })
	for waited := time.Duration(0); !s.fault.Suspended("A") && len(a) == 0 && waited < 10*time.Second; waited += time.Millisecond / 4 {
		time.Sleep(time.Millisecond / 4)
	}
	x := async(func() error { return run(s, xat, xn) })
	select {
	case err := <-x: // it need not wait
		x = async(func() error { return err })
	case <-time.After(2 * time.Millisecond):
	}
	y := async(func() error { return s.dev.Write(s.ctx, pattern(7, 64<<10), 256<<10, 0) })
	s.fault.RemoveBreak("A")
	s.done(what+": suspended write", a)
	s.done(what+": what arrived", x)
	s.done(what+": third write", y)
	got := make([]byte, xn)
	if err := s.dev.Read(s.ctx, got, xat); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i, b := range got {
		in := int64(i)+xat >= at && int64(i)+xat < at+n
		first, second := leave(old), leave(old)
		if in {
			first, second = leave(2), 2
		}
		if b != first && b != second {
			t.Fatalf("%s: byte %#x is %#x, want %#x or %#x", what, int64(i)+xat, b, first, second)
		}
	}
	s.want(7, 256<<10, 64<<10)
	s.closeClean()
}
