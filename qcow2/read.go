package qcow2

import (
	"context"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/qcow2/layout"
)

const (
	// maxPieces bounds what one request looks up and pins before it moves data.
	maxPieces = 256
	// readWorkers is how many pieces of one request move at once.
	readWorkers = 4
	// parallelBytes is the size from which it pays to spread a request.
	parallelBytes = 128 << 10
)

// readOp is one request on its way: its pieces, and the caller's memory cut to
// fit them. Ops are pooled, so that a request allocates nothing.
type readOp struct {
	v      *view
	ctx    context.Context
	pieces []piece
	vec    [][]byte
	next   atomic.Int32
	pin    pin
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		err error
	}
}

// piece is a part of a request that one mapping answers.
type piece struct {
	mapping
	from, to int // its memory is vec[from:to]
	// group, in the first of several compressed pieces whose streams are
	// fetched together, is how many these are; 0 in the others.
	group int
}

var readOps = sync.Pool{New: func() any { return new(readOp) }}

// ReadvAt implements block.Driver.
func (im *Image) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	return im.view.readv(ctx, iov, off)
}

// readv fills iov from guest offset off of the view. Bytes past the size of
// the view are whatever the tables say (the VM state lies there).
func (v *view) readv(ctx context.Context, iov [][]byte, off int64) error {
	if v.im.crypt {
		return block.Errorf(block.KindUnsupported, "read", v.im.path, off, "the image is encrypted")
	}
	op := readOps.Get().(*readOp)
	op.v, op.ctx = v, ctx
	c := cursor{iov: iov}
	var err error
	for end := off + iovBytes(iov); off < end && err == nil; {
		off, err = op.gather(off, end)
		if err == nil {
			op.cut(&c)
			err = op.run()
		}
		op.reset()
	}
	op.v, op.ctx = nil, nil
	readOps.Put(op)
	return err
}

func iovBytes(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}

// reset ends the pin and empties the op. Memory of callers is let go.
func (op *readOp) reset() {
	if w := op.v.im.w; w != nil {
		w.quar.exit(op.pin)
	}
	clear(op.vec)
	op.pieces, op.vec = op.pieces[:0], op.vec[:0]
	op.next.Store(0)
	op.mu.err = nil
}

// gather looks up [off, end) and returns how far it came.
func (op *readOp) gather(off, end int64) (int64, error) {
	if w := op.v.im.w; w != nil {
		op.pin = w.quar.enter() // what the lookups name is not reused before reset
	}
	for off < end && len(op.pieces) < maxPieces {
		op.pieces = append(op.pieces, piece{})
		p := &op.pieces[len(op.pieces)-1]
		if err := op.v.lookup(op.ctx, off, end-off, 0, &p.mapping); err != nil {
			return off, err
		}
		off += p.n
		if n := len(op.pieces); n > 1 && op.pieces[n-2].merge(p) {
			op.pieces = op.pieces[:n-1]
		}
	}
	return off, nil
}

// merge makes p longer by q, which follows, if one access can serve both.
func (p *piece) merge(q *piece) bool {
	switch {
	case readsAs(p.typ) == readsCompressed || readsAs(p.typ) != readsAs(q.typ):
		return false
	case p.typ == layout.TypeNormal && p.host+layout.HostOffset(p.n) != q.host:
		return false
	}
	p.n += q.n
	return true
}

// cut deals out the caller's memory to the pieces.
func (op *readOp) cut(c *cursor) {
	for i := range op.pieces {
		p := &op.pieces[i]
		p.from = len(op.vec)
		op.vec = c.take(op.vec, p.n)
		p.to = len(op.vec)
	}
}

// run moves the data of all pieces.
func (op *readOp) run() error {
	units, bytes := op.plan()
	if units == 0 {
		return nil
	}
	if bytes >= parallelBytes {
		for range min(units, readWorkers) - 1 {
			op.wg.Add(1)
			go readWorker(op)
		}
	}
	op.work()
	op.wg.Wait()
	return op.mu.err
}

// plan serves the pieces that need no data, groups compressed ones, and
// returns how many units of work are left and their bytes.
func (op *readOp) plan() (units int, bytes int64) {
	for i := 0; i < len(op.pieces); i++ {
		p := &op.pieces[i]
		switch readsAs(p.typ) {
		case readsZero:
			zeroVec(op.vec[p.from:p.to])
			continue
		case readsCompressed:
			n := op.groupAt(i)
			p.group = n
			for _, q := range op.pieces[i : i+n] {
				bytes += q.n
			}
			i += n - 1
		default:
			bytes += p.n
		}
		units++
	}
	return units, bytes
}

func readWorker(op *readOp) {
	op.work()
	op.wg.Done()
}

// work takes pieces until none is left or one failed.
func (op *readOp) work() {
	for {
		i := int(op.next.Add(1)) - 1
		if i >= len(op.pieces) {
			return
		}
		if err := op.piece(i); err != nil {
			op.mu.Lock()
			if op.mu.err == nil {
				op.mu.err = err
			}
			op.mu.Unlock()
			op.next.Store(int32(len(op.pieces))) // the others need not start
			return
		}
	}
}

// piece moves the data of piece i.
func (op *readOp) piece(i int) error {
	p := &op.pieces[i]
	vec := op.vec[p.from:p.to]
	switch readsAs(p.typ) {
	case readsData:
		return op.v.im.readData(op.ctx, vec, p.host, p.n)
	case readsBacking:
		return op.v.im.readBacking(op.ctx, vec, p.guest, p.n)
	case readsCompressed:
		if p.group > 0 {
			return op.readGroup(op.pieces[i : i+p.group])
		}
	}
	return nil
}

// readKind is what reading a cluster type comes down to.
type readKind uint8

const (
	readsZero readKind = iota
	readsData
	readsBacking
	readsCompressed
)

func readsAs(t layout.ClusterType) readKind {
	switch t {
	case layout.TypeNormal:
		return readsData
	case layout.TypeUnallocated, layout.TypeUnallocatedAlloc:
		return readsBacking
	case layout.TypeCompressed:
		return readsCompressed
	}
	return readsZero
}

// readData reads guest data that lies in the clear at host.
func (im *Image) readData(ctx context.Context, vec [][]byte, host layout.HostOffset, n int64) error {
	dev := im.file
	if im.geo.DataFile {
		if dev = im.dataFile.Load(); dev == nil {
			return block.Errorf(block.KindRefused, "read", im.path, block.NoOffset, "the external data file is not open")
		}
	}
	if err := im.file.Event(ctx, block.EventReadAIO); err != nil {
		return err
	}
	if int64(host) <= dev.Size()-n {
		return dev.Readv(ctx, vec, int64(host))
	}
	return im.readAtEOF(ctx, dev, vec, host, n)
}

// readAtEOF reads a range that reaches past the end of the file: a cluster
// that is cut off goes on with zeros, one that starts beyond the end is an
// error (qcow2-format §0).
func (im *Image) readAtEOF(ctx context.Context, dev *block.Device, vec [][]byte, host layout.HostOffset, n int64) error {
	size := dev.Size()
	if limit, ok := im.geo.CeilCluster(size); ok && int64(host)+n > limit {
		return block.Errorf(block.KindCorrupt, "read", dev.Path(), max(int64(host), limit), "a data cluster lies beyond the end of the file of %d bytes", size)
	}
	return readOrZero(ctx, dev, vec, int64(host), size)
}

// readBacking reads what shows through from the backing file: zeros beyond its
// end or if there is none.
func (im *Image) readBacking(ctx context.Context, vec [][]byte, guest, n int64) error {
	dev := im.backing.Load()
	if dev == nil {
		if err := im.needBacking(); err != nil {
			return err
		}
		zeroVec(vec)
		return nil
	}
	if err := im.file.Event(ctx, block.EventReadBackingAIO); err != nil {
		return err
	}
	size := dev.Size()
	if guest <= size-n {
		return dev.Readv(ctx, vec, guest)
	}
	return readOrZero(ctx, dev, vec, guest, size)
}

// needBacking is the error for an image whose header names a backing file
// while nobody said what to do about it.
func (im *Image) needBacking() error {
	if im.backingKnown.Load() || !im.namesBacking {
		return nil
	}
	return block.Errorf(block.KindRefused, "read", im.path, block.NoOffset, "the backing file is not open")
}

// readOrZero reads the part of [off, …) below size and zeroes the rest of vec.
func readOrZero(ctx context.Context, dev *block.Device, vec [][]byte, off, size int64) error {
	if off >= size {
		zeroVec(vec)
		return nil
	}
	c := cursor{iov: vec}
	inside := c.take(nil, size-off)
	zeroVec(c.take(nil, iovBytes(vec)-(size-off)))
	return dev.Readv(ctx, inside, off)
}

func zeroVec(vec [][]byte) {
	for _, b := range vec {
		clear(b)
	}
}

// cursor walks over the memory of a request.
type cursor struct {
	iov  [][]byte
	skip int // bytes of iov[0] that are taken
}

// take appends to dst the next n bytes, which must be there.
func (c *cursor) take(dst [][]byte, n int64) [][]byte {
	for n > 0 {
		b := c.iov[0][c.skip:]
		if int64(len(b)) > n {
			b = b[:n]
			c.skip += int(n)
		} else {
			c.iov, c.skip = c.iov[1:], 0
		}
		if len(b) > 0 {
			dst = append(dst, b)
		}
		n -= int64(len(b))
	}
	return dst
}
