package iobuf

import (
	"sync"
	"testing"
)

func TestBuffersAreAlignedAndHaveTheLengthAskedFor(t *testing.T) {
	for _, n := range []int{1, 511, 4096, 4097, 65536, 1<<18 - 1, 1 << 18, 1 << 20, MaxPooled, MaxPooled + 1} {
		b := Get(n)
		if len(b) != n || !Aligned(b, Align) {
			t.Errorf("Get(%d): length %d, aligned %v", n, len(b), Aligned(b, Align))
		}
		b[0], b[n-1] = 1, 2
		Put(b)
	}
}

func TestBuffersLentAtTheSameTimeDoNotOverlap(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for round := range 200 {
				n := 4096 << (round % 8)
				b := Get(n)
				for i := 0; i < n; i += 512 {
					b[i] = byte(g)
				}
				for i := 0; i < n; i += 512 {
					if b[i] != byte(g) {
						t.Errorf("byte %d of a lent buffer changed", i)
						break
					}
				}
				Put(b)
			}
		})
	}
	wg.Wait()
}

func TestABufferIsReusedAfterPut(t *testing.T) {
	b := Get(1 << 20)
	p := &b[0]
	Put(b)
	if c := Get(1 << 20); &c[0] != p {
		t.Error("an idle buffer of the size was not used again")
	} else {
		Put(c)
	}
}

func TestIdleLargeBuffersAreBounded(t *testing.T) {
	var lent [][]byte
	for range 16 {
		lent = append(lent, Get(4<<20))
	}
	for _, b := range lent {
		Put(b)
	}
	idle.Lock()
	defer idle.Unlock()
	if idle.bytes > keepIdle {
		t.Errorf("%d bytes are kept idle, more than %d", idle.bytes, keepIdle)
	}
}

func TestEveryClassIsLentWholeAndDistinct(t *testing.T) {
	for shift := minShift; shift <= maxShift; shift++ {
		var lent [][]byte
		seen := map[*byte]bool{}
		for range 20 {
			b := Get(1 << shift)
			if cap(b) != 1<<shift || !Aligned(b, Align) || shift < slabShift && seen[&b[0]] {
				t.Errorf("class %d: capacity %d", shift, cap(b))
			}
			seen[&b[0]] = true
			b[0], b[len(b)-1] = 1, 1
			if shift > 20 { // not all of the large ones at once
				Put(b)
				continue
			}
			lent = append(lent, b)
		}
		for _, b := range lent {
			Put(b)
		}
	}
}

func TestAlignedLooksAtTheStart(t *testing.T) {
	b := Get(8192)
	defer Put(b)
	if !Aligned(b[512:], 512) || Aligned(b[512:], 4096) || Aligned(b[1:], 2) || !Aligned(nil, 4096) {
		t.Error("Aligned misjudges offsets inside a page")
	}
}

func BenchmarkGetPut(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Put(Get(65536))
	}
}
