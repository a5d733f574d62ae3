package qcow2

import (
	"context"

	"byre/block"
	"byre/qcow2/layout"
)

// maxStreams is the largest number of compressed clusters that are written and linked together.
const maxStreams = 64

const opCompressed = "write compressed cluster"

// WriteStreams stores consecutive guest clusters from off on, a multiple of the cluster size, as compressed streams
// that a Compressor for this image's compression type made. The clusters must not have a place in the image yet
// (KindIO otherwise, as with compressed writes). Streams are placed back to back in the order given, so a single caller
// gets the same file from the same content every time. Errors leave a prefix of the clusters written.
func (im *Image) WriteStreams(ctx context.Context, off int64, streams [][]byte) error {
	w := im.w
	if w == nil {
		return im.readOnly(opCompressed, off)
	}
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.writeStreams(ctx, off, streams); err != nil {
		return err
	}
	return w.relieve(ctx)
}

// NewCompressor makes a compressor for this image's streams.
func (im *Image) NewCompressor() (block.Compressor, error) {
	return NewCompressor(im.CompressionType(), CompressOptions{})
}

var _ block.StreamWriter = (*Image)(nil)

// CompressionType is the method of the image's compressed clusters.
func (im *Image) CompressionType() uint8 {
	h := im.Header()
	return h.CompressionType
}

// writeCompressed does a guest write with the Compressed flag: whole clusters, of which the last one of the disk may be
// shorter. An error leaves those before it written.
func (w *writer) writeCompressed(ctx context.Context, iov [][]byte, off int64) error {
	im := w.im
	cs := im.geo.ClusterSize()
	n := iovBytes(iov)
	switch {
	case im.geo.DataFile:
		return block.Errorf(block.KindUnsupported, opCompressed, im.path, off, "not possible with an external data file")
	case off%cs != 0 || n%cs != 0 && off+n != im.Size():
		return block.Errorf(block.KindInvalid, opCompressed, im.path, off, "%d bytes are not whole clusters of %d", n, cs)
	}
	c, _ := w.compressors.Get().(*Compressor)
	if c == nil {
		var err error
		if c, err = NewCompressor(im.CompressionType(), CompressOptions{}); err != nil {
			return err
		}
	}
	defer w.compressors.Put(c)
	for src := (cursor{iov: iov}); n > 0; {
		part := min(n, cs)
		if err := w.compressCluster(ctx, c, src.take(nil, part), off, part); err != nil {
			return err
		}
		off, n = off+part, n-part
	}
	return nil
}

// compressCluster stores one guest cluster compressed, or as it is if it does not become smaller. The rest of a short
// one is filled up with zeros.
func (w *writer) compressCluster(ctx context.Context, c *Compressor, vec [][]byte, off, n int64) error {
	in, out := getCOW(w.im.geo.ClusterSize()), getCOW(0)
	defer cowPool.Put(in)
	defer cowPool.Put(out)
	at := 0
	for _, b := range vec {
		at += copy(in.b[at:], b)
	}
	clear(in.b[at:])
	stream, ok := c.Compress(out.b[:0], in.b)
	if !ok {
		return w.writev(ctx, vec, off, n)
	}
	out.b = stream
	return w.writeStreams(ctx, off, [][]byte{stream})
}

// writeStreams stores streams for the clusters from off on. The gate is held.
func (w *writer) writeStreams(ctx context.Context, off int64, streams [][]byte) error {
	cs := w.im.geo.ClusterSize()
	if off%cs != 0 || off < 0 || int64(len(streams)) > w.im.geo.Clusters(w.im.Size())-off/cs {
		return block.Errorf(block.KindInvalid, opCompressed, w.im.path, off, "%d clusters do not lie at a cluster inside the disk", len(streams))
	}
	for _, s := range streams {
		if len(s) == 0 || int64(len(s)) >= cs {
			return block.Errorf(block.KindInvalid, opCompressed, w.im.path, off, "a stream of %d bytes for a cluster of %d", len(s), cs)
		}
	}
	if w.im.geo.DataFile {
		return block.Errorf(block.KindUnsupported, opCompressed, w.im.path, off, "not possible with an external data file")
	}
	r := w.reqs.Get().(*writeReq)
	defer func() {
		w.unqueue(&r.ticket)
		clear(r.vec[:cap(r.vec)])
		w.reqs.Put(r)
	}()
	for len(streams) > 0 {
		r.off, r.n = off, min(int64(len(streams)), maxStreams)*cs
		wait, err := w.gatherStreams(ctx, r)
		if err != nil {
			return w.corruption(ctx, err)
		}
		if wait != nil {
			if err := await(ctx, wait); err != nil {
				return err
			}
			continue
		}
		n := r.part / cs
		err = w.storeStreams(ctx, r, streams[:n])
		r.flying, r.f.over = false, nil
		w.unqueue(&r.ticket)
		if err != nil {
			return err
		}
		off += n * cs
		streams = streams[n:]
	}
	return nil
}

// gatherStreams registers a flight for clusters that are to be compressed.
func (w *writer) gatherStreams(ctx context.Context, r *writeReq) (wait <-chan struct{}, err error) {
	for {
		s, l1, word, err := w.writableSlice(ctx, r.off)
		if err != nil {
			return nil, err
		}
		again, wait, err := w.gatherStreamsIn(r, s, l1, word)
		if !r.flying {
			s.release()
		}
		if !again {
			return wait, err
		}
	}
}

func (w *writer) gatherStreamsIn(r *writeReq, s *slot, l1 int64, word uint64) (again bool, wait <-chan struct{}, err error) {
	g := w.im.geo
	cs := g.ClusterSize()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.RLock()
	defer s.RUnlock()
	if s.dead || !w.sameTable(l1, word) {
		return true, nil, nil
	}
	index := w.indexIn(s, r.off)
	perSlice := len(s.data) / g.L2EntrySize()
	end := min(r.off+r.n, r.off+int64(perSlice-index)*cs)
	end, wait = w.conflictLocked(r.off, end, &r.ticket)
	if wait != nil {
		w.queueLocked(&r.ticket, r.off, r.off+r.n)
		return false, wait, nil
	}
	n := (end - r.off) / cs
	for i := range n {
		x := w.entryAt(s.data, index+int(i))
		if err := w.valid(x, r.off+i*cs); err != nil {
			return false, nil, err
		}
		if x.e.Compressed() || w.hasHost(x) {
			if i > 0 {
				n = i
				break
			}
			return false, nil, block.Errorf(block.KindIO, opCompressed, w.im.path, r.off, "the cluster is allocated already")
		}
	}
	r.part = n * cs
	end = r.off + r.part
	r.f = flight{guest: r.off, n: n, w0: r.off, w1: end, h0: r.off, h1: end, slot: s, index: index, l1: l1, compressed: true}
	w.registerLocked(r)
	return false, nil, nil
}

// placed is where a stream went.
type placed struct {
	off layout.HostOffset
	n   int64
}

// storeStreams places, writes and links the streams of a flight, in this order (qcow2-format §7.3).
func (w *writer) storeStreams(ctx context.Context, r *writeReq, streams [][]byte) error {
	var buf [maxStreams]placed
	places := buf[:0]
	var err error
	for _, s := range streams {
		var off layout.HostOffset
		if off, err = w.placeStream(ctx, int64(len(s))); err != nil {
			break
		}
		places = append(places, placed{off, int64(len(s))})
	}
	if err == nil {
		err = w.moveStreams(ctx, r, streams, places)
	}
	if err == nil {
		err = w.dirtyForLink(ctx)
	}
	if err != nil {
		w.mu.Lock()
		w.removeLocked(&r.f)
		w.mu.Unlock()
		r.f.slot.release()
		for _, p := range places {
			w.space.giveBackBytes(ctx, p.off, p.n)
		}
		return w.corruption(ctx, err)
	}
	return w.linkStreams(ctx, &r.f, places)
}

func (w *writer) placeStream(ctx context.Context, n int64) (layout.HostOffset, error) {
	if err := w.im.file.Event(ctx, block.EventClusterAllocBytes); err != nil {
		return 0, err
	}
	off, err := w.space.allocBytes(ctx, n)
	if block.KindOf(err) == block.KindNoSpace && w.makeSpace(ctx) {
		off, err = w.space.allocBytes(ctx, n)
	}
	return off, err
}

// moveStreams writes the streams, those that lie back to back in one request.
func (w *writer) moveStreams(ctx context.Context, r *writeReq, streams [][]byte, places []placed) error {
	for i := 0; i < len(places); {
		start, end := places[i].off, places[i].off
		r.vec = r.vec[:0]
		for i < len(places) && places[i].off == end {
			r.vec = append(r.vec, streams[i])
			end += layout.HostOffset(places[i].n)
			i++
		}
		if err := w.im.file.Event(ctx, block.EventWriteCompressed); err != nil {
			return err
		}
		if err := w.checkOverlap(ctx, start, int64(end-start), metaNone); err != nil {
			return err
		}
		if err := w.im.file.Writev(ctx, r.vec, int64(start), 0); err != nil {
			return err
		}
	}
	return nil
}

// linkStreams puts the descriptors into the L2 entries and ends the flight. A stream that is not whole cannot be read at
// all, so they count as data that must be durable before L2.
func (w *writer) linkStreams(ctx context.Context, f *flight, places []placed) error {
	g := w.im.geo
	w.order.image.note()
	s := f.slot
	var unused []placed
	var err error
	w.mu.Lock()
	s.Lock()
	for i, p := range places {
		if f.over != nil && f.over[i] != 0 {
			unused = append(unused, p)
			continue
		}
		e, ok := g.MakeCompressed(p.off, p.n)
		if !ok { // allocBytes keeps below the limit
			err = w.im.corrupt(opCompressed, p.off, "a stream of %d bytes has no descriptor here", p.n)
			unused = append(unused, p)
			continue
		}
		w.putEntry(s.data, f.index+i, l2Entry{e: e})
	}
	w.im.l2.markDirty(s)
	s.Unlock()
	w.removeLocked(f)
	w.mu.Unlock()
	s.release()
	for _, p := range unused {
		w.space.giveBackBytes(ctx, p.off, p.n)
	}
	return err
}
