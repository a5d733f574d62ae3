//go:build !linux

package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"byre/block"
	"byre/internal/iobuf"
)

// File is an open host file. On this system it is plain buffered I/O: no direct cache modes, no holes, no locks, and
// the engine is always EngineThreads.
type File struct {
	path      string
	opt       Options
	size      atomic.Int64
	fresh     atomic.Int64
	readOnly  atomic.Bool
	completed atomic.Uint64
	synced    uint64
	flusher   *flusher

	file atomic.Pointer[os.File]
	mu   struct {
		sync.Mutex
		closed bool
	}
}

var (
	_ block.Driver     = (*File)(nil)
	_ block.FreshSpace = (*File)(nil)
	_ block.Reopener   = (*File)(nil)
)

// Open opens the regular file at path. Direct cache modes and engines other than threads are of KindUnsupported.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	}
	return open(ctx, path, o, flags)
}

func open(ctx context.Context, path string, o Options, flags int) (*File, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("open", path, block.NoOffset, err)
	}
	unsupported := func(msg string) error {
		return &block.Error{Kind: block.KindUnsupported, Op: "open", Path: path, Offset: block.NoOffset, Msg: msg}
	}
	switch {
	case o.Cache.Direct():
		return nil, unsupported(fmt.Sprintf("cache mode %q needs direct I/O, which this system does not have", o.Cache))
	case o.Engine != EngineAuto && o.Engine != EngineThreads:
		return nil, unsupported(fmt.Sprintf("this system does not have the I/O engine %q", o.Engine))
	}
	h, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, failure("open", path, block.NoOffset, err)
	}
	st, err := h.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = unsupported("not a regular file")
	}
	if err != nil {
		return nil, failure("open", path, block.NoOffset, errors.Join(err, h.Close()))
	}
	f := &File{path: path, opt: o}
	f.file.Store(h)
	f.size.Store(st.Size())
	f.fresh.Store(st.Size())
	f.readOnly.Store(o.ReadOnly)
	f.completed.Store(1)
	f.flusher = newFlusher(f.syncOnce)
	return f, nil
}

// Create makes (or empties) a regular file for reading and writing and gives it its size.
func Create(ctx context.Context, path string, o Options, c CreateOptions) (*File, error) {
	o.ReadOnly = false
	flags := os.O_RDWR | os.O_CREATE
	if c.Exclusive {
		flags |= os.O_EXCL
	}
	_, statErr := os.Lstat(path)
	f, err := open(ctx, path, o, flags)
	if err != nil {
		return nil, err
	}
	err = f.Resize(ctx, 0, block.ResizeOptions{})
	if err == nil {
		err = f.Resize(ctx, c.Size, block.ResizeOptions{Prealloc: c.Prealloc, Progress: c.Progress})
	}
	if err != nil {
		err = errors.Join(err, f.Close())
		if errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(path))
		}
		return nil, failure("create", path, block.NoOffset, err)
	}
	if c.Prealloc != block.PreallocFull {
		f.fresh.Store(0)
	}
	return f, nil
}

// Geometry implements block.Driver.
func (f *File) Geometry() block.Geometry {
	return block.Geometry{Path: f.path, RequestAlign: 1, MemAlign: 1, ReadOnly: f.readOnly.Load(), Growable: true, ZeroInit: true}
}

// Size implements block.Driver.
func (f *File) Size() int64 { return f.size.Load() }

// Refresh asks the host for the length again.
func (f *File) Refresh() error {
	st, err := f.file.Load().Stat()
	if err != nil {
		return f.fail("query size", block.NoOffset, err)
	}
	f.size.Store(st.Size())
	return nil
}

// Engine is always EngineThreads.
func (f *File) Engine() Engine { return EngineThreads }

// BlockDevice is always false.
func (f *File) BlockDevice() bool { return false }

// SetLocks does nothing: this system has no locks of the protocol.
func (f *File) SetLocks(Locks) error { return nil }

// ReadvAt implements block.Driver.
func (f *File) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	if err := f.started(ctx, "read", off); err != nil {
		return err
	}
	h := f.file.Load()
	for _, b := range iov {
		n, err := h.ReadAt(b, off)
		if err == io.EOF {
			clear(b[n:])
			err = nil
			if size := f.size.Load(); off+int64(n) < size {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			return f.fail("read", off+int64(n), err)
		}
		off += int64(len(b))
	}
	return nil
}

// WritevAt implements block.Driver.
func (f *File) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	if err := f.started(ctx, "write", off); err != nil {
		return err
	}
	h := f.file.Load()
	for _, b := range iov {
		raise(&f.fresh, off+int64(len(b)))
		n, err := h.WriteAt(b, off)
		f.completed.Add(1)
		if err != nil {
			return f.fail("write", off+int64(n), err)
		}
		off += int64(len(b))
		raise(&f.size, off)
	}
	if flags&block.FUA != 0 || f.opt.Cache.Writethrough() {
		return f.Flush(ctx)
	}
	return nil
}

// ZeroAt implements block.Driver. It is never quick.
func (f *File) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	if flags&block.NoFallback != 0 {
		return &block.Error{Kind: block.KindUnsupported, Op: "write zeroes", Path: f.path, Offset: off,
			Msg: "the host has no quick way to zero this range"}
	}
	buf := iobuf.Get(int(min(n, 1<<20)))
	defer iobuf.Put(buf)
	clear(buf)
	for n > 0 {
		k := min(n, int64(len(buf)))
		if err := f.WritevAt(ctx, [][]byte{buf[:k]}, off, 0); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	if flags&block.FUA != 0 || f.opt.Cache.Writethrough() {
		return f.Flush(ctx)
	}
	return nil
}

// DiscardAt implements block.Driver. It does nothing.
func (f *File) DiscardAt(context.Context, int64, int64) error { return nil }

// Flush implements block.Driver.
func (f *File) Flush(context.Context) error {
	if f.opt.Cache.NoFlush() || f.readOnly.Load() {
		return nil
	}
	return f.fail("flush", block.NoOffset, f.flusher.flush())
}

func (f *File) syncOnce() error {
	covers := f.completed.Load()
	if covers == f.synced {
		return nil
	}
	if err := f.file.Load().Sync(); err != nil {
		return err
	}
	f.synced = covers
	return nil
}

// Extent implements block.Driver: all is data.
func (f *File) Extent(_ context.Context, off, n int64, _ block.Query) (block.Extent, error) {
	size := f.size.Load()
	e := block.Extent{Start: off, Length: min(n, size-off), Flags: block.Data | block.Allocated | block.HasHost, Host: off, File: f.path}
	if e.Length <= 0 {
		return e, &block.Error{Kind: block.KindOutOfBounds, Op: "query extent", Path: f.path, Offset: off, Msg: "beyond the end"}
	}
	if e.End() == size {
		e.Flags |= block.EOFExtent
	}
	return e, nil
}

// Resize implements block.Driver. Preallocation off and full are known.
func (f *File) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	if err := f.started(ctx, "resize", block.NoOffset); err != nil {
		return err
	}
	old := f.size.Load()
	if o.Prealloc == block.PreallocMetadata || size < old && o.Prealloc != block.PreallocOff {
		return &block.Error{Kind: block.KindInvalid, Op: "resize", Path: f.path, Offset: block.NoOffset,
			Msg: fmt.Sprintf("preallocation mode %q does not apply", o.Prealloc)}
	}
	if o.Prealloc == block.PreallocFalloc {
		return &block.Error{Kind: block.KindUnsupported, Op: "resize", Path: f.path, Offset: block.NoOffset,
			Msg: "this system cannot reserve space for files"}
	}
	if err := f.truncate(size); err != nil || o.Prealloc != block.PreallocFull {
		return err
	}
	const step = 16 << 20
	for at := old; at < size; at += step {
		if err := f.ZeroAt(ctx, at, min(step, size-at), 0); err != nil {
			return errors.Join(err, f.truncate(old))
		}
		if o.Progress != nil {
			o.Progress(min(at+step, size)-old, size-old)
		}
	}
	return f.Flush(ctx)
}

func (f *File) truncate(size int64) error {
	err := f.file.Load().Truncate(size)
	f.completed.Add(1)
	if err != nil {
		return f.fail("resize", block.NoOffset, err)
	}
	f.size.Store(size)
	f.fresh.Store(min(f.fresh.Load(), size))
	return nil
}

// FreshFrom implements block.FreshSpace.
func (f *File) FreshFrom() int64 { return min(f.fresh.Load(), f.size.Load()) }

// GrowTo implements block.FreshSpace; it grows sparsely and only as far as asked.
func (f *File) GrowTo(_ context.Context, size int64) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.size.Load(); size <= old {
		return old, nil
	}
	return size, f.truncate(size)
}

// CutTo implements block.FreshSpace.
func (f *File) CutTo(_ context.Context, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch fresh := f.fresh.Load(); {
	case size >= f.size.Load():
		return nil
	case size < fresh:
		return &block.Error{Kind: block.KindInvalid, Op: "cut", Path: f.path, Offset: block.NoOffset,
			Msg: fmt.Sprintf("the file was written up to %d, so it cannot be cut to %d as never written", fresh, size)}
	}
	return f.truncate(size)
}

// Reopen implements block.Reopener.
func (f *File) Reopen(_ context.Context, o block.ReopenOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.ReadOnly == f.readOnly.Load() {
		return nil
	}
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	}
	h, err := os.OpenFile(f.path, flags, 0)
	if err != nil {
		return f.fail("reopen", block.NoOffset, err)
	}
	f.readOnly.Store(o.ReadOnly)
	return f.fail("reopen", block.NoOffset, f.file.Swap(h).Close())
}

// Close implements block.Driver. It does not flush.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return &block.Error{Kind: block.KindInvalid, Op: "close", Path: f.path, Offset: block.NoOffset, Msg: "closed twice"}
	}
	f.mu.closed = true
	return f.fail("close", block.NoOffset, f.file.Load().Close())
}

func raise(a *atomic.Int64, to int64) {
	for {
		old := a.Load()
		if to <= old || a.CompareAndSwap(old, to) {
			return
		}
	}
}
