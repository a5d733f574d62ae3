package qcow2

import (
	"context"
	"sync"

	"byre/block"
	"byre/internal/inflate"
	"byre/internal/zstdframe"
	"byre/qcow2/layout"
)

const (
	maxGroupBytes  = 256 << 10 // streams fetched by one read
	maxGroupGap    = 4 << 10   // unused bytes between streams that are read along
	inflatedBytes  = 1 << 20   // of inflated clusters that an image keeps
	minInflated    = 2         // clusters, however large
	maxInflated    = 16
	noStream       = layout.HostOffset(-1)
	opReadCompress = "read compressed cluster"
)

// groupAt returns how many pieces from i on are compressed clusters whose
// streams lie close enough in the file to be fetched by one read.
func (op *readOp) groupAt(i int) int {
	first := &op.pieces[i]
	start, end := first.host, first.host+layout.HostOffset(first.stream)
	n := 1
	for _, p := range op.pieces[i+1:] {
		if p.typ != layout.TypeCompressed || p.host < start || p.host > end+maxGroupGap ||
			p.host+layout.HostOffset(p.stream)-start > maxGroupBytes {
			break
		}
		end = max(end, p.host+layout.HostOffset(p.stream))
		n++
	}
	return n
}

// readGroup serves compressed pieces whose streams lie together.
func (op *readOp) readGroup(group []piece) error {
	im := op.v.im
	if len(group) == 1 && group[0].n < im.geo.ClusterSize() {
		return op.readPart(&group[0], nil)
	}
	start, end := group[0].host, group[0].host
	for i := range group {
		end = max(end, group[i].host+layout.HostOffset(group[i].stream))
	}
	buf, err := im.fetch(op.ctx, start, int64(end-start))
	if err != nil {
		return err
	}
	defer streams.Put(buf)
	for i := range group {
		p := &group[i]
		src, err := im.streamIn(buf.b, start, &p.mapping)
		if err == nil && p.n == im.geo.ClusterSize() {
			err = op.readWhole(p, src)
		} else if err == nil {
			err = op.readPart(p, src)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// streamIn cuts the stream of m out of bytes that were read from start on.
func (im *Image) streamIn(b []byte, start layout.HostOffset, m *mapping) ([]byte, error) {
	from := int64(m.host - start)
	if from >= int64(len(b)) {
		return nil, im.corrupt(opReadCompress, m.host, "the stream lies beyond the end of the file of %d bytes", im.file.Size())
	}
	return b[from:min(from+m.stream, int64(len(b)))], nil
}

// readWhole inflates a whole cluster, straight into the caller's memory if that is in one piece.
func (op *readOp) readWhole(p *piece, src []byte) error {
	vec := op.vec[p.from:p.to]
	if len(vec) == 1 {
		return op.v.im.inflate(vec[0], src, p.host)
	}
	e := op.v.im.inflated.spare()
	defer op.v.im.inflated.putSpare(e)
	if err := op.v.im.inflate(e.buf, src, p.host); err != nil {
		return err
	}
	scatter(vec, e.buf)
	return nil
}

// readPart serves a part of a cluster from the inflated clusters that are
// kept, and keeps this one. src may be nil: the stream is fetched if needed.
func (op *readOp) readPart(p *piece, src []byte) error {
	im := op.v.im
	for {
		e, fresh := im.inflated.acquire(p.host, p.stream)
		if fresh {
			e.err = im.fill(op.ctx, e, &p.mapping, src)
			if e.err != nil {
				im.inflated.forget(e)
			}
			e.Unlock()
		}
		e.RLock()
		err := e.err
		if err == nil {
			from := im.geo.InCluster(layout.GuestOffset(p.guest))
			scatter(op.vec[p.from:p.to], e.buf[from:from+p.n])
		}
		e.RUnlock()
		im.inflated.release(e)
		if err != nil && !fresh && op.ctx.Err() == nil {
			continue // that was the error of another request, which may have been cancelled
		}
		return err
	}
}

// fill inflates the cluster of m into e.
func (im *Image) fill(ctx context.Context, e *inflatedCluster, m *mapping, src []byte) error {
	if e.buf == nil {
		e.buf = make([]byte, im.geo.ClusterSize())
	}
	if src == nil {
		buf, err := im.fetch(ctx, m.host, m.stream)
		if err != nil {
			return err
		}
		defer streams.Put(buf)
		if src, err = im.streamIn(buf.b, m.host, m); err != nil {
			return err
		}
	}
	return im.inflate(e.buf, src, m.host)
}

// inflate decodes one cluster. The input may be followed by anything; the
// output must be filled.
func (im *Image) inflate(dst, src []byte, at layout.HostOffset) error {
	var err error
	if im.zstd {
		_, _, err = zstdframe.Decode(dst, src)
	} else {
		_, _, err = inflate.Decode(dst, src)
	}
	if err != nil {
		return block.Errorf(block.KindCorrupt, opReadCompress, im.path, int64(at), "%w", err)
	}
	return nil
}

// scatter copies src to vec, which has the same length.
func scatter(vec [][]byte, src []byte) {
	for _, b := range vec {
		src = src[copy(b, src):]
	}
}

// streamBuf is pooled memory for streams.
type streamBuf struct{ b []byte }

var streams = sync.Pool{New: func() any { return new(streamBuf) }}

// fetch reads [off, off+n) of the image file, or up to its end.
func (im *Image) fetch(ctx context.Context, off layout.HostOffset, n int64) (*streamBuf, error) {
	if err := im.file.Event(ctx, block.EventReadCompressed); err != nil {
		return nil, err
	}
	n = min(n, im.file.Size()-int64(off))
	if n <= 0 {
		return nil, im.corrupt(opReadCompress, off, "the stream lies beyond the end of the file of %d bytes", im.file.Size())
	}
	buf := streams.Get().(*streamBuf)
	if int64(cap(buf.b)) < n {
		buf.b = make([]byte, max(n, maxGroupBytes))
	}
	buf.b = buf.b[:n]
	if err := im.file.Read(ctx, buf.b, int64(off)); err != nil {
		streams.Put(buf)
		return nil, err
	}
	return buf, nil
}

// inflatedCache keeps the clusters that were inflated last for partial reads,
// so that reading a compressed image in small steps inflates each once.
type inflatedCache struct {
	size   int64 // of a cluster
	max    int
	spares sync.Pool
	mu     struct {
		sync.Mutex
		clusters []*inflatedCluster
		clock    uint64
	}
}

// inflatedCluster is known by its stream. The RWMutex guards buf and err; the
// other fields belong to the cache's mutex.
type inflatedCluster struct {
	sync.RWMutex
	buf []byte
	err error

	host   layout.HostOffset // noStream: not to be found
	stream int64
	refs   int
	stamp  uint64
}

func newInflatedCache(clusterSize int64) *inflatedCache {
	c := &inflatedCache{size: clusterSize, max: int(min(max(inflatedBytes/clusterSize, minInflated), maxInflated))}
	c.spares.New = func() any { return &inflatedCluster{buf: make([]byte, clusterSize)} }
	return c
}

// acquire returns the cluster of a stream, to be released. If fresh, it is new
// and locked: the caller fills it and unlocks it.
func (c *inflatedCache) acquire(host layout.HostOffset, stream int64) (e *inflatedCluster, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.clock++
	var victim *inflatedCluster
	for _, x := range c.mu.clusters {
		if x.host == host && x.stream == stream {
			x.refs++
			x.stamp = c.mu.clock
			return x, false
		}
		if x.refs == 0 && (victim == nil || x.stamp < victim.stamp) {
			victim = x
		}
	}
	switch {
	case len(c.mu.clusters) < c.max:
		victim = new(inflatedCluster)
		c.mu.clusters = append(c.mu.clusters, victim)
	case victim == nil:
		victim = new(inflatedCluster) // all are in use: this one goes away afterwards
	}
	victim.host, victim.stream, victim.refs, victim.stamp = host, stream, 1, c.mu.clock
	victim.Lock() // nobody else knows it: does not wait
	return victim, true
}

func (c *inflatedCache) release(e *inflatedCluster) {
	c.mu.Lock()
	e.refs--
	c.mu.Unlock()
}

// forget makes sure that nobody finds e again.
func (c *inflatedCache) forget(e *inflatedCluster) {
	c.mu.Lock()
	e.host = noStream
	c.mu.Unlock()
}

// drop forgets every cluster whose stream touches [off, off+n). The writing
// half calls it when it frees host clusters that held streams.
func (c *inflatedCache) drop(off layout.HostOffset, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.mu.clusters {
		if e.host != noStream && e.host < off+layout.HostOffset(n) && off < e.host+layout.HostOffset(e.stream) {
			e.host = noStream
		}
	}
}

// spare lends memory of a cluster's size.
func (c *inflatedCache) spare() *inflatedCluster { return c.spares.Get().(*inflatedCluster) }

func (c *inflatedCache) putSpare(e *inflatedCluster) { c.spares.Put(e) }
