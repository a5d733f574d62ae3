package file

import "sync"

// flusher lets any number of goroutines that want the same thing made durable share the work: a flush that starts
// while one is running joins the next one, and one call of sync serves all that wait for it.
type flusher struct {
	sync func() error

	mu struct {
		sync.Mutex
		cond    *sync.Cond
		running bool
		started uint64 // rounds begun
		done    uint64 // rounds ended
		joined  int    // goroutines that will be served by the next round
		crowd   int    // how many the last round served
		errAt   uint64 // last round that failed
		err     error  // and how
	}
}

func newFlusher(sync_ func() error) *flusher {
	f := &flusher{sync: sync_}
	f.mu.cond = sync.NewCond(&f.mu)
	return f
}

// flush returns when a round that began after the call has ended. Its error is that of the round, or of a later one
// that ended before this goroutine ran again.
func (f *flusher) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine := f.mu.started + 1
	f.mu.joined++
	for f.mu.done < mine {
		if f.mu.running {
			f.mu.cond.Wait()
			continue
		}
		f.roundLocked()
	}
	if f.mu.errAt >= mine {
		return f.mu.err
	}
	return nil
}

func (f *flusher) roundLocked() {
	f.mu.running = true
	f.mu.started++
	f.mu.crowd, f.mu.joined = f.mu.joined, 0
	f.mu.Unlock()
	err := f.sync()
	f.mu.Lock()
	f.mu.running = false
	f.mu.done = f.mu.started
	if err != nil {
		f.mu.errAt, f.mu.err = f.mu.done, err
	}
	f.mu.cond.Broadcast()
}

// crowded tells whether somebody who asks now would share: a round is running, or the last one served several.
func (f *flusher) crowded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.running || f.mu.joined > 0 || f.mu.crowd > 1
}
