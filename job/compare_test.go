package job

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"byre/block"

	"pgregory.net/rapid"
)

// plainCompare is what Compare must find, and whether it must say that one image goes on.
func plainCompare(a, b []byte) (r Comparison, longer bool) {
	n := min(len(a), len(b))
	if d := firstDifference(a[:n], b[:n]); d >= 0 {
		return Comparison{Verdict: ContentDiffers, Offset: d}, false
	}
	if len(a) != len(b) {
		longer = true
		rest := append(bytes.Clone(a[n:]), b[n:]...)
		if d := firstNonzero(rest); d >= 0 {
			r.Verdict, r.Offset = ContentDiffers, int64(n)+d
		}
	}
	return r, longer
}

func TestCompareFindsTheFirstDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawSource(t, "a")
		b := drawSource(t, "b")
		if rapid.Bool().Draw(t, "the same") {
			// The same contents with other extents, then a few changes.
			b = newFake(bytes.Clone(a.data))
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				b.data[rapid.IntRange(0, len(b.data)-1).Draw(t, "at")] ^= 1
			}
			if rapid.Bool().Draw(t, "shorter") {
				b.data = b.data[:max(512, len(b.data)/2/512*512)]
			}
		}
		last := int64(0)
		o := CompareOptions{Workers: rapid.IntRange(0, 5).Draw(t, "workers"), Progress: func(done, total int64) {
			if done < last || done > total {
				t.Fatalf("progress goes from %d to %d of %d", last, done, total)
			}
			last = done
		}}
		longer := false
		o.Longer = func() { longer = true }
		got, err := Compare(context.Background(), a.dev(), b.dev(), o)
		if err != nil {
			t.Fatal(err)
		}
		if want, wantLonger := plainCompare(a.data, b.data); got != want || longer != wantLonger {
			t.Fatalf("got %+v, longer %v; want %+v, %v", got, longer, want, wantLonger)
		}
		if got.Verdict == Identical && last != int64(max(len(a.data), len(b.data))) {
			t.Fatalf("progress ended at %d", last)
		}
	})
}

func TestStrictComparesSizesAndStatus(t *testing.T) {
	data := make([]byte, 1<<20)
	short := newFake(data[:1<<19])
	zero := sparse(data, 1<<19, []block.ExtentFlags{flagData, flagZero})
	for name, c := range map[string]struct {
		a, b *fake
		want Comparison
	}{
		"sizes":    {newFake(data), short, Comparison{Verdict: SizeDiffers}},
		"status":   {newFake(data), zero, Comparison{Verdict: StatusDiffers, Offset: 1 << 19}},
		"the same": {zero, zero, Comparison{}},
	} {
		got, err := Compare(t.Context(), c.a.dev(), c.b.dev(), CompareOptions{Strict: true})
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestADifferenceBeforeAFailureCounts(t *testing.T) {
	for range 20 {
		a, b := newFake(make([]byte, 16<<20)), newFake(make([]byte, 16<<20))
		a.badRead = map[int64]bool{8 << 20: true}
		_, err := Compare(t.Context(), a.dev(), b.dev(), CompareOptions{})
		var part *PartError
		if !errors.As(err, &part) || part.Image != 0 || part.Query || !errors.Is(err, errFake) {
			t.Fatalf("got %v", err)
		}
		b.data[3<<20] = 1
		if got, err := Compare(t.Context(), a.dev(), b.dev(), CompareOptions{}); err != nil || got.Offset != 3<<20 {
			t.Fatalf("got %+v, %v", got, err)
		}
		b.data[3<<20], b.data[12<<20] = 0, 1
		if _, err := Compare(t.Context(), a.dev(), b.dev(), CompareOptions{}); !errors.As(err, &part) {
			t.Fatalf("got %v", err)
		}
		b.badRead, a.badRead = nil, nil
		b.badExt = map[int64]bool{0: true}
		if _, err := Compare(t.Context(), a.dev(), b.dev(), CompareOptions{}); !errors.As(err, &part) || part.Image != 1 || !part.Query {
			t.Fatalf("got %v", err)
		}
	}
}

func TestWhatLiesInTheSamePlaceIsNotRead(t *testing.T) {
	place := block.Extent{Length: 4 << 20, Flags: flagData | block.HasHost, Host: 100, File: "base"}
	a, b := newFake(make([]byte, 4<<20), place), newFake(make([]byte, 4<<20), place)
	if got, err := Compare(t.Context(), a.dev(), b.dev(), CompareOptions{}); err != nil || got.Verdict != Identical {
		t.Fatalf("got %+v, %v", got, err)
	}
	if len(a.reads)+len(b.reads) > 0 {
		t.Errorf("read %v and %v", a.reads, b.reads)
	}
	other := place
	other.Host++
	if _, err := Compare(t.Context(), a.dev(), newFake(b.data, other).dev(), CompareOptions{}); err != nil || len(a.reads) == 0 {
		t.Errorf("another place was taken for the same: %v", err)
	}
}

func TestTheEndOfTheContextEndsTheComparison(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, b := newFake(make([]byte, 64<<20)), newFake(make([]byte, 64<<20))
	n := 0
	_, err := Compare(ctx, a.dev(), b.dev(), CompareOptions{Progress: func(done, total int64) {
		if n++; n == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
