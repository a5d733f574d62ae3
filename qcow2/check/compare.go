package check

import (
	"encoding/binary"
	"slices"

	"byre/qcow2/layout"
)

const (
	chunkBits = 16 // counters that one job compares
	chunkLen  = int64(1) << chunkBits
)

// mismatch is a cluster whose stored refcount is not the number of references.
type mismatch struct {
	cluster            int64
	stored, referenced uint64
}

// compared is the result of one job.
type compared struct {
	bad     []mismatch
	highest int64 // cluster that is counted or referred to; -1 = none
	bytes   int64
	err     error
	errOff  int64
}

// compare holds the stored refcounts against the references and repairs as far as fix allows (§11.2).
func (c *checker) compare(fix Level) error {
	chunks := c.chunks()
	highest := int64(-1)
	var jobs comparer
	jobs.c = c
	err := ordered(c.ctx, len(chunks), c.workers, func(i int) *compared { return jobs.run(chunks[i]) },
		func(r *compared) error {
			if r.err != nil {
				return c.failed(ReadError, "read refcount block", r.errOff, r.err)
			}
			highest = max(highest, r.highest)
			c.progress(r.bytes)
			return c.settle(r.bad, fix)
		})
	if err != nil {
		return err
	}
	c.res.ImageEnd = (highest + 1) << c.g.ClusterBits
	if fix != Nothing {
		if err := c.flush("repair refcounts"); err != nil {
			return err
		}
		return c.discardFreed()
	}
	return nil
}

// chunks lists the runs of chunkLen counters in which a count can be other than 0, ascending. It also makes the pages
// ready for the workers, which fill in whose stored count is 1.
func (c *checker) chunks() []int64 {
	var list []int64
	for _, p := range c.counts.pages() {
		// Pages with a few counters do without: their clusters are looked up one by one.
		if pg := c.counts.at(p << pageBits); len(pg.few) == 0 {
			pg.one = new([pageLen / 64]uint64)
		}
		list = append(list, p>>(chunkBits-pageBits))
	}
	per := int64(c.g.RefcountsPerBlock())
	h := &holes{c: c}
	for i := range c.table {
		first := int64(i) * per
		if first >= c.clusters {
			break
		}
		off := c.block(int64(i))
		if off == 0 {
			continue
		}
		if k := first >> chunkBits; per <= chunkLen && len(list) > 0 && list[len(list)-1] == k || h.isZero(off, c.g.ClusterSize()) {
			continue
		}
		for k := first >> chunkBits; k<<chunkBits < min(first+per, c.clusters); k++ {
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// comparer holds what the jobs share: nothing that changes.
type comparer struct{ c *checker }

// run compares the counters of one chunk.
func (j comparer) run(chunk int64) *compared {
	c := j.c
	r := &compared{highest: -1}
	per := int64(c.g.RefcountsPerBlock())
	end := min((chunk+1)<<chunkBits, c.clusters)
	p := bufPool.Get().(*[]byte)
	defer bufPool.Put(p)
	for at := chunk << chunkBits; at < end; {
		n := min(end, (at/per+1)*per) - at
		if c.g.RefcountTableIndex(at) >= int64(len(c.table)) {
			n = end - at // no block from here on
		}
		var piece []byte
		if off := c.block(c.g.RefcountTableIndex(at)); off != 0 {
			first := int64(c.g.RefcountBlockIndex(at))
			bytes := (n<<c.g.RefcountOrder + 7) / 8
			if int64(len(*p)) < bytes { // 64 bit counters
				*p = make([]byte, bytes)
			}
			piece = (*p)[:bytes]
			if err := c.read(piece, off+first<<c.g.RefcountOrder/8); err != nil {
				r.err, r.errOff = err, off
				return r
			}
			r.bytes += bytes
		}
		r.piece(c, piece, at, n)
		at += n
	}
	return r
}

// piece compares n counters from cluster at, whose stored values are in stored; nil = all 0.
func (r *compared) piece(c *checker, stored []byte, at, n int64) {
	for i := int64(0); i < n; {
		lo := int((at + i) & (pageLen - 1))
		k := int(min(n-i, int64(pageLen-lo)))
		p := c.counts.at(at + i)
		switch {
		case p == nil && stored == nil:
		case stored == nil && len(p.few) > 0:
			r.uncounted(p, lo, k, at+i)
		case p == nil:
			r.leaks(c.g.RefcountOrder, stored, int(i), k, at+i)
		default:
			r.pageCounters(c.g.RefcountOrder, stored, int(i), k, p, lo, at+i)
		}
		i += int64(k)
	}
}

// uncounted reports the few counters among k of a page from index lo on, cluster being the first, that no block counts.
func (r *compared) uncounted(p *page, lo, k int, cluster int64) {
	from := len(r.bad)
	for _, f := range p.few {
		if i := int(f >> 16); i >= lo && i < lo+k && f&0xffff != 0 {
			r.bad = append(r.bad, mismatch{cluster + int64(i-lo), 0, uint64(f & 0xffff)})
		}
	}
	slices.SortFunc(r.bad[from:], func(a, b mismatch) int { return cmp64(a.cluster, b.cluster) })
	if n := len(r.bad); n > from {
		r.highest = r.bad[n-1].cluster
	}
}

// leaks finds stored counts where nothing is referred to, eight bytes of zeros at a time.
func (r *compared) leaks(order uint8, stored []byte, first, k int, cluster int64) {
	perWord := 64 >> order
	for i := 0; i < k; i++ {
		if (first+i)%perWord == 0 && i+perWord <= k && binary.LittleEndian.Uint64(stored[(first+i)<<order/8:]) == 0 {
			i += perWord - 1
			continue
		}
		if v := layout.Refcount(stored, order, first+i); v != 0 {
			r.bad = append(r.bad, mismatch{cluster + int64(i), v, 0})
			r.highest = cluster + int64(i)
		}
	}
}

// ones8 compares eight counters of 16 bits at once: true if all are 1, stored and referred to.
func ones8(stored []byte, refs []byte) bool {
	const ones = 0x0100_0100_0100_0100 // 16 bit, big-endian in the file, read as little-endian
	return binary.LittleEndian.Uint64(refs) == 0x0101_0101_0101_0101 &&
		binary.LittleEndian.Uint64(stored) == ones && binary.LittleEndian.Uint64(stored[8:]) == ones
}

// pageCounters compares k counters that have a page, from index lo of it and index first of stored on; cluster is the first.
// The bits of the page that say whose stored count is 1 are set. Blocks hold whole multiples of 64 counters, so that no two workers
// share a word of these.
func (r *compared) pageCounters(order uint8, stored []byte, first, k int, p *page, lo int, cluster int64) {
	var values [64]uint64
	for i := 0; i < k; {
		at := lo + i
		n := min(k-i, 64-at&63)
		if order == 4 && p.bytes != nil && stored != nil && n == 64 && p.sixtyFourOnes(stored[2*(first+i):], at) {
			p.setOnes(at, ^uint64(0))
			r.highest = cluster + int64(i+63)
			i += 64
			continue
		}
		var ones uint64
		for j, ref := range p.values(values[:], at, at+n) {
			var v uint64
			if stored != nil {
				v = layout.Refcount(stored, order, first+i+j)
			}
			if v|ref != 0 {
				r.highest = cluster + int64(i+j)
				if v != ref {
					r.bad = append(r.bad, mismatch{cluster + int64(i+j), v, ref})
				}
			}
			if v == 1 {
				ones |= 1 << ((at + j) & 63)
			}
		}
		p.setOnes(at, ones)
		i += n
	}
}

// sixtyFourOnes tells whether 64 counters from index at on are 1, stored (in 16 bits) and referred to.
func (p *page) sixtyFourOnes(stored []byte, at int) bool {
	for j := 0; j < 64; j += 8 {
		if !ones8(stored[2*j:], p.bytes[at+j:]) {
			return false
		}
	}
	return true
}

// settle reports mismatches, and repairs those that fix allows.
func (c *checker) settle(bad []mismatch, fix Level) error {
	for len(bad) > 0 {
		// All that one refcount block counts is written at once.
		i := c.g.RefcountTableIndex(bad[0].cluster)
		n := 1
		for n < len(bad) && c.g.RefcountTableIndex(bad[n].cluster) == i {
			n++
		}
		if err := c.settleBlock(bad[:n], c.block(i), fix); err != nil {
			return err
		}
		bad = bad[n:]
	}
	return nil
}

func (c *checker) settleBlock(bad []mismatch, off int64, fix Level) error {
	var change []mismatch
	for _, m := range bad {
		f := Finding{Class: Corruption, Kind: RefcountMismatch, Cluster: m.cluster, Offset: m.cluster << c.g.ClusterBits,
			Stored: m.stored, Referenced: m.referenced}
		switch {
		case m.stored > m.referenced:
			f.Class, f.Fixing = Leak, fix != Nothing && off != 0
		case m.stored == 0:
			c.rebuild = true
		default:
			f.Fixing = fix == All && off != 0
		}
		c.report(&f)
		if f.Fixing {
			change = append(change, m)
		}
	}
	if len(change) == 0 {
		return nil
	}
	return c.writeCounts(change, off)
}

// writeCounts stores the right refcounts in the block at off.
func (c *checker) writeCounts(change []mismatch, off int64) error {
	order := c.g.RefcountOrder
	byteOf := func(cluster int64) int64 { return int64(c.g.RefcountBlockIndex(cluster)) << order / 8 }
	start := byteOf(change[0].cluster) &^ (layout.SectorSize - 1)
	end := min(byteOf(change[len(change)-1].cluster)&^(layout.SectorSize-1)+layout.SectorSize, c.g.ClusterSize())
	buf := make([]byte, end-start)
	if err := c.read(buf, off+start); err != nil {
		return c.failed(ReadError, "read refcount block", off, err)
	}
	first := int(start * 8 >> order)
	for _, m := range change {
		layout.SetRefcount(buf, order, c.g.RefcountBlockIndex(m.cluster)-first, m.referenced)
		if p := c.counts.at(m.cluster); p != nil && p.one != nil {
			p.setOne(int(m.cluster&(pageLen-1)), m.referenced == 1)
		}
		if m.referenced == 0 {
			c.free(m.cluster)
		}
	}
	c.stored.reset()
	if err := c.dev.Write(c.ctx, buf, off+start, 0); err != nil {
		return c.failed(RepairFailed, "write refcount block", off, err)
	}
	return nil
}

// free remembers a cluster whose space can be given back when its release is durable.
func (c *checker) free(cluster int64) {
	if !c.opt.Discard {
		return
	}
	if n := len(c.freed); n > 0 && c.freed[n-1].end == cluster {
		c.freed[n-1].end++
		return
	}
	if len(c.freed) < 1<<16 { // more is scattered space that is not worth the memory
		c.freed = append(c.freed, interval{start: cluster, end: cluster + 1})
	}
}

// discardFreed gives space back. It is advisory: an error is no failure of the repair.
func (c *checker) discardFreed() error {
	for _, r := range c.freed {
		off := r.start << c.g.ClusterBits
		n := min(r.end<<c.g.ClusterBits, c.dev.Size()) - off
		if n <= 0 {
			continue
		}
		if err := c.dev.Discard(c.ctx, off, n); err != nil {
			break
		}
	}
	c.freed = nil
	return c.ctx.Err()
}
