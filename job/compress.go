package job

import (
	"context"

	"byre/block"
)

// compressed is what a worker has made of the clusters of a unit.
type compressed struct {
	compressor block.Compressor
	out        []byte // the streams, one behind the other
	last       []byte // the last cluster of the disk, filled up with zeros
	parts      []part
	streams    [][]byte
}

// part is one cluster of a unit.
type part struct {
	kind partKind
	n    int64 // bytes of the disk
	from int   // a stream is out[from:to]
	to   int
}

type partKind uint8

const (
	partZero   partKind = iota // left out
	partPlain                  // does not become smaller
	partStream                 // compressed
)

// compress compresses p, which begins at a cluster and ends with one or with the source. What a longer target has
// behind the source in the same cluster must stay, so that one is not compressed.
func (w *worker) compress(p []byte, off int64) (err error) {
	c := w.c
	if w.compressor == nil {
		if w.compressor, err = c.dst.NewCompressor(); err != nil {
			return err
		}
	}
	w.out, w.parts = w.out[:0], w.parts[:0]
	for len(p) > 0 {
		n := min(c.align, int64(len(p)))
		q := part{n: n, kind: partPlain, from: len(w.out)}
		if c.o.Sparse > 0 && isZero(p[:n]) {
			q.kind = partZero
		} else if n < c.align && off+n < c.dst.Size() {
			q.kind = partPlain
		} else if stream, ok := w.compressor.Compress(w.out, w.whole(p[:n])); ok {
			w.out, q.kind = stream, partStream
		}
		q.to = len(w.out)
		w.parts = append(w.parts, q)
		p, off = p[n:], off+n
	}
	return nil
}

// whole fills a cluster up to its size.
func (w *worker) whole(p []byte) []byte {
	if int64(len(p)) == w.c.align {
		return p
	}
	if w.last == nil {
		w.last = make([]byte, w.c.align)
	}
	clear(w.last[copy(w.last, p):])
	return w.last
}

// store writes what compress has made of p, runs of one kind together.
func (w *worker) store(ctx context.Context, p []byte, off int64) error {
	for parts := w.parts; len(parts) > 0; {
		n, i := int64(0), 0
		w.streams = w.streams[:0]
		for ; i < len(parts) && parts[i].kind == parts[0].kind; i++ {
			n += parts[i].n
			w.streams = append(w.streams, w.out[parts[i].from:parts[i].to])
		}
		var err error
		switch parts[0].kind {
		case partZero:
			err = w.c.leaveOut(ctx, off, n)
		case partPlain:
			err = w.c.dst.Write(ctx, p[:n], off, 0)
		case partStream:
			err = w.c.dst.WriteStreams(ctx, off, w.streams)
		}
		if err != nil {
			return err
		}
		p, off, parts = p[n:], off+n, parts[i:]
	}
	return nil
}
