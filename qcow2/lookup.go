package qcow2

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

// view is one mapping of guest offsets: the active state or a snapshot.
type view struct {
	im     *Image
	active bool
	size   atomic.Int64
	l1     atomic.Pointer[table] // swapped when the table moves
}

// openL1 sets the L1 table of a view.
func (v *view) openL1(off layout.HostOffset, n int64) error {
	t, err := newTable("L1 table", v.im.file, off, n, block.EventNone, v.im.budget)
	if err == nil {
		v.l1.Store(t)
	}
	return err
}

// mapping is the answer to one lookup: what the guest bytes [guest, guest+n)
// are. It ends at the latest at the end of an L2 slice.
type mapping struct {
	typ   layout.ClusterType
	guest int64
	n     int64
	// host is where byte guest lies, for types that own a host cluster. For
	// compressed clusters it is the start of the stream of the whole cluster.
	host   layout.HostOffset
	stream int64 // compressed: upper bound of the stream's length
}

// How a lookup treats what it finds.
const (
	lookupRuns = 1 << iota // let compressed clusters make runs too (no stream is named then)
)

const opLookup = "look up guest data"

// lookup finds out what is at guest offset off, for at most limit > 0 bytes,
// and stores it in m. Offsets past the L1 table are unallocated.
func (v *view) lookup(ctx context.Context, off, limit int64, flags int, m *mapping) error {
	g := v.im.geo
	for {
		t := v.l1.Load()
		i := g.L1Index(layout.GuestOffset(off))
		*m = mapping{guest: off}
		if i >= t.n {
			m.n = limit
			return nil
		}
		word, err := t.get(ctx, i)
		if err != nil {
			return err
		}
		e := layout.L1Entry(word)
		if e.Offset() == 0 {
			m.n, err = v.emptyRun(ctx, t, i, off, limit)
			return err
		}
		s, hole, err := v.sliceOrHole(ctx, e, g.L2Index(layout.GuestOffset(off)))
		if err != nil {
			return err
		}
		if hole > 0 {
			return v.decodeHole(hole, limit, m)
		}
		s.RLock()
		ok := v.stable(t, i, word, s)
		if ok {
			err = v.decode(s, limit, flags, m)
		}
		s.RUnlock()
		s.release()
		if ok {
			return err
		}
	}
}

// emptyRun returns the length, at most limit, of the range from off on whose L1
// entries name no L2 table.
func (v *view) emptyRun(ctx context.Context, t *table, i, off, limit int64) (int64, error) {
	cover := v.im.geo.L2Coverage()
	n := cover - off%cover
	for i++; n < limit && i < t.n; i++ {
		word, err := t.get(ctx, i)
		if err != nil {
			return 0, err
		}
		if layout.L1Entry(word).Offset() != 0 {
			return n, nil
		}
		n += cover
	}
	if n < limit && i >= t.n {
		n = limit
	}
	return min(n, limit), nil
}

// slice returns the pinned slice of the L2 table of e that holds entry index.
// For images that can be written.
func (v *view) slice(ctx context.Context, e layout.L1Entry, index int) (*slot, error) {
	s, _, err := v.sliceOrHole(ctx, e, index) // no holes there: see sparseTables
	return s, err
}

// sliceOrHole returns the pinned slice of the L2 table of e that holds entry index.
// If the slice lies in a hole of the file it returns the length of the hole
// instead, in bytes from the start of the slice to at most the table's end.
func (v *view) sliceOrHole(ctx context.Context, e layout.L1Entry, index int) (s *slot, hole int64, err error) {
	im := v.im
	off := e.Offset()
	within := int64(index) * int64(im.geo.L2EntrySize()) &^ (im.l2.slotSize - 1)
	at := off + layout.HostOffset(within)
	if s = im.l2.lookup(at); s != nil {
		if s.loaded.Load() {
			return s, 0, nil // where it lies was judged before it was loaded
		}
		s.release()
	}
	if err = im.checkL2(off); err != nil {
		return nil, 0, err
	}
	if s == nil && im.sparseTables(ctx) {
		x, err := im.file.Extent(ctx, int64(at), im.geo.ClusterSize()-within, block.WantZero)
		if err == nil && x.IsZero() && x.Length >= im.l2.slotSize {
			return nil, x.Length &^ (im.l2.slotSize - 1), nil
		}
	}
	s, err = im.l2.get(ctx, at)
	return s, 0, err
}

// decodeHole answers for a part of an L2 table that lies in a hole of the
// file: nothing is allocated there.
func (v *view) decodeHole(hole, limit int64, m *mapping) error {
	g := v.im.geo
	perSlice := v.im.l2.slotSize / int64(g.L2EntrySize())
	first := int64(g.L2Index(layout.GuestOffset(m.guest))) &^ (perSlice - 1)
	m.n = min((first+hole/int64(g.L2EntrySize()))<<g.ClusterBits-m.guest%g.L2Coverage(), limit)
	return nil
}

// sparseTables tells whether the L2 tables seem to lie in holes: more bytes of
// them were loaded than the file has on its medium. Then it pays to ask for
// holes before a slice is loaded, so that work follows what the file holds, not
// what its tables claim. Not while the image can be written: the cache may
// then know more than the file.
func (im *Image) sparseTables(ctx context.Context) bool {
	const never = 1 << 20 // bytes that are always loaded without asking
	loaded := im.l2.loadedBytes.Load()
	if loaded < never || im.w != nil {
		return false
	}
	limit := im.sparseFrom.Load()
	if limit == 0 {
		n, ok, err := im.AllocatedSize(ctx)
		if err != nil || !ok {
			n = 0
		}
		limit = max(n, never)
		im.sparseFrom.Store(limit)
	}
	return loaded >= limit
}

// checkL2 judges the place of an L2 table.
func (im *Image) checkL2(off layout.HostOffset) error {
	const op = "read L2 table"
	cs := im.geo.ClusterSize()
	if !im.geo.Aligned(off) {
		return im.corrupt(op, off, "the L2 table's offset is not aligned to clusters")
	}
	if size := im.file.Size(); int64(off) > size-cs {
		return im.corrupt(op, off, "the L2 table does not lie wholly within the file of %d bytes", size)
	}
	return im.fenced(op, off, cs)
}

// stable reports whether s is still the slice that entry i of the L1 table
// names. Only then are the entries in it good.
func (v *view) stable(t *table, i int64, word uint64, s *slot) bool {
	if s.dead {
		return false
	}
	if v.im.w == nil {
		return true // nothing moves
	}
	now, ok := t.peek(i)
	return ok && now == word && v.l1.Load() == t
}

// decode reads the entries from m.guest on. The slice is locked.
func (v *view) decode(s *slot, limit int64, flags int, m *mapping) error {
	im, g := v.im, v.im.geo
	inSlice := g.L2Index(layout.GuestOffset(m.guest)) & (len(s.data)/g.L2EntrySize() - 1)
	var err error
	if g.ExtendedL2 {
		err = v.decodeExtended(s.data, inSlice, limit, flags, m)
	} else {
		err = v.decodeStandard(s.data[inSlice*8:], limit, flags, m)
	}
	if err != nil {
		return err
	}
	if m.typ.OwnsHost() {
		if err := im.checkHost(m); err != nil {
			return err
		}
	}
	return nil
}

// checkHost judges the host range of an answer.
func (im *Image) checkHost(m *mapping) error {
	in := layout.HostOffset(im.geo.InCluster(layout.GuestOffset(m.guest)))
	if !im.geo.Aligned(m.host - in) {
		return im.corrupt(opLookup, m.host-in, "the cluster of guest offset %#x is not aligned", m.guest)
	}
	if im.geo.DataFile {
		if int64(m.host) != m.guest {
			return im.corrupt(opLookup, m.host, "guest offset %#x lies elsewhere in the external data file", m.guest)
		}
		return nil
	}
	return im.fenced(opLookup, m.host, m.n)
}

// Bits of an entry that decide what it is; readers ignore the others.
const (
	entryOffset = uint64(0x00fffffffffffe00)
	entryBits   = entryOffset | 1<<62 | 1
)

// decodeStandard decodes a run of entries that starts at the beginning of table.
func (v *view) decodeStandard(table []byte, limit int64, flags int, m *mapping) error {
	g := v.im.geo
	cs := g.ClusterSize()
	in := g.InCluster(layout.GuestOffset(m.guest))
	first := layout.L2Entry(binary.BigEndian.Uint64(table))
	m.typ = g.ClusterType(first)
	// A run goes on while the next entry is want, which grows by step.
	want, step := uint64(first)&entryBits, uint64(cs)
	switch m.typ {
	case layout.TypeInvalid:
		return v.invalid(m, first, 0)
	case layout.TypeCompressed:
		return v.decodeCompressed(table, 8, first, limit, flags, m)
	case layout.TypeUnallocated, layout.TypeZeroPlain:
		step = 0
	default:
		m.host = first.Offset() + layout.HostOffset(in)
	}
	n := cs - in
	unallocatedInDataFile := g.DataFile && m.typ == layout.TypeUnallocated
	for at := 8; n < limit && at+8 <= len(table); at += 8 {
		want += step
		word := binary.BigEndian.Uint64(table[at:])
		if word&entryBits != want || unallocatedInDataFile && word>>63 != 0 {
			break
		}
		n += cs
	}
	m.n = min(n, limit)
	return nil
}

// decodeCompressed decodes one compressed cluster, or counts a run of them.
func (v *view) decodeCompressed(table []byte, stride int, first layout.L2Entry, limit int64, flags int, m *mapping) error {
	im, g := v.im, v.im.geo
	cs := g.ClusterSize()
	n := cs - g.InCluster(layout.GuestOffset(m.guest))
	if g.DataFile {
		return im.corrupt(opLookup, layout.HostOffset(block.NoOffset), "guest offset %#x is compressed, in an image with an external data file", m.guest)
	}
	if flags&lookupRuns != 0 {
		for at := stride; n < limit && at+8 <= len(table) && table[at]&0x40 != 0; at += stride {
			n += cs
		}
		m.n = min(n, limit)
		return nil
	}
	c, ok := g.DecodeCompressed(first)
	if !ok {
		return im.corrupt(opLookup, c.Offset, "the compressed cluster of guest offset %#x lies beyond the largest offset", m.guest)
	}
	m.host, m.stream, m.n = c.Offset, c.Size, min(n, limit)
	return im.fenced(opLookup, c.Offset, c.Size)
}

// decodeExtended decodes a run of subclusters that starts in entry index of the slice.
func (v *view) decodeExtended(slice []byte, index int, limit int64, flags int, m *mapping) error {
	g := v.im.geo
	cs, sub := g.ClusterSize(), g.SubclusterSize()
	e, b := layout.ExtendedEntry(slice, index)
	sc := g.Subcluster(layout.GuestOffset(m.guest))
	typ, run := g.SubclusterRun(e, b, sc)
	m.typ = typ
	switch typ {
	case layout.TypeInvalid:
		return v.invalid(m, e, b)
	case layout.TypeCompressed:
		return v.decodeCompressed(slice[index*16:], 16, e, limit, flags, m)
	}
	if typ.OwnsHost() {
		m.host = e.Offset() + layout.HostOffset(g.InCluster(layout.GuestOffset(m.guest)))
	}
	n := int64(sc+run)*sub - g.InCluster(layout.GuestOffset(m.guest))
	// The run goes on into following clusters while each is reached to its end.
	next := e.Offset()
	for index++; n < limit && sc+run == layout.Subclusters && (index+1)*16 <= len(slice); index++ {
		e, b = layout.ExtendedEntry(slice, index)
		sc = 0
		if typ.OwnsHost() {
			if next += layout.HostOffset(cs); e.Offset() != next {
				break
			}
		}
		var t layout.ClusterType
		if t, run = g.SubclusterRun(e, b, 0); t != typ {
			break
		}
		n += int64(run) * sub
	}
	m.n = min(n, limit)
	return nil
}

// invalid is the error for an entry that contradicts the format.
func (v *view) invalid(m *mapping, e layout.L2Entry, b layout.L2Bitmap) error {
	if v.im.geo.ExtendedL2 {
		return v.im.corrupt(opLookup, e.Offset(), "the extended L2 entry %#x %#x of guest offset %#x is invalid", uint64(e), uint64(b), m.guest)
	}
	return v.im.corrupt(opLookup, e.Offset(), "the L2 entry %#x of guest offset %#x has a zero flag, which version 2 does not know", uint64(e), m.guest)
}
