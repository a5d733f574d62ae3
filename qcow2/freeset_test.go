package qcow2

import (
	"math/rand/v2"
	"testing"
)

// TestFreeSetAgreesWithAMap drives the bitmap with random changes beside a plain map.
func TestFreeSetAgreesWithAMap(t *testing.T) {
	const span = 3*freePageLen + 777
	rnd := rand.New(rand.NewPCG(1, 2))
	var s freeSet
	model := map[int64]bool{}
	for step := range 4000 {
		c, n := rnd.Int64N(span), 1+rnd.Int64N(1<<rnd.IntN(12))
		switch rnd.IntN(5) {
		case 0, 1:
			s.add(c, n)
			for i := c; i < c+n; i++ {
				model[i] = true
			}
		case 2, 3:
			s.remove(c, n)
			for i := c; i < c+n; i++ {
				delete(model, i)
			}
		case 4:
			at, l, ok := s.find(n, 2*n)
			if !ok {
				run := int64(0)
				for i := int64(0); i < span+5000; i++ {
					if i&(freePageLen-1) == 0 {
						run = 0
					}
					if run++; !model[i] {
						run = 0
					}
					if run >= n {
						t.Fatalf("step %d: no run of %d found, but one ends at %d", step, n, i)
					}
				}
				continue
			}
			if l < n || l > 2*n || s.runAt(at, l) != l {
				t.Fatalf("step %d: run of %d at %d for %d", step, l, at, n)
			}
			for i := at; i < at+l; i++ {
				if !model[i] {
					t.Fatalf("step %d: cluster %d is not free", step, i)
				}
			}
		}
		if s.total != int64(len(model)) {
			t.Fatalf("step %d: total %d, want %d", step, s.total, len(model))
		}
	}
	s.removeFrom(freePageLen + 5)
	for i := range model {
		if got, want := s.runAt(i, 1) == 1, i < freePageLen+5; got != want {
			t.Fatalf("after cutting: cluster %d free is %v", i, got)
		}
	}
	s.remove(0, span+5000)
	if s.total != 0 || len(s.order) != 0 || len(s.pages) != 0 {
		t.Fatalf("emptied, but %d clusters in %d pages remain", s.total, len(s.order))
	}
}

func TestFreeSetTakesTheFirstFitAndOtherwiseTheLongestRun(t *testing.T) {
	var s freeSet
	s.add(10, 1)
	s.add(20, 3)
	s.add(90000, 7)
	for _, c := range []struct{ n, at, l int64 }{{1, 10, 1}, {2, 20, 2}, {3, 20, 3}, {4, 90000, 4}, {7, 90000, 7}} {
		if at, l, ok := s.find(c.n, c.n); !ok || at != c.at || l != c.l {
			t.Errorf("find(%d) = %d, %d, %v; want %d, %d", c.n, at, l, ok, c.at, c.l)
		}
	}
	if _, _, ok := s.find(8, 8); ok {
		t.Error("a run of 8 was found, the longest has 7")
	}
	if at, l, ok := s.longest(100); !ok || at != 90000 || l < 4 {
		t.Errorf("longest = %d, %d, %v", at, l, ok)
	}
}
