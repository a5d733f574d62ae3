package qcow2

import (
	"context"

	"byre/qcow2/layout"
)

// flight is an in-flight allocation record: a part of a write whose L2 entries will change once its data is in place.
// It exists from gather to link (or abort) and is the only coordination between requests that change mappings
// (qcow2-format §9.7, mechanisms §1 M1). It lies within one L2 slice.
//
// All offsets are guest bytes, except host. The fields up to old belong to the request; over, done and the list of
// flights are guarded by writer.mu.
type flight struct {
	guest int64 // start of the first cluster
	n     int64 // clusters
	w0    int64 // [w0, w1) is written by the request
	w1    int64
	h0    int64 // [h0, h1) ⊇ [w0, w1) gets contents: the copy-on-write hull
	h1    int64
	host  layout.HostOffset // of the first cluster; known after place
	reuse bool              // the clusters are owned already; otherwise new ones replace what is there
	fresh bool              // the clusters read as zeros where this request does not write
	zeros bool              // what the hull holds besides the data is known to read as zeros
	cow   bool              // more than guest data was written: a barrier is due before L2
	// compressed: the clusters are stored as streams, so a part of one cannot be left out of the link.
	compressed bool

	slot  *slot // pinned slice with the entries
	index int   // of the first entry in the slice
	l1    int64 // index of the L1 entry, for error messages and checks

	// over has, for each cluster, the subclusters that a discard or a zero write has decided since: they are not
	// linked. nil if there are none.
	over []uint32
	// done is closed when the flight has ended; made by the first who waits.
	done chan struct{}
}

// end is the guest end of the last cluster.
func (f *flight) end(clusterSize int64) int64 { return f.guest + f.n*clusterSize }

// Dependency says which writes to the same cluster wait for one another.
type Dependency uint8

const (
	// DependencyRelaxed: writes to different subclusters of a cluster that is owned already are independent.
	DependencyRelaxed Dependency = iota
	// DependencyStrict: every write waits for every in-flight allocation that touches one of its clusters.
	DependencyStrict
	// DependencyJoined is meant to let writers into a new cluster whose rest is known to be zero join its allocation. At
	// present it is the same as DependencyRelaxed.
	DependencyJoined
)

var dependencyNames = [...]string{"relaxed", "strict", "joined"}

func (d Dependency) String() string { return dependencyNames[d] }

// ParseDependency finds a rule by its name.
func ParseDependency(s string) (Dependency, bool) {
	for i, n := range dependencyNames {
		if n == s {
			return Dependency(i), true
		}
	}
	return 0, false
}

// ticket is the place of a request in the queue of those that had to wait. It stays there until the part of the
// request that waited is complete, so that overlapping writes happen in the order of their arrival.
type ticket struct {
	from, to int64
	queued   bool
	done     chan struct{}
}

// conflictLocked finds out how much of [from, to) can go ahead: to a smaller end, or nowhere, and then wait is what to
// wait for. t is the request's own place in the queue.
func (w *writer) conflictLocked(from, to int64, t *ticket) (end int64, wait <-chan struct{}) {
	cs := w.im.geo.ClusterSize()
	for _, f := range w.mu.flights {
		a, b := f.guest, f.end(cs)
		if from >= b || to <= a {
			continue
		}
		if f.reuse && w.opts.Dependency != DependencyStrict {
			if a, b = f.h0, f.h1; from >= b || to <= a {
				continue
			}
		}
		if from < a {
			to = a
			continue
		}
		if f.done == nil {
			f.done = make(chan struct{})
		}
		return from, f.done
	}
	for _, q := range w.mu.queue {
		if q == t {
			break
		}
		if from >= q.to || to <= q.from {
			continue
		}
		if from < q.from {
			to = q.from
			continue
		}
		if q.done == nil {
			q.done = make(chan struct{})
		}
		return from, q.done
	}
	return to, nil
}

// queueLocked gives the request a place behind those that wait already.
func (w *writer) queueLocked(t *ticket, from, to int64) {
	if !t.queued {
		*t = ticket{from: from, to: to, queued: true}
		w.mu.queue = append(w.mu.queue, t)
	}
}

// unqueue gives up the place.
func (w *writer) unqueue(t *ticket) {
	if !t.queued {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range w.mu.queue {
		if q == t {
			w.mu.queue = append(w.mu.queue[:i], w.mu.queue[i+1:]...)
			break
		}
	}
	if t.done != nil {
		close(t.done)
	}
	*t = ticket{}
}

// await waits for what conflictLocked named.
func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeLocked takes a flight off the list and wakes who waits for it.
func (w *writer) removeLocked(f *flight) {
	for i, x := range w.mu.flights {
		if x == f {
			last := len(w.mu.flights) - 1
			w.mu.flights[i] = w.mu.flights[last]
			w.mu.flights[last] = nil
			w.mu.flights = w.mu.flights[:last]
			break
		}
	}
	if f.done != nil {
		close(f.done)
		f.done = nil
	}
}

// compressingLocked reports whether the cluster at guest is in flight as a stream.
func (w *writer) compressingLocked(guest int64) bool {
	cs := w.im.geo.ClusterSize()
	for _, f := range w.mu.flights {
		if f.compressed && guest >= f.guest && guest < f.end(cs) {
			return true
		}
	}
	return false
}

// overrideLocked tells the flights that touch [from, to), whole subclusters, that these were decided by a discard or a
// zero write, which counts as later than they: they must not link them. The flights need not be waited for.
func (w *writer) overrideLocked(from, to int64) {
	g := w.im.geo
	cs, sub := g.ClusterSize(), g.SubclusterSize()
	for _, f := range w.mu.flights {
		a, b := max(from, f.guest), min(to, f.end(cs))
		if a >= b {
			continue
		}
		if f.over == nil {
			f.over = make([]uint32, f.n)
		}
		for at := a; at < b; at += sub {
			f.over[(at-f.guest)/cs] |= 1 << ((at % cs) / sub)
		}
	}
}
