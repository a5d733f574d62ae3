package qcow2

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

const (
	pageWords = 512           // entries of a page of a table
	pageBytes = pageWords * 8 // 4 KiB in the file, and as much in memory
)

// table is a contiguous array of 8-byte entries in the image file: an L1 table
// or the refcount table. It is held by pages that are loaded when needed and
// given up under memory pressure, so that a table of the largest legal size
// costs little until it is used.
//
// Reading an entry takes no lock: entries are read atomically, and a page that
// was given up stays valid for who still looks at it (its entries are then
// what they were at that moment). Entries change through store only, which
// writes through to the file.
type table struct {
	name   string // what errors call it, e.g. "L1 table"
	file   *block.Device
	off    layout.HostOffset
	n      int64 // entries
	load   block.Event
	budget *Budget
	pages  []atomic.Pointer[tablePage]
	hand   atomic.Uint32
	bytes  atomic.Int64
	mu     sync.Mutex         // held while a page is loaded, given up or stored to
	staged map[int64]struct{} // entries that differ from the file on purpose; guarded by mu
}

type tablePage struct {
	used   atomic.Bool
	staged int // entries that must not be given up; guarded by the table's mu
	words  [pageWords]atomic.Uint64
}

// newTable returns the table of n entries (at most those of the longest legal
// L1 table) at off. The table must lie wholly
// within the file; that is checked here, so that nothing is taken for granted
// on a header's word.
func newTable(name string, file *block.Device, off layout.HostOffset, n int64, load block.Event, budget *Budget) (*table, error) {
	end, ok := layout.RangeEnd(off, n*8)
	if !ok || n > layout.MaxL1Entries || n > 0 && int64(end) > file.Size() {
		return nil, block.Errorf(block.KindCorrupt, "read "+name, file.Path(), int64(off),
			"%d entries do not fit into the file of %d bytes", n, file.Size())
	}
	t := &table{name: name, file: file, off: off, n: n, load: load, budget: budget,
		pages: make([]atomic.Pointer[tablePage], (n+pageWords-1)/pageWords)}
	budget.add(t)
	return t, nil
}

// peek returns entry i if its page is in memory. It never blocks.
func (t *table) peek(i int64) (v uint64, ok bool) {
	p := t.pages[i/pageWords].Load()
	if p == nil {
		return 0, false
	}
	return p.words[i%pageWords].Load(), true
}

// get returns entry i, 0 ≤ i < n.
func (t *table) get(ctx context.Context, i int64) (uint64, error) {
	p := t.pages[i/pageWords].Load()
	if p == nil {
		var err error
		if p, err = t.fetch(ctx, i/pageWords); err != nil {
			return 0, err
		}
	}
	if !p.used.Load() {
		p.used.Store(true)
	}
	return p.words[i%pageWords].Load(), nil
}

// fetch loads page k if it is not there.
func (t *table) fetch(ctx context.Context, k int64) (*tablePage, error) {
	t.budget.reserve(pageBytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pages[k].Load(); p != nil {
		t.budget.release(pageBytes)
		return p, nil
	}
	p, err := t.readPage(ctx, k)
	if err != nil {
		t.budget.release(pageBytes)
		return nil, err
	}
	p.used.Store(true)
	t.bytes.Add(pageBytes)
	t.pages[k].Store(p)
	return p, nil
}

func (t *table) readPage(ctx context.Context, k int64) (*tablePage, error) {
	if t.load != block.EventNone {
		if err := t.file.Event(ctx, t.load); err != nil {
			return nil, err
		}
	}
	buf := pagePool.Get().(*[pageBytes]byte)
	defer pagePool.Put(buf)
	n := min(pageWords, t.n-k*pageWords)
	if err := t.file.Read(ctx, buf[:n*8], int64(t.off)+k*pageBytes); err != nil {
		return nil, err
	}
	p := new(tablePage)
	for i := range n {
		p.words[i].Store(binary.BigEndian.Uint64(buf[i*8:]))
	}
	return p, nil
}

var pagePool = sync.Pool{New: func() any { return new([pageBytes]byte) }}

// store writes entries from i on to the file, and then to memory. It does not
// make them durable. After an error the file may hold the old or the new
// entries, and memory holds the old ones.
func (t *table) store(ctx context.Context, i int64, entries ...uint64) error {
	buf := make([]byte, 8*len(entries))
	for k, v := range entries {
		layout.PutWord(buf, k, v)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.file.Write(ctx, buf, int64(t.off)+8*i, 0); err != nil {
		return err
	}
	for k, v := range entries {
		at := i + int64(k)
		if p := t.pages[at/pageWords].Load(); p != nil {
			p.words[at%pageWords].Store(v)
		}
	}
	return nil
}

// evict implements evictor: it gives up one page that was not used lately.
func (t *table) evict() int64 {
	if t.bytes.Load() == 0 || !t.mu.TryLock() {
		return 0 // empty, or busy loading: others will have something
	}
	defer t.mu.Unlock()
	for range min(2*len(t.pages), 2*clockSteps) {
		at := int(t.hand.Add(1)) % len(t.pages)
		p := t.pages[at].Load()
		switch {
		case p == nil || p.staged > 0:
		case p.used.Load():
			p.used.Store(false)
		default:
			t.pages[at].Store(nil)
			t.bytes.Add(-pageBytes)
			return pageBytes
		}
	}
	return 0
}

func (t *table) held() int64 { return t.bytes.Load() }

// close gives back all memory and leaves the budget. Readers may still hold it.
func (t *table) close() {
	t.mu.Lock()
	for i := range t.pages {
		t.pages[i].Store(nil)
	}
	t.budget.release(t.bytes.Swap(0))
	t.mu.Unlock()
	t.budget.remove(t)
}
