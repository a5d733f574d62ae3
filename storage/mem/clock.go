package mem

import (
	"fmt"
	"sync"
)

// Kind of an event.
type Kind uint8

const (
	Write Kind = iota
	Zero
	Punch
	Resize
	Flush
)

var kindNames = [...]string{"write", "zero", "punch", "resize", "flush"}

func (k Kind) String() string { return kindNames[k] }

// Event is one step that a file recorded. It is immutable.
type Event struct {
	File *File
	Kind Kind
	Off  int64 // Write, Zero, Punch
	Len  int64 // bytes; of a Resize: the new length of the file
	FUA  bool  // durable by itself

	data    []byte // Write
	durable state  // Flush: the contents at that time
}

// Data of a write; not to be changed.
func (e *Event) Data() []byte { return e.data }

func (e *Event) String() string {
	switch e.Kind {
	case Flush:
		return e.File.name + " flush"
	case Resize:
		return fmt.Sprintf("%s resize to %#x", e.File.name, e.Len)
	}
	s := fmt.Sprintf("%s %s [%#x,%#x)", e.File.name, e.Kind, e.Off, e.Off+e.Len)
	if e.FUA {
		s += " fua"
	}
	return s
}

// Clock gives the events of its files one order. Safe for any number of goroutines.
type Clock struct {
	mu struct {
		sync.RWMutex
		files  []*File
		base   []state // of each file: what was durable when the history began
		events []Event
	}
}

// NewClock makes a clock without files.
func NewClock() *Clock { return new(Clock) }

// NewFile makes a file of size zero bytes whose events the clock records. It exists, empty, before the history begins.
func (c *Clock) NewFile(name string, size int64) *File {
	f := NewFile(name, size)
	return c.Adopt(f)
}

// Adopt makes f, which must record nothing yet and not be open, a file of the clock. Its contents count as durable.
func (c *Clock) Adopt(f *File) *File {
	if f.clock != nil {
		panic("mem: a file cannot record on two clocks")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.clock, f.lock, f.id = c, &c.mu.RWMutex, len(c.mu.files)
	c.mu.files = append(c.mu.files, f)
	c.mu.base = append(c.mu.base, f.mu.clone())
	return f
}

// recordLocked appends an event.
func (c *Clock) recordLocked(e Event) { c.mu.events = append(c.mu.events, e) }

// Now is the number of events so far: the position of a cut behind all of them.
func (c *Clock) Now() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.events)
}

// Event gives the event at position i, 0 ≤ i < Now().
func (c *Clock) Event(i int) *Event {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return &c.mu.events[i]
}

// Files of the clock in the order in which they were made.
func (c *Clock) Files() []*File {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.files[:len(c.mu.files):len(c.mu.files)]
}

// Reset forgets the history: the present contents of all files are durable from now on, and Now is 0.
func (c *Clock) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.events = nil
	for i, f := range c.mu.files {
		c.mu.base[i] = f.mu.clone()
	}
}

// Volatile lists the events whose fate is open at a cut at k, in order.
func (c *Clock) Volatile(k int) []int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.volatileLocked(k, nil)
}

func (c *Clock) volatileLocked(k int, list []int) []int {
	flushed := make([]int, len(c.mu.files)) // position behind the last flush of each file
	open := len(flushed)
	for i := k - 1; i >= 0 && open > 0; i-- {
		if e := &c.mu.events[i]; e.Kind == Flush && flushed[e.File.id] == 0 {
			flushed[e.File.id] = i + 1
			open--
		}
	}
	first := k
	for _, p := range flushed {
		first = min(first, p)
	}
	for i := first; i < k; i++ {
		if e := &c.mu.events[i]; e.Kind != Flush && !e.FUA && i >= flushed[e.File.id] {
			list = append(list, i)
		}
	}
	return list
}
