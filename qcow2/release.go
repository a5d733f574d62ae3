package qcow2

import (
	"cmp"
	"context"
	"slices"
)

// keepClaimed is how many freed clusters stay counted, so that using them again costs no write to a refcount block.
const keepClaimed = 256

// release lowers the counts of clusters that left the quarantine; what nobody refers to any more is given to the
// allocator, after its place was punched if punch says so for its class. An error leaves counts that are too high.
func (s *space) release(ctx context.Context, list []freed, punch func(discardClass) bool) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b freed) int { return cmp.Compare(a.at, b.at) })
	r := releaser{s: s, ctx: ctx}
	s.mu.Lock()
	for _, f := range list {
		r.oneLocked(f)
	}
	s.mu.Unlock()
	// Nobody knows these clusters now: no lock is needed while they are punched.
	for _, l := range [][]freed{r.keep, r.free} {
		for _, f := range l {
			if punch(f.class) {
				// Advisory: what cannot be given back is used again as it is.
				_ = s.file.Discard(ctx, int64(s.geo.ClusterOffset(f.at)), f.n<<s.geo.ClusterBits)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range r.keep {
		s.mu.claimed.add(f.at, f.n)
	}
	for _, f := range r.free {
		s.mu.free.add(f.at, f.n)
	}
	return r.err
}

// releaser collects what a release frees.
type releaser struct {
	s    *space
	ctx  context.Context
	free []freed // count is 0
	keep []freed // count is 1 and stays so: claimed
	kept int64
	err  error // the first
}

func (r *releaser) oneLocked(f freed) {
	m := &r.s.mu
	if m.claimed.total+r.kept+f.n <= keepClaimed {
		if n, err := m.refs.ones(r.ctx, f.at, f.n); err == nil && n == f.n {
			r.s.forgetLocked(f)
			r.keep = append(r.keep, f)
			r.kept += f.n
			return
		}
	}
	err := m.refs.decrement(r.ctx, f.at, f.n, func(c, n int64) {
		z := freed{clusters{c, n}, f.class}
		r.s.forgetLocked(z)
		r.free = append(r.free, z)
	})
	if err != nil && r.err == nil {
		r.err = err
	}
}

// forgetLocked drops what is remembered of clusters that nothing refers to any more.
func (s *space) forgetLocked(f freed) {
	if h := s.mu.hint; h != 0 {
		if at := s.geo.Cluster(h); at >= f.at && at < f.end() {
			s.mu.hint = 0
		}
	}
	s.host.dropCached(f.clusters, f.class != discardNever && f.class != discardRequest)
}

// unclaim gives back all claims: the counts of clusters that nobody has become 0.
func (s *space) unclaim(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	m.hint = 0
	if m.tail.n > 0 {
		m.claimed.add(m.tail.at, m.tail.n)
		m.tail.n = 0
	}
	for m.claimed.total > 0 {
		c, n, ok := m.claimed.longest(freePageLen)
		if !ok {
			break
		}
		if err := m.refs.decrement(ctx, c, n, func(int64, int64) {}); err != nil {
			return err
		}
		m.claimed.remove(c, n)
		m.free.add(c, n)
	}
	return nil
}

// writeRefs writes the changed pieces of refcount blocks, if there is a reason to: increments since the last time, or
// many decrements, or all is set. It reports whether anything was written; nothing is durable yet.
func (s *space) writeRefs(ctx context.Context, all bool) (wrote bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	if m.refs.cache.dirtyBytes() == 0 || !m.refs.hard && m.refs.soft < softLimit && !all {
		return false, nil
	}
	// Counts of clusters beyond the end of the file would be seen by nobody: growth first (qcow2-format §9.4a).
	if err := s.order.image.barrier(ctx, m.grown); err != nil {
		return false, err
	}
	if err := m.refs.cache.flush(ctx); err != nil {
		return true, err
	}
	m.refs.hard, m.refs.soft = false, 0
	s.order.image.note()
	return true, nil
}

// usedEnd is the end of the last cluster whose count is not 0, in clusters; floor if there is none behind it.
func (s *space) usedEnd(ctx context.Context, floor int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.refs.usedEnd(ctx, floor, max(s.mu.fileEnd, s.geo.Clusters(s.file.Size())))
}

// relieve writes refcount pieces if more than limit bytes of them wait.
func (s *space) relieve(ctx context.Context, limit int64) error {
	if s.dirtyBytes() <= limit {
		return nil
	}
	_, err := s.writeRefs(ctx, true)
	return err
}

// dirtyBytes is how much of the refcount blocks waits to be written.
func (s *space) dirtyBytes() int64 { return s.mu.refs.cache.dirtyBytes() }

// rewrite makes the next commit write what this one may not have brought to the file for good.
func (s *space) rewrite() {
	s.mu.Lock()
	s.mu.refs.hard = true
	s.mu.Unlock()
}
