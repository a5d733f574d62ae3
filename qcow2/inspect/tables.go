package inspect

import (
	"context"
	"iter"

	"byre/block"
	"byre/qcow2/layout"
)

// chunk is how much of a table is read at a time.
const chunk = 1 << 20

// L1Record is an L1 entry that is not 0.
type L1Record struct {
	Index    int64
	Raw      layout.L1Entry
	Guest    layout.GuestOffset // first byte that it maps
	L2       layout.HostOffset
	Copied   bool
	Problems []string
}

// L2Record is a run of L2 entries of one table that continue one another.
type L2Record struct {
	L1Index int64
	Index   int // of the first entry in its table
	Count   int // entries of the run
	Guest   layout.GuestOffset
	Raw     layout.L2Entry // of the first entry
	Bitmap  layout.L2Bitmap
	Type    layout.ClusterType // of a standard entry, or of an extended one whose subclusters are all alike
	Mixed   bool               // extended, with subclusters of several types
	Host    layout.HostOffset  // of the first cluster, or of the stream
	Length  int64              // bytes of the stream, upper bound; 0 if not compressed
	Copied  bool
	Problem string
}

// RefcountRecord is a run of host clusters with the same refcount.
type RefcountRecord struct {
	Cluster int64 // first
	Count   int64
	Value   uint64
}

// Table selects an L1 table: the active one, or that of a snapshot.
type Table struct {
	Offset layout.HostOffset
	Size   int64 // entries
}

// Active is the active L1 table.
func (f *File) Active() Table {
	if f.Header == nil {
		return Table{}
	}
	return Table{f.Header.L1TableOffset, int64(f.Header.L1Size)}
}

// words iterates over the 8-byte entries of a table that are not 0. Holes of the file are skipped; what lies beyond
// its end is absent, which is an error behind the entries that are there.
func (f *File) words(ctx context.Context, off layout.HostOffset, n int64) iter.Seq2[int64, wordOrError] {
	return func(yield func(int64, wordOrError) bool) {
		size := f.dev.Size()
		if off < 0 || int64(off) > size {
			yield(0, wordOrError{err: f.corrupt(off, "the table lies beyond the end of the file of %d bytes", size)})
			return
		}
		have := min(n, (size-int64(off))/8)
		going := true
		f.eachPiece(ctx, int64(off), have*8, func(at int64, b []byte, err error) bool {
			first := (at - int64(off)) / 8
			if err != nil {
				yield(first, wordOrError{err: err})
				going = false
				return false
			}
			for i := 0; going && i < len(b)/8; i++ {
				if w := layout.Word(b, i); w != 0 {
					going = yield(first+int64(i), wordOrError{word: w})
				}
			}
			return going
		})
		if going && have < n {
			yield(have, wordOrError{err: f.corrupt(off, "the table of %d entries is cut off by the end of the file after %d", n, have)})
		}
	}
}

type wordOrError struct {
	word uint64
	err  error
}

// eachPiece reads [off, off+n) in pieces, without the holes.
func (f *File) eachPiece(ctx context.Context, off, n int64, visit func(at int64, b []byte, err error) bool) {
	buf := make([]byte, min(n, chunk))
	for end := off + n; off < end; {
		e, err := f.dev.Extent(ctx, off, end-off, block.WantZero)
		if err != nil {
			visit(off, nil, err)
			return
		}
		// Entries are 8 bytes; an extent may end inside one.
		if skip := e.Length &^ 7; e.IsZero() && skip > 0 {
			off += skip
			continue
		}
		b := buf[:min(int64(len(buf)), (e.Length+7)&^7, end-off)]
		if err := f.dev.Read(ctx, b, off); err != nil {
			visit(off, nil, err)
			return
		}
		if !visit(off, b, nil) {
			return
		}
		off += int64(len(b))
	}
}

func (f *File) corrupt(off layout.HostOffset, format string, args ...any) error {
	return block.Errorf(block.KindCorrupt, "inspect", f.dev.Path(), int64(off), format, args...)
}

// L1 lists the entries of an L1 table that are not 0.
func (f *File) L1(ctx context.Context, t Table) iter.Seq2[L1Record, error] {
	return func(yield func(L1Record, error) bool) {
		if err := f.usable(); err != nil {
			yield(L1Record{}, err)
			return
		}
		g := f.Header.Geometry()
		for i, w := range f.words(ctx, t.Offset, min(t.Size, layout.MaxL1Entries)) {
			if w.err != nil {
				yield(L1Record{}, w.err)
				return
			}
			e := layout.L1Entry(w.word)
			r := L1Record{Index: i, Raw: e, Guest: layout.GuestOffset(i * g.L2Coverage()), L2: e.Offset(), Copied: e.Copied()}
			if e.Reserved() != 0 {
				r.Problems = append(r.Problems, "reserved bits are set")
			}
			r.Problems = append(r.Problems, f.placeProblems(g, e.Offset(), g.ClusterSize(), "the L2 table")...)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// placeProblems judges a cluster's place by itself.
func (f *File) placeProblems(g layout.Geometry, off layout.HostOffset, n int64, what string) (out []string) {
	switch {
	case off == 0:
	case !g.Aligned(off):
		out = append(out, what+" is not aligned to clusters")
	case int64(off) >= f.dev.Size():
		out = append(out, what+" lies beyond the end of the file")
	case int64(off) > f.dev.Size()-n:
		out = append(out, what+" is cut off by the end of the file")
	}
	return out
}

// L2 lists the entries that are not 0 of every L2 table that t reaches, and that maps something of [from, to), as runs.
// Tables that cannot be read are a record with a Problem.
func (f *File) L2(ctx context.Context, t Table, from, to layout.GuestOffset) iter.Seq2[L2Record, error] {
	return func(yield func(L2Record, error) bool) {
		seen := map[layout.HostOffset]struct{}{} // at most as many as the file has L1 entries
		for l1, err := range f.L1(ctx, t) {
			if err != nil {
				yield(L2Record{}, err)
				return
			}
			g := f.Header.Geometry()
			if l1.L2 == 0 || l1.Guest >= to || l1.Guest+layout.GuestOffset(g.L2Coverage()) <= from {
				continue
			}
			if _, twice := seen[l1.L2]; twice {
				if !yield(L2Record{L1Index: l1.Index, Guest: l1.Guest, Problem: "the L2 table at " + l1.L2.String() + " is shared with an entry before"}, nil) {
					return
				}
				continue
			}
			seen[l1.L2] = struct{}{}
			if !f.l2Table(ctx, g, &l1, from, to, yield) {
				return
			}
		}
	}
}

// l2Table lists the runs of one table; false if the consumer has enough.
func (f *File) l2Table(ctx context.Context, g layout.Geometry, l1 *L1Record, from, to layout.GuestOffset, yield func(L2Record, error) bool) bool {
	b := make([]byte, g.ClusterSize())
	if n, err := f.dev.ReadAtContext(ctx, b, int64(l1.L2)); n < len(b) {
		if err := ctx.Err(); err != nil {
			yield(L2Record{}, err)
			return false
		}
		return yield(L2Record{L1Index: l1.Index, Guest: l1.Guest, Problem: "the L2 table at " + l1.L2.String() + " cannot be read: " + err.Error()}, nil)
	}
	var run L2Record
	for i := range g.L2Entries() {
		guest := l1.Guest + layout.GuestOffset(int64(i)<<g.ClusterBits)
		var e layout.L2Entry
		var m layout.L2Bitmap
		if g.ExtendedL2 {
			e, m = layout.ExtendedEntry(b, i)
		} else {
			e = layout.L2Entry(layout.Word(b, i))
		}
		if e == 0 && m == 0 || guest >= to || guest+layout.GuestOffset(g.ClusterSize()) <= from {
			continue
		}
		r := f.l2Entry(g, e, m)
		r.L1Index, r.Index, r.Count, r.Guest = l1.Index, i, 1, guest
		if run.Count > 0 && continues(g, &run, &r) {
			run.Count++
			continue
		}
		if run.Count > 0 && !yield(run, nil) {
			return false
		}
		run = r
	}
	return run.Count == 0 || yield(run, nil)
}

// continues tells whether b is the next entry of the run a.
func continues(g layout.Geometry, a, b *L2Record) bool {
	if b.Index != a.Index+a.Count || a.Type != b.Type || a.Copied != b.Copied || a.Mixed || b.Mixed || a.Bitmap != b.Bitmap ||
		a.Problem != b.Problem || a.Type == layout.TypeCompressed {
		return false
	}
	return a.Host == 0 && b.Host == 0 || a.Host+layout.HostOffset(int64(a.Count)<<g.ClusterBits) == b.Host
}

// l2Entry decodes and judges one entry.
func (f *File) l2Entry(g layout.Geometry, e layout.L2Entry, m layout.L2Bitmap) L2Record {
	r := L2Record{Raw: e, Bitmap: m, Copied: e.Copied()}
	if e.Compressed() {
		r.Type = layout.TypeCompressed
		c, ok := g.DecodeCompressed(e)
		r.Host, r.Length = c.Offset, c.Size
		switch {
		case !ok:
			r.Problem = "the stream's offset is out of range"
		case int64(c.Offset) >= f.dev.Size() && !g.DataFile:
			r.Problem = "the stream lies beyond the end of the file"
		case e.Copied():
			r.Problem = "COPIED is set on a compressed cluster"
		}
		return r
	}
	r.Host = e.Offset()
	if g.ExtendedL2 {
		n := 0
		r.Type, n = g.SubclusterRun(e, m, 0)
		r.Mixed = n < layout.Subclusters
		if !g.ValidExtended(e, m) {
			r.Type, r.Mixed, r.Problem = layout.TypeInvalid, false, "entry and subcluster bitmap contradict each other"
		}
	} else if r.Type = g.ClusterType(e); r.Type == layout.TypeInvalid {
		r.Problem = "invalid entry"
	}
	switch {
	case r.Problem != "":
	case e.Reserved() != 0:
		r.Problem = "reserved bits are set"
	case g.DataFile:
		if r.Host != 0 && !g.Aligned(r.Host) {
			r.Problem = "the cluster is not aligned"
		}
	default:
		// A data cluster may be cut off by the end of the file (qcow2-format §0).
		if p := f.placeProblems(g, r.Host, 1, "the cluster"); p != nil {
			r.Problem = p[0]
		}
	}
	return r
}

// Refcounts lists the host clusters with refcounts that are not 0, as runs.
func (f *File) Refcounts(ctx context.Context) iter.Seq2[RefcountRecord, error] {
	return func(yield func(RefcountRecord, error) bool) {
		if err := f.usable(); err != nil {
			yield(RefcountRecord{}, err)
			return
		}
		h := f.Header
		g := h.Geometry()
		entries := min(int64(h.RefcountTableClusters)<<h.ClusterBits, layout.MaxRefTableBytes) / 8
		var run RefcountRecord
		for i, w := range f.words(ctx, h.RefcountTableOffset, entries) {
			err := w.err
			if err == nil {
				err = f.refcountBlock(ctx, g, layout.RefTableEntry(w.word).Offset(), i*int64(g.RefcountsPerBlock()), &run, yield)
			}
			if err == errEnough {
				return
			}
			if err != nil && !yield(RefcountRecord{}, err) {
				return
			}
		}
		if run.Count > 0 {
			yield(run, nil)
		}
	}
}

// errEnough: the consumer wants no more.
var errEnough = block.Errorf(block.KindInvalid, "", "", block.NoOffset, "enough")

func (f *File) refcountBlock(ctx context.Context, g layout.Geometry, off layout.HostOffset, first int64, run *RefcountRecord, yield func(RefcountRecord, error) bool) error {
	if !g.Aligned(off) {
		return f.corrupt(off, "the refcount block for cluster %d is not aligned to clusters", first)
	}
	b := make([]byte, g.ClusterSize())
	if n, err := f.dev.ReadAtContext(ctx, b, int64(off)); n < len(b) {
		return f.corrupt(off, "the refcount block for cluster %d cannot be read: %w", first, err)
	}
	for i := range g.RefcountsPerBlock() {
		v := layout.Refcount(b, g.RefcountOrder, i)
		c := first + int64(i)
		if v != 0 && run.Count > 0 && run.Value == v && run.Cluster+run.Count == c {
			run.Count++
			continue
		}
		if v == 0 {
			continue
		}
		if run.Count > 0 && !yield(*run, nil) {
			return errEnough
		}
		*run = RefcountRecord{c, 1, v}
	}
	return nil
}
