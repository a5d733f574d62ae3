package check

import "slices"

const (
	pageBits = 12
	pageLen  = 1 << pageBits // counters of a page
	maxFew   = 48            // counters of a page that are kept as a list before the page becomes an array
	maxDir   = 1 << 19       // pages of a directory that is a slice; larger ones are a map
)

// counts holds one counter per host cluster, sparsely. It is not safe for concurrent changes; reading at once is.
type counts struct {
	max  uint64 // largest value that the image's refcounts can hold; counters saturate there
	dir  []*page
	wide map[int64]*page // instead of dir
}

// page holds pageLen counters in the smallest form that can: all equal, a few that are not zero, bytes, words.
type page struct {
	uniform uint64           // without list, bytes and words: the value of every counter
	few     []uint32         // uniform is 0: index<<16 | value
	bytes   *[pageLen]uint8  // values up to 255
	words   *[pageLen]uint64 // any value
	// one has a bit for each counter whose *stored* refcount is 1; compare fills it.
	one *[pageLen / 64]uint64
}

// newCounts makes counters for n clusters and more.
func newCounts(max uint64, n int64) *counts {
	c := &counts{max: max}
	if pages := (n + pageLen - 1) >> pageBits; pages < maxDir {
		c.dir = make([]*page, pages+2)
	} else {
		c.wide = map[int64]*page{}
	}
	return c
}

// at returns the page with the counter of a cluster, or nil.
func (c *counts) at(cluster int64) *page {
	i := cluster >> pageBits
	if c.wide != nil {
		return c.wide[i]
	}
	if i < 0 || i >= int64(len(c.dir)) {
		return nil
	}
	return c.dir[i]
}

// make returns the page with the counter of a cluster, new if there was none.
func (c *counts) make(cluster int64) *page {
	if p := c.at(cluster); p != nil {
		return p
	}
	p, i := &page{}, cluster>>pageBits
	if c.wide != nil {
		c.wide[i] = p
		return p
	}
	for i >= int64(len(c.dir)) {
		c.dir = append(c.dir, nil)
	}
	c.dir[i] = p
	return p
}

// pages lists the numbers of the pages that exist, ascending.
func (c *counts) pages() []int64 {
	var list []int64
	for i, p := range c.dir {
		if p != nil {
			list = append(list, int64(i))
		}
	}
	for i := range c.wide {
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// get returns the counter of a cluster.
func (c *counts) get(cluster int64) uint64 {
	p := c.at(cluster)
	if p == nil {
		return 0
	}
	return p.get(int(cluster & (pageLen - 1)))
}

// alike tells whether all counters are equal, to uniform.
func (p *page) alike() bool { return p.bytes == nil && p.words == nil && len(p.few) == 0 }

func (p *page) get(i int) uint64 {
	switch {
	case p.bytes != nil:
		return uint64(p.bytes[i])
	case p.words != nil:
		return p.words[i]
	}
	for _, f := range p.few {
		if int(f>>16) == i {
			return uint64(f & 0xffff)
		}
	}
	return p.uniform
}

// add adds w to the counters of n clusters. over, if not nil, hears of each that would exceed the maximum; it stays there.
func (c *counts) add(cluster, n int64, w uint64, over func(cluster int64)) {
	for n > 0 {
		lo := int(cluster & (pageLen - 1))
		k := min(n, int64(pageLen-lo))
		c.make(cluster).add(lo, lo+int(k), w, c.max, cluster-int64(lo), over)
		cluster, n = cluster+k, n-k
	}
}

func (p *page) add(lo, hi int, w, max uint64, base int64, over func(int64)) {
	if p.bytes == nil && p.words == nil {
		if lo == 0 && hi == pageLen && len(p.few) == 0 && p.uniform <= max-min(w, max) && w <= max {
			p.uniform += w
			return
		}
		if p.addFew(lo, hi, w, max) {
			return
		}
		p.expand()
	}
	if p.bytes != nil && !p.addBytes(lo, hi, w, max) {
		p.widen()
	}
	if p.words == nil {
		return
	}
	for i := lo; i < hi; i++ {
		if p.words[i] > max || w > max-p.words[i] {
			p.words[i] = max
			if over != nil {
				over(base + int64(i))
			}
			continue
		}
		p.words[i] += w
	}
}

// addFew keeps up to maxFew single counters as a list.
func (p *page) addFew(lo, hi int, w, max uint64) bool {
	if p.uniform != 0 || hi-lo > 2 || len(p.few)+hi-lo > maxFew || w > 0xffff {
		return false
	}
	limit := min(max, 0xffff)
	for i := lo; i < hi; i++ {
		if v := p.get(i); v+w > limit {
			return false
		}
	}
next:
	for i := lo; i < hi; i++ {
		for k, f := range p.few {
			if int(f>>16) == i {
				p.few[k] = f + uint32(w)
				continue next
			}
		}
		p.few = append(p.few, uint32(i)<<16|uint32(w))
	}
	return true
}

// expand turns the compact forms into an array.
func (p *page) expand() {
	largest := p.uniform
	for _, f := range p.few {
		largest = max(largest, uint64(f&0xffff))
	}
	if largest > 255 {
		p.words = new([pageLen]uint64)
		for i := range p.words {
			p.words[i] = p.uniform
		}
		for _, f := range p.few {
			p.words[f>>16] = uint64(f & 0xffff)
		}
	} else {
		p.bytes = new([pageLen]uint8)
		if p.uniform != 0 {
			for i := range p.bytes {
				p.bytes[i] = uint8(p.uniform)
			}
		}
		for _, f := range p.few {
			p.bytes[f>>16] = uint8(f)
		}
	}
	p.few, p.uniform = nil, 0
}

// addBytes adds in the byte form; false, with nothing changed, if a counter would not fit.
func (p *page) addBytes(lo, hi int, w, max uint64) bool {
	limit := min(max, 255)
	if w > limit {
		return false
	}
	top := uint8(limit - w)
	s := p.bytes[lo:hi]
	for _, v := range s {
		if v > top {
			return false
		}
	}
	for i := range s {
		s[i] += uint8(w)
	}
	return true
}

// widen turns bytes into words.
func (p *page) widen() {
	p.words = new([pageLen]uint64)
	for i, v := range p.bytes {
		p.words[i] = uint64(v)
	}
	p.bytes = nil
}

// sub takes w from the counters of n clusters, not below 0.
func (c *counts) sub(cluster, n int64, w uint64) {
	for ; n > 0; cluster, n = cluster+1, n-1 {
		p := c.at(cluster)
		if p == nil {
			continue
		}
		if p.bytes == nil && p.words == nil {
			p.expand()
		}
		i := cluster & (pageLen - 1)
		if p.bytes != nil {
			p.bytes[i] -= uint8(min(w, uint64(p.bytes[i])))
		} else {
			p.words[i] -= min(w, p.words[i])
		}
	}
}

// values copies the counters [lo, hi) of the page that starts at a page boundary into buf and returns it.
func (p *page) values(buf []uint64, lo, hi int) []uint64 {
	buf = buf[:hi-lo]
	switch {
	case p == nil:
		clear(buf)
	case p.bytes != nil:
		for i, v := range p.bytes[lo:hi] {
			buf[i] = uint64(v)
		}
	case p.words != nil:
		copy(buf, p.words[lo:hi])
	default:
		for i := range buf {
			buf[i] = p.uniform
		}
		for _, f := range p.few {
			if i := int(f >> 16); i >= lo && i < hi {
				buf[i-lo] = uint64(f & 0xffff)
			}
		}
	}
	return buf
}

// setOne records whether the stored refcount of counter i is 1.
func (p *page) setOne(i int, on bool) {
	if on {
		p.one[i/64] |= 1 << (i % 64)
	} else {
		p.one[i/64] &^= 1 << (i % 64)
	}
}

// setOnes records it for those of the 64 counters around i whose bit is set.
func (p *page) setOnes(i int, bits uint64) {
	if p.one != nil {
		p.one[i/64] |= bits
	}
}

// isOne tells whether the stored refcount of counter i is known to be 1.
func (p *page) isOne(i int) bool { return p != nil && p.one != nil && p.one[i/64]>>(i%64)&1 != 0 }

// allOnes is isOne for n counters.
func (p *page) allOnes(i, n int) bool {
	if p == nil || p.one == nil {
		return false
	}
	for ; n > 0; i, n = i+1, n-1 {
		for ; i%64 == 0 && n >= 64 && p.one[i/64] == ^uint64(0); i, n = i+64, n-64 {
		}
		if n > 0 && !p.isOne(i) {
			return false
		}
	}
	return true
}

// interval is a range of units with how often something covers it.
type interval struct {
	start, end int64
	weight     int64
}

// sweep returns the disjoint ranges that the intervals cover, with the sums of their weights, ascending.
func sweep(in []interval) []interval {
	type edge struct{ at, delta int64 }
	edges := make([]edge, 0, 2*len(in))
	for _, v := range in {
		if v.start < v.end {
			edges = append(edges, edge{v.start, v.weight}, edge{v.end, -v.weight})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp64(a.at, b.at) })
	var out []interval
	var weight, from int64
	for _, e := range edges {
		if weight > 0 && e.at > from {
			if n := len(out); n > 0 && out[n-1].end == from && out[n-1].weight == weight {
				out[n-1].end = e.at
			} else {
				out = append(out, interval{from, e.at, weight})
			}
		}
		weight, from = weight+e.delta, e.at
	}
	return out
}

func cmp64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
