package check

import (
	"sync"

	"byre/qcow2/layout"
)

// Sizes of what is read at once.
const (
	batchBytes  = 256 << 10 // of L2 tables
	batchTables = 256
)

// step is what an L2 table says: a run of clusters that it refers to, or a finding.
type step struct {
	cluster int64
	n       int32
	finding int32 // with n == 0: index of the finding
}

// l2Result is what decoding one table gave. Steps are in the order of the entries.
type l2Result struct {
	ref      *l2Ref
	steps    []step
	findings []l2Finding
	alloc    int64
	frag     int64
	packed   int64 // compressed clusters
}

// l2Finding is a finding in an L2 table, with the entry it is about.
type l2Finding struct {
	Finding
	entry int // index in the table
}

// batch is a run of tables that one goroutine reads and decodes.
type batch struct {
	refs    []l2Ref
	results []l2Result
	err     error
	errOff  int64
}

var bufPool = sync.Pool{New: func() any { b := make([]byte, batchBytes); return &b }}

// batches cuts the tables, which are sorted, into pieces for the workers.
func (c *checker) batches(refs []l2Ref) [][]l2Ref {
	per := int(max(1, min(batchTables, batchBytes>>c.g.ClusterBits)))
	if few := (len(refs) + 4*c.workers - 1) / (4 * c.workers); few < per {
		per = max(1, few)
	}
	var out [][]l2Ref
	for len(refs) > 0 {
		n := min(per, len(refs))
		out, refs = append(out, refs[:n]), refs[n:]
	}
	return out
}

// readTables reads the tables of a batch, neighbours in one request, and calls visit with each.
// An error names the offset.
func (c *checker) readTables(refs []l2Ref, visit func(r *l2Ref, table []byte)) (int64, error) {
	cs := c.g.ClusterSize()
	p := bufPool.Get().(*[]byte)
	defer bufPool.Put(p)
	if int64(len(*p)) < cs {
		*p = make([]byte, cs)
	}
	buf := *p
	for i := 0; i < len(refs); {
		n := 1
		for i+n < len(refs) && refs[i+n].off == refs[i].off+int64(n)*cs && int64(n+1)*cs <= int64(len(buf)) {
			n++
		}
		if err := c.read(buf[:int64(n)*cs], refs[i].off); err != nil {
			return refs[i].off, err
		}
		for k := range n {
			visit(&refs[i+k], buf[int64(k)*cs:int64(k+1)*cs])
		}
		i += n
	}
	return 0, nil
}

// walkL2 decodes all L2 tables and counts what they refer to.
func (c *checker) walkL2() error {
	work := c.batches(c.l2s)
	c.work.total = 2*int64(len(c.l2s))*c.g.ClusterSize() + c.refBlockBytes()
	return ordered(c.ctx, len(work), c.workers, func(i int) *batch {
		b := &batch{refs: work[i]}
		b.errOff, b.err = c.readTables(b.refs, func(r *l2Ref, table []byte) {
			d := l2Decoder{c: c, res: l2Result{ref: r}}
			d.decode(table)
			b.results = append(b.results, d.res)
		})
		return b
	}, c.applyBatch)
}

func (c *checker) applyBatch(b *batch) error {
	if b.err != nil {
		return c.failed(ReadError, "read L2 table", b.errOff, b.err)
	}
	for i := range b.results {
		if err := c.applyTable(&b.results[i]); err != nil {
			return err
		}
	}
	c.progress(int64(len(b.refs)) * c.g.ClusterSize())
	return nil
}

// applyTable counts the references of one table and reports its findings.
func (c *checker) applyTable(r *l2Result) error {
	zeroed, done := -1, false // the entry that was last repaired, and whether that worked
	for _, s := range r.steps {
		if s.n > 0 {
			c.add(s.cluster, int64(s.n), r.ref.weight)
			continue
		}
		f := &r.findings[s.finding]
		if !f.Fixing {
			c.report(&f.Finding)
			continue
		}
		// The entry becomes "reads as zeros"; if that cannot be written, what it refers to counts.
		if f.entry != zeroed {
			zeroed, done = f.entry, c.zeroEntry(r.ref, f.entry)
		}
		f.Fixing = done
		c.report(&f.Finding)
		if done || f.Kind != PreallocUnaligned {
			continue
		}
		if first, k, ok := c.region(f.Offset, c.g.ClusterSize()); ok {
			c.add(first, k, r.ref.weight)
		}
	}
	if n := r.ref.active; n > 0 {
		c.res.AllocatedClusters += n * r.alloc
		c.res.FragmentedClusters += n * r.frag
		c.res.CompressedClusters += n * r.packed
	}
	return nil
}

// l2Decoder turns the entries of one table into steps.
type l2Decoder struct {
	c    *checker
	res  l2Result
	next int64 // where a contiguous cluster would lie; 0 before the first
}

func (d *l2Decoder) decode(table []byte) {
	if d.c.g.ExtendedL2 {
		for i := 0; i < len(table)/16; i++ {
			e, b := layout.ExtendedEntry(table, i)
			if e|layout.L2Entry(b) != 0 {
				d.entry(i, e, b)
			}
		}
		return
	}
	cs, end := uint64(d.c.g.ClusterSize()), uint64(max(0, d.c.size))
	const odd = uint64(1)<<62 | 0x3f000000000001ff
	checked := !d.c.g.DataFile
	for i := 0; i+8 <= len(table); {
		w := word(table[i:])
		// Almost every entry is an aligned cluster inside the file, and its neighbour the next one.
		if off := w &^ (1 << 63); checked && w&odd == 0 && off&(cs-1) == 0 && off < end && off != 0 {
			n := runLength(table[i:], w, cs, int64((end-1-off)/cs)+1)
			d.normal(int64(off), int64(n))
			i += 8 * n
			continue
		}
		if w != 0 {
			d.entry(i/8, layout.L2Entry(w), 0)
		}
		i += 8
	}
}

// runLength counts how many words of a table go up by step from the first, which is w; at most limit.
func runLength(table []byte, w, step uint64, limit int64) int {
	n, most := 1, int(min(limit, int64(len(table)/8)))
	for want := w + step; n < most && word(table[8*n:]) == want; want += step {
		n++
	}
	return n
}

// normal takes n entries with clusters in a row from off on that need no further look.
func (d *l2Decoder) normal(off, n int64) {
	d.res.alloc += n
	if d.next != 0 && off != d.next {
		d.res.frag++
	}
	d.next = off + n<<d.c.g.ClusterBits
	d.refer(off>>d.c.g.ClusterBits, n)
}

// refer counts k clusters.
func (d *l2Decoder) refer(first, k int64) {
	if n := len(d.res.steps); n > 0 {
		if s := &d.res.steps[n-1]; s.n > 0 && s.cluster+int64(s.n) == first {
			s.n += int32(k)
			return
		}
	}
	d.res.steps = append(d.res.steps, step{cluster: first, n: int32(k)})
}

func (d *l2Decoder) found(i int, f Finding) {
	d.res.steps = append(d.res.steps, step{finding: int32(len(d.res.findings))})
	d.res.findings = append(d.res.findings, l2Finding{f, i})
}

// region counts what a range of bytes touches, or reports that it lies beyond the end.
func (d *l2Decoder) region(i int, off, n int64) {
	if off+n-d.c.size >= d.c.g.ClusterSize() {
		d.found(i, Finding{Class: Corruption, Kind: BeyondEOF, Offset: off, Length: n})
		return
	}
	first := off >> d.c.g.ClusterBits
	d.refer(first, (off+n-1)>>d.c.g.ClusterBits-first+1)
}

// entry judges any entry (§3.3, §3.6, §3.7, §11.1).
func (d *l2Decoder) entry(i int, e layout.L2Entry, b layout.L2Bitmap) {
	g := d.c.g
	zero := e.Zero() && !g.ExtendedL2
	// An unaligned place without data in it is given up: then the whole entry is made anew.
	empty := !e.Compressed() && !g.Aligned(e.Offset()) && b.Alloc() == 0 && (zero || g.ExtendedL2)
	renew := empty && d.c.opt.Repair == All
	if r := e.Reserved(); r != 0 {
		d.found(i, Finding{Class: Corruption, Kind: L2Reserved, Entry: uint64(e), Fixing: renew})
	}
	if e.Compressed() {
		d.compressed(i, e, b)
		return
	}
	off := int64(e.Offset())
	if zero && g.Version == 2 {
		d.found(i, Finding{Class: Corruption, Kind: ZeroFlagV2, Entry: uint64(e)})
	}
	if off == 0 && !(g.DataFile && e.Copied() && !zero) {
		if b.Alloc() != 0 {
			d.found(i, Finding{Class: Corruption, Kind: SubclusterNoCluster})
		}
		return
	}
	if b.Alloc()&b.Zero() != 0 {
		d.found(i, Finding{Class: Corruption, Kind: SubclusterConflict, Offset: off})
		return
	}
	if !g.Aligned(e.Offset()) {
		f := Finding{Class: Corruption, Kind: DataUnaligned, Offset: off, Fixing: renew}
		if empty {
			f.Kind = PreallocUnaligned
		}
		if d.found(i, f); renew {
			return
		}
	}
	if g.DataFile {
		d.dataFile(i, e)
	}
	d.res.alloc++
	if d.next != 0 && off != d.next {
		d.res.frag++
	}
	d.next = off + g.ClusterSize()
	if !g.DataFile {
		d.region(i, off, g.ClusterSize())
	}
}

// dataFile judges that a cluster lies in the data file where it lies in the guest (§3.9).
func (d *l2Decoder) dataFile(i int, e layout.L2Entry) {
	if r := d.res.ref; r.active == 1 {
		guest := r.l1Index*d.c.g.L2Coverage() + int64(i)<<d.c.g.ClusterBits
		if int64(e.Offset()) != guest {
			d.found(i, Finding{Class: Corruption, Kind: DataFileOffset, Offset: guest, Entry: uint64(e)})
		}
	}
}

// compressed judges a compressed descriptor.
func (d *l2Decoder) compressed(i int, e layout.L2Entry, b layout.L2Bitmap) {
	g := d.c.g
	z, ok := g.DecodeCompressed(e.WithCopied(false))
	if e.Copied() {
		d.found(i, Finding{Class: Corruption, Kind: CompressedCopied, Offset: int64(z.Offset)})
		e = e.WithCopied(false)
	}
	switch {
	case g.DataFile:
		d.found(i, Finding{Class: Corruption, Kind: CompressedDataFile, Index: int64(i), Entry: uint64(e)})
		return
	case b != 0:
		d.found(i, Finding{Class: Corruption, Kind: CompressedBitmap, Index: int64(i), Entry: uint64(e)})
		return
	}
	if ok {
		d.region(i, int64(z.Offset), z.Size)
	} else { // offset bits that no file can have
		d.found(i, Finding{Class: Corruption, Kind: BeyondEOF, Offset: int64(z.Offset), Length: z.Size})
	}
	d.res.alloc++
	d.res.frag++
	d.res.packed++
}
