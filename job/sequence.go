package job

import (
	"context"
	"sync"
)

// sequence puts the ends of units, which come in any order, back into the order in which the units were cut.
type sequence struct {
	mu struct {
		sync.Mutex
		next int64               // the first unit that has not ended
		done map[int64]func()    // ended units behind it and what to do at their turn
		wait map[int64]chan bool // closed at the turn of a unit
	}
}

func newSequence() *sequence {
	s := new(sequence)
	s.mu.done = map[int64]func(){}
	s.mu.wait = map[int64]chan bool{}
	return s
}

// turn waits until all units before number n have ended.
func (s *sequence) turn(ctx context.Context, n int64) error {
	s.mu.Lock()
	if s.mu.next == n {
		s.mu.Unlock()
		return nil
	}
	c := make(chan bool)
	s.mu.wait[n] = c
	s.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end says that unit n has ended. then, if not nil, runs when all units before it have ended too; such calls never
// overlap.
func (s *sequence) end(n int64, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.done[n] = then
	for {
		then, ok := s.mu.done[s.mu.next]
		if !ok {
			break
		}
		delete(s.mu.done, s.mu.next)
		if then != nil {
			then()
		}
		s.mu.next++
	}
	if c, ok := s.mu.wait[s.mu.next]; ok {
		delete(s.mu.wait, s.mu.next)
		close(c)
	}
}
