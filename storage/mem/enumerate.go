package mem

import "math/rand/v2"

// Enumeration says which crash states Clock.Each visits at a cut.
type Enumeration struct {
	// Subsets bounds the number of whole-event subsets. If all fit they are all visited; else: everything, nothing, each
	// single event kept, each dropped, each prefix in time, and random subsets up to the bound.
	Subsets int
	// Torn is the number of further states with torn events: prefixes, suffixes and scattered sectors, SizeOnly.
	Torn int
	// All visits also the states that an earlier cut has visited (where the newest event is dropped). Set it where what
	// must hold has become stronger without an event since the earlier cut.
	All bool
	// Seed of the random choices; the same seed gives the same states.
	Seed uint64
}

// Each visits crash states at a cut at k until visit returns false, and returns how many it visited. The newest event
// is kept in each, unless it is a flush or All is set: the states without it are those of the cut before.
func (c *Clock) Each(k int, o Enumeration, visit func(*Crash) bool) int {
	c.mu.RLock()
	volatile := c.volatileLocked(k, nil)
	events := c.mu.events
	c.mu.RUnlock()
	v := &visitor{c: c, k: k, visit: visit, volatile: volatile, events: events,
		rnd: rand.New(rand.NewPCG(o.Seed, uint64(k)))}
	if n := len(volatile); n > 0 && volatile[n-1] == k-1 && !o.All {
		v.fixed = true
	}
	v.subsets(max(o.Subsets, 1))
	v.torn(o.Torn)
	return v.count
}

type visitor struct {
	c        *Clock
	k        int
	visit    func(*Crash) bool
	volatile []int
	events   []Event
	fixed    bool // the last volatile event is kept
	rnd      *rand.Rand
	count    int
	done     bool
}

// free is the number of events whose fate varies.
func (v *visitor) free() int {
	if v.fixed {
		return len(v.volatile) - 1
	}
	return len(v.volatile)
}

// state visits one state: fate of the n-th volatile event.
func (v *visitor) state(fate func(n int) Fate) {
	if v.done {
		return
	}
	chosen := make([]Chosen, len(v.volatile))
	for n, i := range v.volatile {
		chosen[n] = Chosen{i, Keep}
		if n < v.free() {
			chosen[n].Fate = fate(n)
		}
	}
	v.emit(chosen)
}

func (v *visitor) emit(chosen []Chosen) {
	v.count++
	v.done = !v.visit(v.c.crash(v.k, chosen))
}

func keepIf(b bool) Fate {
	if b {
		return Keep
	}
	return Drop
}

func (v *visitor) subsets(limit int) {
	free := v.free()
	if free < 30 && 1<<free <= limit {
		for m := uint(0); m < 1<<free; m++ {
			v.state(func(n int) Fate { return keepIf(m>>n&1 != 0) })
		}
		return
	}
	limit += v.count
	v.state(func(int) Fate { return Keep })
	v.state(func(int) Fate { return Drop })
	// From the newest event backwards, so that a small bound still sees the neighbourhood of the cut.
	for one := free - 1; one >= 0 && v.count < limit; one-- {
		v.state(func(n int) Fate { return keepIf(n != one) })
		if v.count < limit {
			v.state(func(n int) Fate { return keepIf(n == one) })
		}
		if v.count < limit && one > 1 {
			v.state(func(n int) Fate { return keepIf(n < one) })
		}
	}
	for v.count < limit && !v.done {
		v.state(func(int) Fate { return keepIf(v.rnd.Uint32()&1 != 0) })
	}
}

// torn visits n states with at least one torn event, the newest if it can tear, in the midst of random subsets.
func (v *visitor) torn(n int) {
	var tearable []int
	for i, e := range v.volatile {
		if v.events[e].pieces() > 1 || v.events[e].Kind == Write || v.events[e].Kind == Zero {
			tearable = append(tearable, i)
		}
	}
	for ; n > 0 && len(tearable) > 0 && !v.done; n-- {
		at := tearable[v.rnd.IntN(len(tearable))]
		if v.fixed && tearable[len(tearable)-1] == len(v.volatile)-1 {
			at = len(v.volatile) - 1
		}
		chosen := make([]Chosen, len(v.volatile))
		quiet := v.rnd.Uint32N(4) // now and then all others are kept, or none
		for i, e := range v.volatile {
			chosen[i].Event = e
			switch r := v.rnd.Uint32(); {
			case i == at || quiet > 1 && r&7 == 0:
				chosen[i].Fate = v.tear(&v.events[e])
			case v.fixed && i == len(chosen)-1:
				chosen[i].Fate = Keep
			case quiet == 0 || quiet > 1 && r&8 != 0:
				chosen[i].Fate = Keep
			}
		}
		v.emit(chosen)
	}
}

// pieces is the number of sectors that e touches.
func (e *Event) pieces() int {
	if e.Kind == Resize || e.Kind == Flush || e.Len == 0 {
		return 1
	}
	return int((e.Off+e.Len-1)/SectorSize - e.Off/SectorSize + 1)
}

func (v *visitor) tear(e *Event) Fate {
	n := e.pieces()
	if n == 1 {
		return SizeOnly
	}
	at := 1 + v.rnd.IntN(n-1)
	switch v.rnd.IntN(7) {
	case 0, 1:
		return Prefix(at)
	case 2, 3:
		return Suffix(at)
	case 4:
		return SizeOnly
	}
	return Scatter(v.rnd.Uint64())
}
