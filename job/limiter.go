package job

import (
	"context"
	"sync"
	"time"
)

// limiter spreads work over time: on average rate bytes a second, with bursts of what a tenth of a second allows.
type limiter struct {
	rate int64
	mu   struct {
		sync.Mutex
		free time.Time // when everything taken so far has been paid for
	}
}

// newLimiter returns nil, which never waits, for a rate of 0.
func newLimiter(rate int64) *limiter {
	if rate <= 0 {
		return nil
	}
	return &limiter{rate: rate}
}

// take waits until n more bytes may move.
func (l *limiter) take(ctx context.Context, n int64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-100 * time.Millisecond); l.mu.free.Before(earliest) {
		l.mu.free = earliest
	}
	wait := l.mu.free.Sub(now)
	l.mu.free = l.mu.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	l.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
