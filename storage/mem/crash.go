package mem

import (
	"fmt"
	"strings"
)

// SectorSize is the unit that a device writes whole or not at all.
const SectorSize = 512

// Fate is what becomes of one volatile event at a power cut. The zero Fate is Drop.
type Fate struct {
	how uint8
	arg uint64
}

const (
	fateDrop uint8 = iota
	fateKeep
	fateSize
	fatePrefix
	fateSuffix
	fateScatter
)

var (
	// Drop: as if it never happened.
	Drop = Fate{}
	// Keep: it survives whole.
	Keep = Fate{how: fateKeep}
	// SizeOnly: of a write or zero that extends the file the new length survives, the contents do not. Drop elsewhere.
	SizeOnly = Fate{how: fateSize}
)

// Prefix: the first n sectors that a write, zero or punch touches survive. A resize, which cannot tear, survives if n > 0.
func Prefix(n int) Fate { return Fate{fatePrefix, uint64(n)} }

// Suffix: all but the first n sectors survive. A resize survives if n = 0.
func Suffix(n int) Fate { return Fate{fateSuffix, uint64(n)} }

// Scatter: about half of the sectors survive, chosen by the seed.
func Scatter(seed uint64) Fate { return Fate{fateScatter, seed} }

func (f Fate) String() string {
	switch f.how {
	case fateKeep:
		return "Keep"
	case fateSize:
		return "SizeOnly"
	case fatePrefix:
		return fmt.Sprintf("Prefix(%d)", f.arg)
	case fateSuffix:
		return fmt.Sprintf("Suffix(%d)", f.arg)
	case fateScatter:
		return fmt.Sprintf("Scatter(%#x)", f.arg)
	}
	return "Drop"
}

// sector tells whether the i-th sector of an event survives.
func (f Fate) sector(i uint64) bool {
	switch f.how {
	case fateKeep:
		return true
	case fatePrefix:
		return i < f.arg
	case fateSuffix:
		return i >= f.arg
	case fateScatter:
		return mix(f.arg+i*0x9e3779b97f4a7c15)&1 != 0
	}
	return false
}

// mix spreads the bits of x (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Chooser gives the fate of the volatile event e, at position i of the clock. It is called in the order of the events.
type Chooser func(i int, e *Event) Fate

// KeepAll and DropAll are the two simplest choices.
func KeepAll(int, *Event) Fate { return Keep }
func DropAll(int, *Event) Fate { return Drop }

// Chosen is the fate that one event met.
type Chosen struct {
	Event int
	Fate  Fate
}

// Crash is the state after one power cut. It shares nothing that changes with the clock or with other crashes.
type Crash struct {
	Cut    int      // the power failed behind this many events
	Chosen []Chosen // the volatile events and their fates, in order

	clock *Clock
	files []*File
}

// CrashAt gives the files as after a power cut behind the first k events. A nil choose drops all that is volatile.
func (c *Clock) CrashAt(k int, choose Chooser) *Crash {
	c.mu.RLock()
	volatile := c.volatileLocked(k, nil)
	events := c.mu.events
	c.mu.RUnlock()
	chosen := make([]Chosen, len(volatile))
	for n, i := range volatile {
		chosen[n].Event = i
		if choose != nil {
			chosen[n].Fate = choose(i, &events[i])
		}
	}
	return c.crash(k, chosen)
}

// Replay gives the crash again whose cut and fates a failed test printed.
func (c *Clock) Replay(k int, chosen ...Chosen) *Crash {
	return c.CrashAt(k, func(i int, _ *Event) Fate {
		for _, ch := range chosen {
			if ch.Event == i {
				return ch.Fate
			}
		}
		return Drop
	})
}

// crash builds the state of a cut at k. The fates of chosen are in the order of the events.
func (c *Clock) crash(k int, chosen []Chosen) *Crash {
	cr := &Crash{Cut: k, Chosen: chosen, clock: c}
	c.mu.Lock() // cloning marks the source as shared
	defer c.mu.Unlock()
	from := make([]int, len(c.mu.files))
	cr.files = make([]*File, len(c.mu.files))
	for i, f := range c.mu.files {
		last := &c.mu.base[i]
		for j := k - 1; j >= 0; j-- {
			if e := &c.mu.events[j]; e.Kind == Flush && e.File == f {
				last, from[i] = &e.durable, j+1
				break
			}
		}
		cr.files[i] = newFile(f.name, last.clone())
	}
	first := k
	for _, p := range from {
		first = min(first, p)
	}
	for i := first; i < k; i++ {
		e := &c.mu.events[i]
		if e.Kind == Flush || i < from[e.File.id] {
			continue
		}
		fate := Keep // FUA
		if !e.FUA {
			for chosen[0].Event < i {
				chosen = chosen[1:]
			}
			fate = chosen[0].Fate
		}
		cr.files[e.File.id].mu.apply(e, fate)
	}
	return cr
}

// apply does to s what survives of e.
func (s *state) apply(e *Event, fate Fate) {
	switch {
	case fate.how == fateDrop || e.Kind == Flush:
	case e.Kind == Resize:
		if fate.sector(0) {
			s.resize(e.Len)
		}
	case fate.how == fateSize:
		if e.Kind != Punch {
			s.reach(e.Off + e.Len)
		}
	case fate.how == fateKeep:
		s.piece(e, e.Off, e.Off+e.Len)
	default:
		first := e.Off / SectorSize
		for sec := first; sec*SectorSize < e.Off+e.Len; sec++ {
			if fate.sector(uint64(sec - first)) {
				s.piece(e, max(e.Off, sec*SectorSize), min(e.Off+e.Len, sec*SectorSize+SectorSize))
			}
		}
	}
}

// piece does the part [off, end) of a write, zero or punch.
func (s *state) piece(e *Event, off, end int64) {
	switch e.Kind {
	case Write:
		s.writeShared(e.data[off-e.Off:end-e.Off], off)
	case Zero:
		s.zero(off, end)
	case Punch:
		s.punch(off, end)
	}
}

// File gives what became of f, a file of the clock: a file of its own, which records nothing.
func (cr *Crash) File(f *File) *File {
	return cr.files[f.id]
}

// Record makes a new clock of the files after the crash, to cut the power again during the recovery. Call it before the
// files are opened.
func (cr *Crash) Record() *Clock {
	c := NewClock()
	for _, f := range cr.files {
		c.Adopt(f)
	}
	return c
}

// String names the cut, what was volatile and what became of it.
func (cr *Crash) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "power cut behind event %d", cr.Cut)
	for _, ch := range cr.Chosen {
		fmt.Fprintf(&b, "\n\t%d %v: %v", ch.Event, cr.clock.Event(ch.Event), ch.Fate)
	}
	b.WriteString("\n\tagain: " + cr.Code())
	return b.String()
}

// Code is the Go expression that gives this crash again on a clock with the same history.
func (cr *Crash) Code() string {
	var b strings.Builder
	fmt.Fprintf(&b, "clk.Replay(%d", cr.Cut)
	for _, ch := range cr.Chosen {
		if ch.Fate != Drop {
			fmt.Fprintf(&b, ", mem.Chosen{%d, mem.%v}", ch.Event, ch.Fate)
		}
	}
	return b.String() + ")"
}
