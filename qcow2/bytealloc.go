package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// allocBytes places a stream of n bytes, 0 < n < cluster size: right behind the last one if it fits there or can go on
// into the next cluster of the file, else at the start of a new cluster (qcow2-format §2.7). Every cluster it touches
// counts one reference more.
func (s *space) allocBytes(ctx context.Context, n int64) (layout.HostOffset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mu
	cs := s.geo.ClusterSize()
	if m.hint != 0 {
		v, err := m.refs.get(ctx, s.geo.Cluster(m.hint))
		if err != nil {
			return 0, err
		}
		if v == s.geo.MaxRefcount() {
			m.hint = 0
		}
	}
	off := m.hint
	if off != 0 {
		c := s.geo.Cluster(off)
		if room := cs - int64(off)&(cs-1); n > room {
			a, err := s.allocAtLocked(ctx, 1, c+1)
			if err != nil {
				return 0, err
			}
			if a.n == 0 {
				off = 0
			}
		}
		if off != 0 {
			if err := m.refs.increment(ctx, c, 1); err != nil {
				return 0, err
			}
		}
	}
	if off == 0 {
		a, err := s.allocLocked(ctx, 1, false)
		if err != nil {
			return 0, err
		}
		off = s.geo.ClusterOffset(a.at)
	}
	end := off + layout.HostOffset(n)
	if end > s.geo.MaxCompressedOffset() {
		s.giveBackBytesLocked(ctx, off, n)
		return 0, block.Errorf(block.KindNoSpace, "allocate compressed cluster", s.file.Path(), int64(off), "beyond the largest offset of a compressed cluster")
	}
	m.hint = end
	if int64(end)&(cs-1) == 0 {
		m.hint = 0
	}
	return off, nil
}

// giveBackBytes takes the place of a stream that nothing points to.
func (s *space) giveBackBytes(ctx context.Context, off layout.HostOffset, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackBytesLocked(ctx, off, n)
}

func (s *space) giveBackBytesLocked(ctx context.Context, off layout.HostOffset, n int64) {
	first := s.geo.Cluster(off)
	last := s.geo.Cluster(off + layout.HostOffset(n) - 1)
	// An error leaks a reference, nothing worse.
	_ = s.mu.refs.decrement(ctx, first, last-first+1, func(c, n int64) {
		s.forgetLocked(freed{clusters{c, n}, discardNever})
		s.mu.free.add(c, n)
	})
}
