package qcow2

import (
	"sync"
	"sync/atomic"
)

// DefaultCacheSize is the memory that the metadata of a whole chain may take
// unless told otherwise.
const DefaultCacheSize = 32 << 20

// Budget is one limit on the memory that cached metadata takes, shared by all
// caches and tables of all images of a chain. It is safe for concurrent use.
//
// The limit may be exceeded by what is in use at the moment or waits to be
// written: a lookup never fails, and never writes, for want of memory. The
// writing half keeps the second part small (see cache.dirtyBytes).
type Budget struct {
	limit int64
	used  atomic.Int64
	mu    struct {
		sync.Mutex
		clients []evictor
		hand    int
	}
}

// evictor is what a budget takes memory back from.
type evictor interface {
	// evict gives up something clean that nobody uses and that was not used
	// lately, and returns its size; 0 if it found nothing quickly. Asked again,
	// it will find what it spared as lately used before.
	evict() int64
	// held is the memory it has now.
	held() int64
}

// NewBudget returns a budget of limit bytes (at least 256 KiB).
func NewBudget(limit int64) *Budget {
	return &Budget{limit: max(limit, 256<<10)}
}

// Limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used is what cached metadata takes now, in bytes.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) add(c evictor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.clients = append(b.mu.clients, c)
}

// remove forgets a client, which must have given back all it held.
func (b *Budget) remove(c evictor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.mu.clients {
		if x == c {
			b.mu.clients = append(b.mu.clients[:i], b.mu.clients[i+1:]...)
			return
		}
	}
}

// reserve counts n more bytes and makes room for them as well as it can. The
// caller must hold no lock of a client.
func (b *Budget) reserve(n int64) {
	if b.used.Add(n) <= b.limit {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Three rounds: the first spares clients that hold less than a small
	// share, and what was used lately; the second finds the latter; the third
	// spares nobody.
	for round := 0; round < 3; round++ {
		share := b.limit / int64(4*len(b.mu.clients)+1)
		if round == 2 {
			share = 0
		}
		for range b.mu.clients {
			if b.used.Load() <= b.limit {
				return
			}
			b.mu.hand = (b.mu.hand + 1) % len(b.mu.clients)
			c := b.mu.clients[b.mu.hand]
			for c.held() > share && b.used.Load() > b.limit {
				freed := c.evict()
				if freed == 0 {
					break
				}
				b.used.Add(-freed)
			}
		}
	}
}

// release counts n bytes less.
func (b *Budget) release(n int64) { b.used.Add(-n) }
