package qcow2

import (
	"math/bits"
	"slices"
)

const (
	freePageBits = 15 // clusters per page: 32768, a bitmap of 4 KiB
	freePageLen  = 1 << freePageBits

	// maxFreePages bounds the memory of a free set to some 64 MiB.
	maxFreePages = 16384
)

// freeSet knows host clusters that may be handed out: refcount 0, nothing pending. It is a sparse bitmap, so a million
// scattered holes cost what they cost on disk divided by sixteen, and a search skips what cannot fit. Runs are found
// within a page only. Not safe for concurrent use.
type freeSet struct {
	pages map[int64]*freePage
	order []int64 // page numbers, ascending
	total int64   // clusters
}

type freePage struct {
	bits  [freePageLen / 64]uint64
	count int
	// longest is an upper bound of the longest run.
	longest int
}

// full reports whether no more pages should be filled from a scan.
func (s *freeSet) full() bool { return len(s.order) >= maxFreePages }

func (s *freeSet) page(n int64) *freePage {
	if p := s.pages[n]; p != nil {
		return p
	}
	if s.pages == nil {
		s.pages = make(map[int64]*freePage)
	}
	p := new(freePage)
	s.pages[n] = p
	i, _ := slices.BinarySearch(s.order, n)
	s.order = slices.Insert(s.order, i, n)
	return p
}

func (s *freeSet) drop(n int64) {
	delete(s.pages, n)
	if i, ok := slices.BinarySearch(s.order, n); ok {
		s.order = slices.Delete(s.order, i, i+1)
	}
}

// add puts clusters [c, c+n) in.
func (s *freeSet) add(c, n int64) {
	for n > 0 {
		in := int(c & (freePageLen - 1))
		m := min(n, int64(freePageLen-in))
		p := s.page(c >> freePageBits)
		added := p.set(in, int(m))
		s.total += int64(added)
		p.longest = p.count // a bound is enough; a search that fails makes it exact
		c, n = c+m, n-m
	}
}

// remove takes clusters [c, c+n) out, those that are in.
func (s *freeSet) remove(c, n int64) {
	for n > 0 {
		in := int(c & (freePageLen - 1))
		m := min(n, int64(freePageLen-in))
		if p := s.pages[c>>freePageBits]; p != nil {
			s.total -= int64(p.clear(in, int(m)))
			p.longest = min(p.longest, p.count)
			if p.count == 0 {
				s.drop(c >> freePageBits)
			}
		}
		c, n = c+m, n-m
	}
}

// removeFrom takes out everything from cluster c on.
func (s *freeSet) removeFrom(c int64) {
	for i := len(s.order) - 1; i >= 0; i-- {
		n := s.order[i]
		if (n+1)<<freePageBits <= c {
			return
		}
		first := max(c, n<<freePageBits)
		s.remove(first, (n+1)<<freePageBits-first)
	}
}

// runAt is the number of free clusters from c on, at most limit and not beyond the page of c.
func (s *freeSet) runAt(c, limit int64) int64 {
	p := s.pages[c>>freePageBits]
	if p == nil {
		return 0
	}
	in := int(c & (freePageLen - 1))
	return int64(p.run(in, int(min(limit, int64(freePageLen-in)))))
}

// find looks for the first run of at least n clusters and returns where it starts and how long it is, at most limit.
func (s *freeSet) find(n, limit int64) (c, length int64, ok bool) {
	if n > freePageLen || n > s.total {
		return 0, 0, false
	}
	for _, num := range s.order {
		p := s.pages[num]
		if int64(p.longest) < n {
			continue
		}
		if at, l := p.find(int(n), int(min(limit, freePageLen))); l > 0 {
			return num<<freePageBits + int64(at), int64(l), true
		}
	}
	return 0, 0, false
}

// longest finds the longest run there is, at most limit.
func (s *freeSet) longest(limit int64) (c, length int64, ok bool) {
	for n := min(limit, freePageLen); n > 0; n /= 2 {
		if c, length, ok = s.find(n, limit); ok {
			return c, length, true
		}
	}
	return 0, 0, false
}

// set sets n bits from i and returns how many were clear.
func (p *freePage) set(i, n int) (changed int) {
	p.each(i, n, func(w *uint64, m uint64) {
		changed += bits.OnesCount64(m &^ *w)
		*w |= m
	})
	p.count += changed
	return changed
}

// clear clears n bits from i and returns how many were set.
func (p *freePage) clear(i, n int) (changed int) {
	p.each(i, n, func(w *uint64, m uint64) {
		changed += bits.OnesCount64(m & *w)
		*w &^= m
	})
	p.count -= changed
	return changed
}

// each visits the words that hold bits [i, i+n) with the mask of those bits.
func (p *freePage) each(i, n int, f func(w *uint64, mask uint64)) {
	for n > 0 {
		in := i & 63
		m := min(n, 64-in)
		f(&p.bits[i>>6], (^uint64(0)>>(64-m))<<in)
		i, n = i+m, n-m
	}
}

// run is the number of set bits from i on, at most limit.
func (p *freePage) run(i, limit int) int {
	start := i
	for end := i + limit; i < end; {
		in := i & 63
		ones := bits.TrailingZeros64(^(p.bits[i>>6] >> in))
		ones = min(ones, 64-in)
		i += ones
		if in+ones < 64 {
			break
		}
	}
	return min(i-start, limit)
}

// find gives the first run of at least n bits; l is 0 if there is none, and then longest is exact.
func (p *freePage) find(n, limit int) (at, l int) {
	best := 0
	for i := 0; i < freePageLen; {
		w := p.bits[i>>6] >> (i & 63)
		if w == 0 {
			i = (i | 63) + 1
			continue
		}
		i += bits.TrailingZeros64(w)
		l = p.run(i, freePageLen-i)
		if l >= n {
			return i, min(l, max(limit, n))
		}
		best = max(best, l)
		i += l
	}
	p.longest = best
	return 0, 0
}
