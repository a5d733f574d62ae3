package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"byre/block"
)

// fakeDriver notes what it is asked, and can be slow or fail.
type fakeDriver struct {
	block.Driver // of what is not called, nil
	size         int64
	delay        time.Duration
	failAt       int64 // offset whose request fails, -1: none
	quiet        bool
	mu           struct {
		sync.Mutex
		data     []byte
		log      []op
		inFlight int
		deepest  int
	}
}

type op struct {
	kind        byte // r, w, f
	off, n      int64
	first, last byte
	inFlight    int // others that had not completed
}

func newFake(size int64) *fakeDriver { return &fakeDriver{size: size, failAt: -1} }

func (f *fakeDriver) Geometry() block.Geometry { return block.Geometry{Path: "fake", RequestAlign: 1} }
func (f *fakeDriver) Size() int64              { return f.size }
func (f *fakeDriver) Close() error             { return nil }

func (f *fakeDriver) do(o op, move func()) error {
	if f.quiet {
		return nil
	}
	f.mu.Lock()
	o.inFlight = f.mu.inFlight
	f.mu.log = append(f.mu.log, o)
	f.mu.inFlight++
	f.mu.deepest = max(f.mu.deepest, f.mu.inFlight)
	if move != nil && f.mu.data != nil {
		move()
	}
	f.mu.Unlock()
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	f.mu.Lock()
	f.mu.inFlight--
	f.mu.Unlock()
	if f.failAt >= 0 && o.kind != 'f' && o.off == f.failAt {
		return &block.Error{Kind: block.KindIO, Op: "access", Path: "fake", Offset: o.off, Err: errors.New("no luck")}
	}
	return nil
}

func (f *fakeDriver) ReadvAt(_ context.Context, iov [][]byte, off int64) error {
	p := iov[0]
	if f.quiet {
		return nil
	}
	return f.do(op{kind: 'r', off: off, n: int64(len(p))}, func() { copy(p, f.mu.data[off:]) })
}

func (f *fakeDriver) WritevAt(_ context.Context, iov [][]byte, off int64, _ block.Flags) error {
	p := iov[0]
	if f.quiet {
		return nil
	}
	return f.do(op{kind: 'w', off: off, n: int64(len(p)), first: p[0], last: p[len(p)-1]}, func() { copy(f.mu.data[off:], p) })
}

func (f *fakeDriver) Flush(context.Context) error { return f.do(op{kind: 'f'}, nil) }

func run(t *testing.T, f *fakeDriver, o Options) (*Result, error) {
	t.Helper()
	return Run(t.Context(), block.NewDevice(f), o)
}

func offsets(log []op) (offs []int64) {
	for _, o := range log {
		if o.kind != 'f' {
			offs = append(offs, o.off)
		}
	}
	return offs
}

func TestTheClassicSequenceGoesRoundAndIsCutAtTheEnd(t *testing.T) {
	tests := []struct {
		name  string
		size  int64
		o     Options
		offs  []int64
		sizes []int64
	}{
		{"size is the step", 1 << 20, Options{Count: 4, Size: 4096}, []int64{0, 4096, 8192, 12288}, nil},
		{"a step", 1 << 20, Options{Count: 3, Size: 4096, Step: 65536}, []int64{0, 65536, 131072}, nil},
		{"an offset", 1 << 20, Options{Count: 3, Size: 512, Offset: 100}, []int64{100, 612, 1124}, nil},
		{"round the end", 10000, Options{Count: 5, Size: 4000}, []int64{0, 4000, 8000, 2000, 6000}, []int64{4000, 4000, 2000, 4000, 4000}},
		{"a step beyond the size", 1000, Options{Count: 3, Size: 10, Step: 2500}, []int64{0, 500, 0}, nil},
		{"no step possible", 1000, Options{Count: 2, Size: 10, Step: 1000}, []int64{0, 0}, nil},
		{"no requests", 1000, Options{Count: 0, Size: 10}, nil, nil},
		{"warm-up comes before", 1 << 20, Options{Count: 2, Warmup: 2, Size: 512}, []int64{0, 512, 1024, 1536}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(tt.size)
			tt.o.Depth = 1
			res, err := run(t, f, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			if got := offsets(f.mu.log); !slices.Equal(got, tt.offs) {
				t.Errorf("offsets %v, want %v", got, tt.offs)
			}
			for i, n := range tt.sizes {
				if f.mu.log[i].n != n {
					t.Errorf("request %d has %d bytes, want %d", i, f.mu.log[i].n, n)
				}
			}
			if res.Requests != tt.o.Count {
				t.Errorf("%d requests counted", res.Requests)
			}
		})
	}
}

func TestOffsetsFarOutDoNotOverflow(t *testing.T) {
	p := newPlan(&Options{Size: 4096, Step: 1<<31 - 1, Offset: 5}, 1<<62)
	i := int64(1) << 40
	// step * 2^40 modulo 2^62 keeps the low 22 bits of the step; the product itself needs 71 bits
	want := ((int64(1)<<31-1)%(1<<22))<<40 + 5
	if got := p.at(i).off; got != want {
		t.Errorf("offset %d, want %d", got, want)
	}
}

func TestDepthRequestsAreInFlight(t *testing.T) {
	f := newFake(1 << 30)
	f.delay = time.Millisecond
	if _, err := run(t, f, Options{Count: 200, Depth: 16, Size: 4096}); err != nil {
		t.Fatal(err)
	}
	if f.mu.deepest != 16 {
		t.Errorf("at most %d in flight", f.mu.deepest)
	}
	offs := offsets(f.mu.log)
	slices.Sort(offs)
	for i, off := range offs {
		if off != int64(i)*4096 {
			t.Fatalf("request %d at %d: each must be made once", i, off)
		}
	}
}

func TestFlushesComeWhereTheClassicToolHasThem(t *testing.T) {
	tests := []struct {
		name       string
		count      int64
		depth      int
		interval   int64
		wantBefore []int // completed requests at each flush
	}{
		{"even", 100, 4, 50, []int{50, 100}},
		{"counted from the end", 100, 4, 30, []int{10, 40, 70, 100}},
		{"not before the queue was full", 100, 16, 30, []int{40, 70, 100}},
		{"interval equals depth", 12, 4, 4, []int{4, 8, 12}},
		{"interval beyond count", 10, 4, 64, []int{10}},
		{"more depth than requests", 3, 8, 8, []int{3}},
		{"nothing to do", 0, 8, 8, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(1 << 30)
			f.delay = 50 * time.Microsecond
			res, err := run(t, f, Options{Mode: Write, Count: tt.count, Depth: tt.depth, Size: 512, FlushInterval: tt.interval})
			if err != nil {
				t.Fatal(err)
			}
			var before []int
			n := 0
			for _, o := range f.mu.log {
				if o.kind == 'f' {
					before = append(before, n)
					if o.inFlight != 0 {
						t.Errorf("flush after %d requests with %d in flight: not drained", n, o.inFlight)
					}
				} else {
					n++
				}
			}
			if !slices.Equal(before, tt.wantBefore) || n != int(tt.count) || res.Flushes != int64(len(before)) {
				t.Errorf("flushes after %v of %d requests, want after %v", before, n, tt.wantBefore)
			}
		})
	}
}

func TestUndrainedFlushesDoNotHoldTheQueue(t *testing.T) {
	f := newFake(1 << 30)
	f.delay = 200 * time.Microsecond
	res, err := run(t, f, Options{Mode: Write, Count: 64, Depth: 8, Size: 512, FlushInterval: 16, NoDrain: true})
	if err != nil {
		t.Fatal(err)
	}
	busy := 0
	for _, o := range f.mu.log {
		if o.kind == 'f' && o.inFlight > 0 {
			busy++
		}
	}
	if res.Flushes != 4 || busy == 0 {
		t.Errorf("%d flushes, %d with requests in flight", res.Flushes, busy)
	}
}

func TestReadsNeverFlush(t *testing.T) {
	f := newFake(1 << 20)
	res, err := run(t, f, Options{Count: 10, Depth: 2, Size: 512, FlushInterval: 2})
	if err != nil || res.Flushes != 0 {
		t.Errorf("%v, %d flushes", err, res.Flushes)
	}
}

func TestTheFirstFailedRequestEndsTheRun(t *testing.T) {
	for _, depth := range []int{1, 8} {
		f := newFake(1 << 30)
		f.failAt = 4096 * 20
		_, err := run(t, f, Options{Mode: Write, Count: 100000, Depth: depth, Size: 4096, FlushInterval: 1000})
		var be *block.Error
		if !errors.As(err, &be) || be.Offset != f.failAt {
			t.Errorf("depth %d: %v", depth, err)
		}
		if n := len(f.mu.log); n > 21+2*depth {
			t.Errorf("depth %d: %d requests were sent", depth, n)
		}
	}
	f := newFake(100)
	if _, err := run(t, f, Options{Count: 1, Depth: 1, Size: 10, Offset: 200}); !errors.Is(err, block.ErrOutOfBounds) {
		t.Errorf("a start beyond the end: %v", err)
	}
}

func TestACancelledRunEnds(t *testing.T) {
	f := newFake(1 << 30)
	f.delay = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, block.NewDevice(f), Options{Mode: Write, Count: 1 << 40, Depth: 4, Size: 512, FlushInterval: 4})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsWrittenIsThePattern(t *testing.T) {
	f := newFake(1 << 20)
	if _, err := run(t, f, Options{Mode: Write, Count: 3, Depth: 1, Size: 4096, Pattern: 0xa5}); err != nil {
		t.Fatal(err)
	}
	for _, o := range f.mu.log {
		if o.kind != 'w' || o.first != 0xa5 || o.last != 0xa5 {
			t.Errorf("got %+v", o)
		}
	}
}

func TestVerifyFindsWhatWentAstray(t *testing.T) {
	for _, mode := range []Mode{Write, RandWrite, Mix} {
		o := Options{Mode: mode, Count: 300, Depth: 8, Size: 700, Seed: 7, ReadShare: 0.5, Verify: true, Latency: true}
		f := newFake(100000)
		f.mu.data = make([]byte, f.size)
		res, err := run(t, f, o)
		if err != nil || res.Verified == 0 {
			t.Errorf("%s: %v, %d bytes verified", mode, err, res.Verified)
		}
	}
	write := Options{Mode: Write, Count: 100, Depth: 4, Size: 1000, Seed: 3, Verify: true}
	f := newFake(100000)
	f.mu.data = make([]byte, f.size)
	if _, err := run(t, f, write); err != nil {
		t.Fatal(err)
	}
	read := write
	read.Mode = RandRead
	if res, err := run(t, f, read); err != nil || res.Verified != res.Bytes {
		t.Errorf("an equally seeded reader: %v", err)
	}
	f.mu.data[5000] ^= 1
	read.Mode = Read
	var ve *VerifyError
	if _, err := run(t, f, read); !errors.As(err, &ve) || ve.Offset != 5000 {
		t.Errorf("a flipped bit: %v", err)
	}
	copy(f.mu.data, f.mu.data[1000:2000])
	f.mu.data[5000] ^= 1
	if _, err := run(t, f, read); !errors.As(err, &ve) || ve.Offset >= 1000 {
		t.Errorf("data in the wrong place: %v", err)
	}
}

func TestADurationEndsTheRunAndWhatWasWrittenVerifies(t *testing.T) {
	for _, interval := range []int64{0, 8} {
		for _, noDrain := range []bool{false, true} {
			f := newFake(1 << 20)
			f.mu.data = make([]byte, f.size)
			f.delay = 100 * time.Microsecond
			res, err := run(t, f, Options{Mode: RandWrite, Depth: 8, Size: 512, Duration: 30 * time.Millisecond, WarmupTime: 5 * time.Millisecond, FlushInterval: interval, NoDrain: noDrain, Verify: true})
			if err != nil || res.Requests == 0 || res.Elapsed < 30*time.Millisecond {
				t.Errorf("interval %d: %v, %+v", interval, err, res)
			}
		}
	}
}

func TestRandomRequestsStayInsideAndCoverTheImage(t *testing.T) {
	p := newPlan(&Options{Mode: RandWrite, Size: 4096, Step: 65536, Offset: 4096, Seed: 1}, 1<<20)
	seen := map[int64]bool{}
	for i := range int64(1000) {
		r := p.at(i)
		if r.off < 4096 || r.off+r.n > 1<<20 || (r.off-4096)%65536 != 0 || r.n != 4096 || !r.write {
			t.Fatalf("request %d: %+v", i, r)
		}
		seen[r.off] = true
	}
	if len(seen) != 15 {
		t.Errorf("%d of 15 places were visited", len(seen))
	}
	q := newPlan(&Options{Mode: Mix, Size: 512, Seed: 1, ReadShare: 0.25}, 1<<20)
	writes := 0
	for i := range int64(10000) {
		if q.at(i).write {
			writes++
		}
	}
	if writes < 7300 || writes > 7700 {
		t.Errorf("%d of 10000 are writes", writes)
	}
}

func TestOptionsThatCanNeverBeRightAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Depth: 0, Count: 1}, {Depth: -1}, {Depth: 1, Count: -1}, {Depth: 1, Size: 1 << 31}, {Depth: MaxDepth + 1},
		{Depth: 4, FlushInterval: 3, Mode: Write}, {Depth: 1, ReadShare: 2}, {Depth: MaxDepth, Size: 1 << 20},
	} {
		if _, err := run(t, newFake(1), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := run(t, newFake(1000), Options{Depth: 1, Count: 5, Size: 0}); err != nil {
		t.Errorf("requests of no bytes: %v", err)
	}
}

func TestHistogramsGivePercentilesWithinTheirResolution(t *testing.T) {
	var a, b histogram
	for i := range int64(100000) {
		[]*histogram{&a, &b}[i%2].add(i + 1)
	}
	a.merge(&b)
	s := a.summary()
	check := func(name string, got time.Duration, want float64) {
		if f := float64(got); f < want || f > want*(1+1.0/32) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	check("p50", s.P50, 50000)
	check("p99", s.P99, 99000)
	check("p99.9", s.P999, 99900)
	if s.Min != 1 || s.Max != 100000 || s.Mean != 50000 {
		t.Errorf("got %+v", s)
	}
	for _, v := range []uint64{0, 1, 63, 64, 65, 127, 128, 1000, 1<<40 + 12345, 1<<63 - 1} {
		top := bucketTop(bucketOf(v))
		if top < v || top > v+v/32+1 {
			t.Errorf("%d is in the bucket up to %d", v, top)
		}
		if v > 0 && bucketTop(bucketOf(v)-1) >= v {
			t.Errorf("%d belongs one bucket lower", v)
		}
	}
	if (&histogram{}).summary() != nil {
		t.Error("a summary of nothing")
	}
}

// raceEnabled: the race detector makes pools forget what they hold.
var raceEnabled bool

func TestNothingIsAllocatedPerRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("pools are leaky under the race detector")
	}
	f := newFake(1 << 30)
	f.quiet = true
	dev := block.NewDevice(f)
	mallocs := func(count int64) uint64 {
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		if _, err := Run(t.Context(), dev, Options{Mode: Mix, ReadShare: 0.5, Count: count, Depth: 4, Size: 4096, Latency: true, Verify: false}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&b)
		return b.Mallocs - a.Mallocs
	}
	few, many := mallocs(100), mallocs(200000)
	if many > few+1000 {
		t.Errorf("100 requests allocate %d times, 200000 requests %d times", few, many)
	}
}
