//go:build linux

package ioqueue

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeKernel completes requests in any order, on another goroutine, with the result that the test's answer gives.
type fakeKernel struct {
	depth  int
	answer func(r *Request) int64
	refuse func() error // asked before each Submit

	mu struct {
		sync.Mutex
		cond   *sync.Cond
		staged []fakeReq
		flying []fakeReq
		ready  []Completion
		closed bool
		most   int // requests seen in flight at once
	}
	waiters atomic.Int32
	t       *testing.T
}

type fakeReq struct {
	r    *Request
	slot uint32
}

func newFake(t *testing.T, depth int, answer func(*Request) int64) *fakeKernel {
	k := &fakeKernel{depth: depth, answer: answer, t: t}
	k.mu.cond = sync.NewCond(&k.mu)
	go k.device()
	return k
}

func (k *fakeKernel) device() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		for len(k.mu.flying) == 0 && !k.mu.closed {
			k.mu.cond.Wait()
		}
		if k.mu.closed {
			return
		}
		i := rand.IntN(len(k.mu.flying))
		f := k.mu.flying[i]
		k.mu.flying[i] = k.mu.flying[len(k.mu.flying)-1]
		k.mu.flying = k.mu.flying[:len(k.mu.flying)-1]
		k.mu.Unlock()
		if rand.IntN(4) == 0 {
			runtime.Gosched()
		}
		res := k.answer(f.r)
		k.mu.Lock()
		k.mu.ready = append(k.mu.ready, Completion{uint64(f.slot), res})
		k.mu.cond.Broadcast()
	}
}

func (k *fakeKernel) Depth() int { return k.depth }

func (k *fakeKernel) Stage(r *Request, slot uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.staged = append(k.mu.staged, fakeReq{r, slot})
	n := len(k.mu.staged) + len(k.mu.flying)
	k.mu.most = max(k.mu.most, n)
	if n > k.depth {
		k.t.Errorf("%d requests staged and in flight, the depth is %d", n, k.depth)
	}
}

func (k *fakeKernel) Submit() error {
	if k.refuse != nil {
		if err := k.refuse(); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.flying = append(k.mu.flying, k.mu.staged...)
	k.mu.staged = nil
	k.mu.cond.Broadcast()
	return nil
}

func (k *fakeKernel) Enter() error {
	if err := k.Submit(); err != nil {
		return err
	}
	return k.Wait()
}

func (k *fakeKernel) Wait() error {
	if k.waiters.Add(1) > 1 {
		k.t.Error("two goroutines wait in the kernel at once")
	}
	defer k.waiters.Add(-1)
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.mu.ready) == 0 {
		k.mu.cond.Wait()
	}
	return nil
}

func (k *fakeKernel) Ready() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.mu.ready)
}

func (k *fakeKernel) Reap(out []Completion) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := copy(out, k.mu.ready)
	k.mu.ready = k.mu.ready[n:]
	return n
}

func (k *fakeKernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.staged)+len(k.mu.flying) > 0 {
		k.t.Error("the kernel interface is closed while requests are in flight")
	}
	k.mu.closed = true
	k.mu.cond.Broadcast()
	return nil
}

// within fails the test if f has not returned in a time that only a lost wake-up can take.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		buf := make([]byte, 1<<20)
		t.Fatalf("stuck; goroutines:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

func TestEveryRequestGetsItsOwnResultWhateverTheOrderAndDepth(t *testing.T) {
	for _, c := range []struct{ depth, workers, rounds int }{{1, 1, 200}, {1, 8, 300}, {4, 3, 500}, {8, 64, 200}, {128, 64, 300}} {
		k := newFake(t, c.depth, func(r *Request) int64 { return r.Off })
		q := New(k)
		within(t, func() {
			var wg sync.WaitGroup
			for w := range c.workers {
				wg.Go(func() {
					r := &Request{}
					for i := range c.rounds {
						r.Off = int64(w*c.rounds + i)
						if n, err := q.Do(r); err != nil || int64(n) != r.Off {
							t.Errorf("request %d got %d, %v", r.Off, n, err)
							return
						}
						if i%17 == 0 {
							time.Sleep(time.Microsecond)
						}
					}
				})
			}
			wg.Wait()
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The kernel often runs empty here, so that the lead is given up and taken again while goroutines are being woken.
func TestResultsAreNotMixedUpWhenTheQueueRunsEmpty(t *testing.T) {
	k := newFake(t, 8, func(r *Request) int64 { return r.Off })
	q := New(k)
	within(t, func() {
		var wg sync.WaitGroup
		for w := range int64(6) {
			wg.Go(func() {
				r := &Request{}
				for i := range int64(4000) {
					r.Off = w<<32 | i
					if n, err := q.Do(r); err != nil || int64(n) != r.Off {
						t.Errorf("request %#x got %#x, %v", r.Off, n, err)
						return
					}
					for spin := (i*7 + w) % 40; spin > 0; spin-- {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Wait()
		q.Close()
	})
}

func TestRequestsOfSeveralGoroutinesAreInFlightTogether(t *testing.T) {
	var held sync.WaitGroup
	held.Add(1)
	k := newFake(t, 16, func(r *Request) int64 { held.Wait(); return 1 })
	q := New(k)
	within(t, func() {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { q.Do(&Request{}) })
		}
		for {
			k.mu.Lock()
			n := len(k.mu.flying) + 1 // one is with the device
			k.mu.Unlock()
			if n == 8 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		held.Done()
		wg.Wait()
		q.Close()
	})
}

func TestErrorsOfTheKernelBecomeErrnos(t *testing.T) {
	k := newFake(t, 4, func(r *Request) int64 { return -int64(unix.EIO) })
	q := New(k)
	within(t, func() {
		if n, err := q.Do(&Request{}); n != 0 || err != unix.EIO {
			t.Errorf("got %d, %v", n, err)
		}
		q.Close()
	})
}

func TestARefusedSubmissionIsTriedAgain(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EINTR, unix.EAGAIN, unix.EBUSY} {
		var calls atomic.Int32
		k := newFake(t, 8, func(r *Request) int64 { return 7 })
		k.refuse = func() error {
			if calls.Add(1)%3 != 0 {
				return errno
			}
			return nil
		}
		q := New(k)
		within(t, func() {
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					for range 20 {
						if n, err := q.Do(&Request{}); n != 7 || err != nil {
							t.Errorf("got %d, %v", n, err)
						}
					}
				})
			}
			wg.Wait()
			q.Close()
		})
	}
}

func TestCloseWaitsForRequestsUnderWayAndRefusesLaterOnes(t *testing.T) {
	release := make(chan struct{})
	k := newFake(t, 4, func(r *Request) int64 { <-release; return 1 })
	q := New(k)
	within(t, func() {
		var wg sync.WaitGroup
		for range 6 { // two more than fit
			wg.Go(func() {
				if n, err := q.Do(&Request{}); !(n == 1 && err == nil || errors.Is(err, ErrClosed)) {
					t.Errorf("got %d, %v", n, err)
				}
			})
		}
		for k.Ready() == 0 && func() bool { k.mu.Lock(); defer k.mu.Unlock(); return len(k.mu.flying) < 3 }() {
			time.Sleep(time.Millisecond)
		}
		closed := make(chan error, 1)
		go func() { closed <- q.Close() }()
		select {
		case <-closed:
			t.Error("Close returned while requests were under way")
		case <-time.After(20 * time.Millisecond):
		}
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		wg.Wait()
		if _, err := q.Do(&Request{}); !errors.Is(err, ErrClosed) {
			t.Errorf("a request after Close: %v", err)
		}
	})
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	q, err := NewURing(mustOpen(t), 8)
	if err != nil {
		t.Skip(err)
	}
	defer q.Close()
	buf := make([]byte, 4096)
	iov := []unix.Iovec{{Base: &buf[0]}}
	iov[0].SetLen(len(buf))
	r := &Request{Op: OpRead, Iov: iov}
	if n := testing.AllocsPerRun(200, func() { q.Do(r) }); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func mustOpen(t *testing.T) int {
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
