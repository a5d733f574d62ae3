package job

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"byre/block"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	flagData = block.Data | block.Allocated
	flagZero = block.Zero | block.Allocated
	flagNone = block.ExtentFlags(0)
)

// drawSource draws a disk with data, zeros, data that is zero, and unallocated ranges that show a backing file.
func drawSource(t *rapid.T, name string) *fake {
	const unit = 4096
	n := rapid.IntRange(1, 900).Draw(t, name+" units")
	size := n*unit - rapid.SampledFrom([]int{0, 0, 512, 3584}).Draw(t, name+" cut")
	data := make([]byte, size)
	flags := make([]block.ExtentFlags, n)
	for i := 0; i < n; {
		run := rapid.IntRange(1, 80).Draw(t, "run")
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		for ; run > 0 && i < n; run, i = run-1, i+1 {
			part := data[i*unit : min((i+1)*unit, size)]
			switch kind {
			case 0:
				flags[i] = flagData
				for j := range part {
					part[j] = byte(i + j + 1)
				}
			case 1:
				flags[i] = flagZero
			case 2:
				flags[i] = flagData
			case 3:
				flags[i] = flagNone
			case 4:
				flags[i] = flagData
				part[(i*512)%len(part)] = byte(i | 1)
			}
		}
	}
	return sparse(data, unit, flags)
}

func TestConvertMakesTheTargetTheSameAsTheSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var srcs []*block.Device
		var want []byte
		total := int64(0)
		o := ConvertOptions{
			Sparse:   rapid.SampledFrom([]int64{0, 512, 4096, 65536, 3 << 20}).Draw(t, "sparse"),
			Workers:  rapid.IntRange(0, 5).Draw(t, "workers"),
			InOrder:  rapid.Bool().Draw(t, "in order"),
			ByOffset: rapid.Bool().Draw(t, "by offset"),
			Offload:  rapid.SampledFrom([]Offload{OffloadShare, OffloadCopy, OffloadNever}).Draw(t, "offload"),
		}
		for range rapid.IntRange(1, 3).Draw(t, "sources") {
			f := drawSource(t, "source")
			srcs = append(srcs, f.dev())
			want = append(want, f.data...)
		}
		total = int64(len(want))

		extra := rapid.SampledFrom([]int{0, 4096, 100000}).Draw(t, "longer by")
		dst := newFake(make([]byte, len(want)+extra))
		dst.geo.ClusterSize = rapid.SampledFrom([]int64{0, 0, 512, 65536, 2 << 20}).Draw(t, "cluster")
		dst.geo.QuickZero = rapid.Bool().Draw(t, "quick zero")
		dst.geo.ZeroAlign = rapid.SampledFrom([]int64{0, 4096}).Draw(t, "zero align")
		if o.InOrder { // so that each request of the job is one of the driver
			dst.geo.QuickZero, dst.geo.ZeroAlign = false, 0
		}
		o.Compress = dst.geo.ClusterSize > 0 && rapid.Bool().Draw(t, "compress")
		o.TargetIsZero = rapid.Bool().Draw(t, "target is zero")
		if !o.TargetIsZero {
			for i := range dst.data {
				dst.data[i] = 0xee
			}
		}
		tail := bytes.Clone(dst.data[len(want):])
		last := int64(0)
		o.Progress = func(done, of int64) {
			if done < last || done > of {
				t.Fatalf("progress goes from %d to %d of %d", last, done, of)
			}
			last = done
		}
		if err := Convert(context.Background(), dst.dev(), srcs, o); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dst.data[:total], want) {
			t.Fatalf("differs at %d", firstDifference(dst.data[:total], want))
		}
		if !bytes.Equal(dst.data[total:], tail) {
			t.Fatal("wrote behind the source's end")
		}
		if o.InOrder {
			checkOrder(t, dst)
		}
		if o.TargetIsZero && o.Sparse > 0 {
			for _, w := range dst.writes {
				if isZero(want[w.off:w.off+w.n]) && w.n >= max(o.Sparse, dst.geo.ClusterSize, 4096) {
					t.Fatalf("wrote %d zeros at %d", w.n, w.off)
				}
			}
		}
	})
}

func checkOrder(t *rapid.T, dst *fake) {
	if !slices.IsSortedFunc(dst.writes, func(a, b span) int { return int(a.off - b.off) }) {
		t.Fatalf("writes are out of order: %v", dst.writes)
	}
}

func TestConvertReadsNothingThatIsKnownToBeZero(t *testing.T) {
	src := sparse(make([]byte, 64<<20), 1<<20, slices.Concat(slices.Repeat([]block.ExtentFlags{flagZero}, 30), []block.ExtentFlags{flagData},
		slices.Repeat([]block.ExtentFlags{flagNone}, 33)))
	src.data[30<<20] = 1
	dst := newFake(make([]byte, 64<<20))
	if err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, ConvertOptions{Sparse: 4096, TargetIsZero: true}); err != nil {
		t.Fatal(err)
	}
	for _, r := range src.reads {
		if r.off < 30<<20 || r.off+r.n > 31<<20 {
			t.Errorf("read %d bytes at %d", r.n, r.off)
		}
	}
	if len(dst.writes) != 1 || dst.writes[0] != (span{30 << 20, 4096}) {
		t.Errorf("wrote %v", dst.writes)
	}
}

func TestConvertOntoABackingFileCopiesTheTopLayerOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := drawSource(t, "source")
		src.backing = newFake(nil).dev() // its contents are the zeros of src.data's unallocated ranges
		dst := newFake(bytes.Repeat([]byte{0xbb}, len(src.data)))
		dst.geo.ClusterSize = rapid.SampledFrom([]int64{0, 65536}).Draw(t, "cluster")
		dst.geo.QuickZero = true
		o := ConvertOptions{Sparse: 4096, KeepBacking: true, BackingSize: rapid.Int64Range(0, int64(len(src.data))).Draw(t, "backing") / 512 * 512}
		if err := Convert(context.Background(), dst.dev(), []*block.Device{src.dev()}, o); err != nil {
			t.Fatal(err)
		}
		for _, e := range src.extents {
			from, to := e.Start, e.End()
			if e.Flags&block.Allocated == 0 {
				kept := min(to, o.BackingSize)
				if c := dst.geo.ClusterSize; c > 0 { // clusters that are written at all are written as a whole
					from, kept = (from+c-1)/c*c, kept/c*c
				}
				if from < kept && !bytes.Equal(dst.data[from:kept], bytes.Repeat([]byte{0xbb}, int(kept-from))) {
					t.Fatalf("%d..%d shows through from the backing file and was written", from, kept)
				}
				from = min(max(e.Start, o.BackingSize), to)
			}
			if !bytes.Equal(dst.data[from:to], src.data[from:to]) {
				t.Fatalf("%d..%d was not copied", from, to)
			}
		}
	})
}

func TestProgressTellsEachRegionInOrder(t *testing.T) {
	src := newFake(make([]byte, 4<<20),
		block.Extent{Start: 0, Length: 64 << 10, Flags: flagData},
		block.Extent{Start: 64 << 10, Length: 960 << 10, Flags: flagZero},
		block.Extent{Start: 1 << 20, Length: 8 << 10, Flags: flagData},
		block.Extent{Start: 1<<20 + 8<<10, Length: 1<<20 - 8<<10, Flags: flagNone},
		block.Extent{Start: 2 << 20, Length: 128 << 10, Flags: flagData | block.CompressedData},
		block.Extent{Start: 2<<20 + 128<<10, Length: 2<<20 - 128<<10, Flags: flagNone})
	src.geo.ClusterSize = 64 << 10
	var got []int64
	o := ConvertOptions{Sparse: 4096, TargetIsZero: true, Progress: func(done, total int64) {
		got = append(got, 100*done/total)
	}}
	for range 50 {
		got = nil
		if err := Convert(t.Context(), newFake(make([]byte, 4<<20)).dev(), []*block.Device{src.dev()}, o); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []int64{32, 36, 68, 100}) {
			t.Fatalf("percentages %v", got)
		}
	}
}

func TestUnreadableSectorsBecomeZerosWhenSalvaging(t *testing.T) {
	src := newFake(bytes.Repeat([]byte{7}, 3<<20))
	src.badRead = map[int64]bool{512: true, 1024: true, 1 << 20: true, 2<<20 - 512: true}
	dst := newFake(bytes.Repeat([]byte{9}, 3<<20))
	if err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, ConvertOptions{Sparse: 4096}); !errors.Is(err, errFake) {
		t.Fatalf("without salvage: %v", err)
	}
	var lost int64
	o := ConvertOptions{Sparse: 4096, Workers: 1, Salvage: func(off, n int64, err error) {
		if !errors.Is(err, errFake) {
			t.Errorf("told %v", err)
		}
		lost += n
	}}
	if err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, o); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(src.data)
	for off := range src.badRead {
		clear(want[off : off+512])
	}
	if !bytes.Equal(dst.data, want) || lost != 4*512 {
		t.Fatalf("differs at %d; %d bytes were told lost", firstDifference(dst.data, want), lost)
	}
}

func TestExtentsThatCannotBeNamedAreReadWhenSalvaging(t *testing.T) {
	src := newFake(bytes.Repeat([]byte{7}, 1<<20))
	src.badExt = map[int64]bool{0: true, 65536: true}
	dst := newFake(make([]byte, 1<<20))
	o := ConvertOptions{Sparse: 4096}
	if err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, o); !errors.Is(err, errFake) {
		t.Fatalf("without salvage: %v", err)
	}
	o.Salvage = func(off, n int64, err error) { t.Errorf("%d bytes at %d lost: %v", n, off, err) }
	if err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, o); err != nil || !bytes.Equal(src.data, dst.data) {
		t.Fatalf("differs at %d, %v", firstDifference(src.data, dst.data), err)
	}
}

func TestTheFirstFailureToWriteEndsTheConversion(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		src := newFake(bytes.Repeat([]byte{7}, 32<<20))
		dst := newFake(make([]byte, 32<<20))
		dst.failAt = 5<<20 + 7
		err := Convert(t.Context(), dst.dev(), []*block.Device{src.dev()}, ConvertOptions{Sparse: 4096, InOrder: inOrder})
		if block.KindOf(err) != block.KindNoSpace {
			t.Fatalf("got %v", err)
		}
	}
}

func TestTheEndOfTheContextEndsTheConversion(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		src := newFake(bytes.Repeat([]byte{7}, 64<<20))
		dst := newFake(make([]byte, 64<<20))
		src.onRead = func(n int) {
			if n == 5 {
				cancel()
			}
		}
		err := Convert(ctx, dst.dev(), []*block.Device{src.dev()}, ConvertOptions{Sparse: 4096, InOrder: inOrder})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v after %d reads", err, len(src.reads))
		}
		if len(src.reads) > 40 {
			t.Errorf("%d reads, of which 5 were made before the end of the context", len(src.reads))
		}
	}
}

func TestConvertRefusesWhatCannotBeRight(t *testing.T) {
	a, b := newFake(make([]byte, 1024)), newFake(make([]byte, 512))
	for name, c := range map[string]struct {
		dst  *fake
		srcs []*block.Device
		o    ConvertOptions
		kind block.Kind
	}{
		"target too small":           {b, []*block.Device{a.dev()}, ConvertOptions{}, block.KindOutOfBounds},
		"sum of sources too large":   {a, []*block.Device{a.dev(), b.dev()}, ConvertOptions{}, block.KindOutOfBounds},
		"sparse size of 100":         {a, []*block.Device{b.dev()}, ConvertOptions{Sparse: 100}, block.KindInvalid},
		"backing file, two sources":  {a, []*block.Device{b.dev(), b.dev()}, ConvertOptions{KeepBacking: true}, block.KindInvalid},
		"sparse size of less than 0": {a, []*block.Device{b.dev()}, ConvertOptions{Sparse: -512}, block.KindInvalid},
	} {
		if err := Convert(t.Context(), c.dst.dev(), c.srcs, c.o); block.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestZeroRunsHandOutEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grain := int64(1) << rapid.IntRange(0, 8).Draw(t, "grain")
		least := rapid.Int64Range(1, 600).Draw(t, "least")
		off := rapid.Int64Range(0, 1000).Draw(t, "off")
		data := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 0, 0, 0, 0, 1}), 1, 3000).Draw(t, "data")
		for i := range data { // longer runs
			if (int64(i)+off)/grain%3 > 0 {
				data[i] = 0
			}
		}
		at := int64(0)
		var before bool
		err := zeroRuns(data, off, grain, least, func(from, to int64, zero bool) error {
			if from != at || to <= from {
				t.Fatalf("run %d..%d after %d", from, to, at)
			}
			if from > 0 && zero == before {
				t.Fatalf("two runs of one kind meet at %d", from)
			}
			if zero && !isZero(data[from:to]) {
				t.Fatalf("%d..%d is not zero", from, to)
			}
			if zero && to-from < least && from > 0 && to < int64(len(data)) {
				t.Fatalf("a run of %d zeros", to-from)
			}
			at, before = to, zero
			return nil
		})
		if err != nil || at != int64(len(data)) {
			t.Fatalf("ended at %d of %d: %v", at, len(data), err)
		}
	})
}
