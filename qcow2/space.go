package qcow2

import (
	"context"
	"sync"

	"byre/block"
	"byre/qcow2/layout"
)

// clusters is a run of host clusters: numbers, not bytes.
type clusters struct{ at, n int64 }

func (c clusters) end() int64 { return c.at + c.n }

const (
	// firstClaim and maxClaim bound the run of clusters whose counts are raised at once.
	firstClaim = 64
	maxClaim   = 1024
	// maxClaimBytes bounds the same in bytes of the file.
	maxClaimBytes = 64 << 20
	// softLimit is the number of lowered counts that may wait for a reason to write them.
	softLimit = 1024
	// scanStep is the number of refcount blocks that are searched for holes before the file is extended.
	scanStep = 2
)

// space hands out host clusters and takes them back.
//
// A cluster that is handed out has the count 1 already: counts are raised for runs of clusters ("claims") ahead of need,
// so most allocations touch no refcount block. Claims never reach past the end of the file, are kept over flushes and
// given back at close; a crash leaks what is left of them (mechanisms §4, qcow2-format §9.4a).
//
// Sources, in this order: what was claimed and given back or freed lately; holes below the end of the file, which are
// found by and by (scan); the end of the file, which is extended in large steps.
//
// Clusters at the end of the file that were never handed out since the file grew over them read as zeros: alloc calls
// them fresh (§9.4a). The mark is where the file ended at open, rounded up; being handed out counts as being written.
type space struct {
	file  *block.Device
	geo   layout.Geometry
	order *ordering
	host  spaceHost

	growable bool // the file can be extended
	zeroInit bool // what growth adds reads as zeros

	openedSize int64 // bytes of the file when the image was opened

	mu struct {
		sync.Mutex
		refs refcounts

		tail    clusters // claimed at the end of the file, in the order of the file
		claimed freeSet  // other clusters with count 1 that nobody has
		free    freeSet  // clusters with count 0
		batch   int64    // size of the next claim at the end

		end     int64  // nothing from here on is in use, claimed or in free, except counts that were there at open
		opened  int64  // end of the file at open, in clusters rounded up
		fileEnd int64  // clusters that lie wholly in the file, as far as known
		grown   uint64 // ordering mark of the last growth
		scan    int64  // refcount blocks below were searched for holes

		hint layout.HostOffset // next free byte behind the last compressed stream, 0 = none
	}
}

// spaceHost is what the space asks of the image around it.
type spaceHost interface {
	// checkOverlap refuses a write to [off, off+n) that would hit metadata other than allowed.
	checkOverlap(ctx context.Context, off layout.HostOffset, n int64, allowed metaClass) error
	// pokeHeader changes the header in memory and in the file; it is not durable when it returns.
	pokeHeader(ctx context.Context, p layout.Poke, change func(h *layout.Header)) error
	// newRefBlock and movedRefTable are told what the overlap checks and others must know.
	newRefBlock(off layout.HostOffset)
	movedRefTable(old clusters)
	// dropCached forgets what is cached of clusters that become something else; tables says that they may be tables.
	dropCached(c clusters, tables bool)
}

func newSpace(im *Image, t *table, order *ordering, host spaceHost) *space {
	f := im.file
	geo := f.Geometry()
	s := &space{file: f, geo: im.geo, order: order, host: host, growable: geo.Growable, zeroInit: geo.ZeroInit && geo.Growable}
	m := &s.mu
	m.refs = refcounts{file: f, geo: im.geo, table: t,
		cache: newCache("refcount block", f, refSlotSize(im.geo), block.EventRefblockLoad, im.budget)}
	size := f.Size()
	s.openedSize = size
	m.opened = im.geo.Clusters(size)
	m.end = m.opened
	m.fileEnd = size >> im.geo.ClusterBits
	m.batch = firstClaim
	return s
}

// allocated is the answer to an allocation.
type allocated struct {
	clusters
	fresh bool // reads as zeros as long as nobody writes to it
}

// alloc hands out between 1 and n adjacent clusters. With at ≥ 0 the run must start there; then n = 0 in the answer
// means that it is taken. KindNoSpace tells that there is nothing left (the caller may flush, wait for the quarantine
// and try again).
func (s *space) alloc(ctx context.Context, n, at int64) (allocated, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at >= 0 {
		return s.allocAtLocked(ctx, n, at)
	}
	return s.allocLocked(ctx, n, false)
}

// allocMeta hands out exactly n adjacent clusters.
func (s *space) allocMeta(ctx context.Context, n int64) (allocated, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocLocked(ctx, n, true)
}

func (s *space) allocLocked(ctx context.Context, n int64, exact bool) (allocated, error) {
	m := &s.mu
	if c, l, ok := m.claimed.find(n, n); ok {
		m.claimed.remove(c, l)
		return allocated{clusters: clusters{c, l}}, nil
	}
	if m.free.total < n {
		if err := s.scanLocked(ctx, scanStep); err != nil {
			return allocated{}, err
		}
	}
	if a, ok, err := s.fromHolesLocked(ctx, n, n); ok || err != nil {
		return a, err
	}
	a, err := s.fromTailLocked(ctx, n, exact)
	if err == nil || block.KindOf(err) != block.KindNoSpace {
		return a, err
	}
	// The end is closed: search everything, then take what is there, in pieces if that will do.
	if e := s.scanLocked(ctx, -1); e != nil {
		return a, e
	}
	least := int64(1)
	if exact {
		least = n
	}
	for want := n; want >= least; want /= 2 {
		if c, l, ok := m.claimed.find(want, n); ok {
			m.claimed.remove(c, l)
			return allocated{clusters: clusters{c, l}}, nil
		}
		if a, ok, e := s.fromHolesLocked(ctx, want, n); ok || e != nil {
			return a, e
		}
	}
	return a, err
}

// fromHolesLocked claims the first hole of at least n clusters and hands out at most limit of it.
func (s *space) fromHolesLocked(ctx context.Context, n, limit int64) (allocated, bool, error) {
	m := &s.mu
	c, l, ok := m.free.find(n, max(limit, s.claimSize()))
	if !ok {
		return allocated{}, false, nil
	}
	if err := m.refs.increment(ctx, c, l); err != nil {
		return allocated{}, false, err
	}
	m.free.remove(c, l)
	take := min(l, limit)
	m.claimed.add(c+take, l-take)
	return allocated{clusters: clusters{c, take}}, true, nil
}

// fromTailLocked hands out from the end of the file.
func (s *space) fromTailLocked(ctx context.Context, n int64, exact bool) (allocated, error) {
	m := &s.mu
	for m.tail.n < n {
		if !exact && m.tail.n > 0 && m.tail.end() != m.end {
			break // cannot be made longer: use it up
		}
		if err := s.extendTailLocked(ctx, n); err != nil {
			if m.tail.n > 0 && !exact && block.KindOf(err) == block.KindNoSpace {
				break
			}
			return allocated{}, err
		}
	}
	take := min(n, m.tail.n)
	a := allocated{clusters{m.tail.at, take}, s.zeroInit && m.tail.at >= m.opened}
	m.tail.at += take
	m.tail.n -= take
	return a, nil
}

// allocAtLocked hands out clusters from at on, as far as they are to be had.
func (s *space) allocAtLocked(ctx context.Context, n, at int64) (allocated, error) {
	m := &s.mu
	if at == m.tail.at && m.tail.n > 0 || at == m.end && m.tail.n == 0 && s.growable {
		if m.tail.n == 0 {
			if err := s.extendTailLocked(ctx, n); err != nil && block.KindOf(err) != block.KindNoSpace {
				return allocated{}, err
			}
			if m.tail.n == 0 || m.tail.at != at {
				return allocated{}, nil
			}
		}
		return s.fromTailLocked(ctx, min(n, m.tail.n), false)
	}
	if l := m.claimed.runAt(at, n); l > 0 {
		m.claimed.remove(at, l)
		return allocated{clusters: clusters{at, l}}, nil
	}
	if l := m.free.runAt(at, n); l > 0 {
		if err := m.refs.increment(ctx, at, l); err != nil {
			return allocated{}, err
		}
		m.free.remove(at, l)
		return allocated{clusters: clusters{at, l}}, nil
	}
	return allocated{}, nil
}

// claimSize is how many clusters one claim may have, at most.
func (s *space) claimSize() int64 {
	return max(1, min(s.mu.batch, maxClaimBytes>>s.geo.ClusterBits))
}

// extendTailLocked makes the claim at the end longer, or starts a new one (then what was left of the old one is kept
// among the claimed). n is how much will be wanted in all.
func (s *space) extendTailLocked(ctx context.Context, n int64) error {
	m := &s.mu
	at := m.end
	if s.geo.ClusterOffset(at+1) > layout.MaxTableOffset {
		return block.Errorf(block.KindNoSpace, "allocate cluster", s.file.Path(), int64(s.geo.ClusterOffset(at)), "the largest offset of the format is reached")
	}
	idx := s.geo.RefcountTableIndex(at)
	off, err := m.refs.block(ctx, idx)
	if err != nil {
		return err
	}
	if off == 0 {
		return s.newBlockLocked(ctx, idx) // moves m.end
	}
	per := int64(s.geo.RefcountsPerBlock())
	want := min(max(s.claimSize(), n-m.tail.n), (idx+1)*per-at)
	free, err := m.refs.zeros(ctx, at, want)
	if err != nil {
		return err
	}
	if free == 0 { // counted by somebody before this session: not ours
		m.end++
		return nil
	}
	got, err := s.growLocked(ctx, at, free)
	if err != nil {
		return err
	}
	if err := m.refs.increment(ctx, at, got); err != nil {
		return err
	}
	if m.tail.n > 0 && m.tail.end() != at {
		m.claimed.add(m.tail.at, m.tail.n)
		m.tail.n = 0
	}
	if m.tail.n == 0 {
		m.tail.at = at
	}
	m.tail.n += got
	m.end = at + got
	m.batch = min(2*m.batch, maxClaim)
	return nil
}

// growLocked makes the file hold clusters [at, at+n), or as many of them as a device of fixed size has, at least one.
func (s *space) growLocked(ctx context.Context, at, n int64) (got int64, err error) {
	m := &s.mu
	if at+n <= m.fileEnd {
		return n, nil
	}
	if !s.growable {
		if at < m.fileEnd {
			return m.fileEnd - at, nil
		}
		return 0, block.Errorf(block.KindNoSpace, "allocate cluster", s.file.Path(), int64(s.geo.ClusterOffset(at)), "the device is full")
	}
	size := int64(s.geo.ClusterOffset(at + n))
	now, err := s.file.GrowTo(ctx, size)
	if err == nil {
		m.fileEnd = max(now, size) >> s.geo.ClusterBits
		m.grown = s.order.image.note()
		return n, nil
	}
	if block.KindOf(err) != block.KindUnsupported {
		return 0, err
	}
	if err := s.file.Resize(ctx, size, block.ResizeOptions{}); err != nil {
		return 0, err
	}
	m.fileEnd = at + n
	m.grown = s.order.image.note()
	return n, nil
}

// scanLocked searches up to n more refcount blocks (all, if n < 0) for holes below what the file was at open.
func (s *space) scanLocked(ctx context.Context, n int) error {
	m := &s.mu
	per := int64(s.geo.RefcountsPerBlock())
	for ; n != 0 && m.scan*per < m.opened && !m.free.full(); n-- {
		first := m.scan * per
		err := m.refs.freeRuns(ctx, first, min(per, m.opened-first), func(c, l int64) {
			if c == 0 { // the header's count is broken: never hand it out
				c, l = 1, l-1
			}
			m.free.add(c, l)
		})
		if err != nil {
			return err
		}
		m.scan++
	}
	return nil
}

// giveBack takes clusters that were handed out and that nothing points to.
func (s *space) giveBack(c clusters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.claimed.add(c.at, c.n)
}

// addRefs raises the counts of clusters that are in use already.
func (s *space) addRefs(ctx context.Context, c clusters) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.refs.increment(ctx, c.at, c.n)
}

// close gives back memory.
func (s *space) close() {
	s.mu.refs.cache.close()
	s.mu.refs.table.close()
}
