package file

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"byre/block"
	"byre/internal/ofdlock"

	"golang.org/x/sys/unix"
)

// File is an open host file or block device. Its methods are safe for any number of goroutines, except that Close
// must come when no other call runs or follows.
type File struct {
	path  string
	opt   Options
	dev   bool // block device
	host  host
	eng   engine
	geo   block.Geometry
	limit limits

	fd       atomic.Int32 // replaced by Reopen
	readOnly atomic.Bool
	size     atomic.Int64
	fresh    atomic.Int64 // see FreshFrom
	can      caps
	reqs     sync.Pool // *xfer
	flusher  *flusher
	changes  changes
	counts   counts
	extents  extentCache

	mu struct {
		sync.Mutex // held by Resize, GrowTo, CutTo and Reopen
		locks      Locks
		closed     bool
	}
}

var (
	_ block.Driver       = (*File)(nil)
	_ block.FreshSpace   = (*File)(nil)
	_ block.Preallocator = (*File)(nil)
	_ block.Reopener     = (*File)(nil)
)

// limits are what the file demands of requests, in bytes.
type limits struct {
	request int64 // unit of offsets and lengths
	memory  int   // alignment of buffers
}

// Open opens the regular file or block device at path. Errors: KindLocked (with the holder), KindUnsupported
// (direct I/O or an engine that the file or the kernel refuses, or a thing that is neither file nor block device),
// KindIO (with the system's error, so errors.Is(err, fs.ErrNotExist) works).
func Open(ctx context.Context, path string, o Options) (*File, error) {
	return open(ctx, path, o, 0, 0)
}

func open(ctx context.Context, path string, o Options, flags int, perm uint32) (*File, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("open", path, block.NoOffset, err)
	}
	if err := checkKind(path); err != nil {
		return nil, err
	}
	fd, err := openFD(path, openFlags(o)|flags, perm)
	if err != nil {
		if errors.Is(err, unix.EINVAL) && o.Cache.Direct() {
			return nil, &block.Error{Kind: block.KindUnsupported, Op: "open", Path: path, Offset: block.NoOffset,
				Msg: fmt.Sprintf("the file system does not support direct I/O, which cache mode %q needs", o.Cache), Err: err}
		}
		return nil, failure("open", path, block.NoOffset, err)
	}
	f := &File{path: path, opt: o}
	f.host = kernel{calls: &f.counts.syscalls}
	f.fd.Store(int32(fd))
	if err := f.setUp(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

func openFlags(o Options) int {
	fl := unix.O_CLOEXEC | unix.O_LARGEFILE
	if !o.ReadOnly {
		fl |= unix.O_RDWR
	}
	if o.Cache.Direct() {
		fl |= unix.O_DIRECT
	}
	return fl
}

// openFD opens without letting reads renew the access time where that is permitted (to the owner, or root).
func openFD(path string, flags int, perm uint32) (fd int, err error) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY && flags&unix.O_NOATIME == 0 {
		if fd, err = openFD(path, flags|unix.O_NOATIME, perm); !errors.Is(err, unix.EPERM) {
			return fd, err
		}
	}
	err = again(func() error {
		fd, err = unix.Open(path, flags, perm)
		return err
	})
	return fd, err
}

// checkKind refuses what cannot be an image before opening it, because opening a FIFO or a terminal can block or have
// effects. A missing file is left to open.
func checkKind(path string) error {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return nil
	}
	what := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFBLK:
		return nil
	case unix.S_IFDIR:
		what = "it is a directory"
	case unix.S_IFCHR:
		what = "it is a character device"
	case unix.S_IFIFO:
		what = "it is a pipe"
	case unix.S_IFSOCK:
		what = "it is a socket"
	}
	return &block.Error{Kind: block.KindUnsupported, Op: "open", Path: path, Offset: block.NoOffset,
		Msg: what + ", not a regular file or block device"}
}

func (f *File) setUp() error {
	fd := int(f.fd.Load())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f.fail("open", block.NoOffset, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFBLK:
		f.dev = true
	default:
		return &block.Error{Kind: block.KindUnsupported, Op: "open", Path: f.path, Offset: block.NoOffset,
			Msg: "not a regular file or block device"}
	}
	if err := f.lock(fd, f.opt.locks()); err != nil {
		return err
	}
	size, err := f.length()
	if err != nil {
		return f.fail("query size", block.NoOffset, err)
	}
	f.size.Store(size)
	f.fresh.Store(size)
	f.readOnly.Store(f.opt.ReadOnly)
	f.limit = limits{request: 1, memory: 1}
	if f.opt.Cache.Direct() {
		if f.limit, err = directLimits(fd, &st); err != nil {
			return f.fail("query alignment", block.NoOffset, err)
		}
	}
	f.can.reset(f.dev)
	f.geo = f.geometry(&st)
	f.flusher = newFlusher(f.syncOnce)
	f.changes.synced = math.MaxUint64 // what the file held before is not known to be durable
	f.reqs.New = func() any { return new(xfer) }
	if f.opt.ExtentSizeHint > 0 && !f.opt.ReadOnly && !f.dev {
		setExtentSizeHint(fd, f.opt.ExtentSizeHint)
	}
	f.eng, err = newEngine(f)
	return err
}

// lock takes the locks of the opener. A file system without such locks is tolerated: then nobody else can have any.
func (f *File) lock(fd int, want Locks) error {
	if f.opt.NoLock {
		return nil
	}
	err := ofdlock.Acquire(fd, f.mu.locks, want)
	switch {
	case err == nil:
		f.mu.locks = want
		return nil
	case errors.Is(err, ofdlock.ErrUnsupported):
		return nil
	}
	var c *ofdlock.Conflict
	if errors.As(err, &c) {
		return &block.Error{Kind: block.KindLocked, Op: "lock", Path: f.path, Offset: block.NoOffset,
			Msg: "the image is in use", Err: c}
	}
	return f.fail("lock", block.NoOffset, err)
}

// length asks the kernel for the current length.
func (f *File) length() (int64, error) {
	fd := int(f.fd.Load())
	if f.dev {
		var n uint64
		err := ioctl(fd, unix.BLKGETSIZE64, unsafe.Pointer(&n))
		return int64(n), err
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Size, err
}

func (f *File) geometry(st *unix.Stat_t) block.Geometry {
	g := block.Geometry{
		Path:         f.path,
		RequestAlign: f.limit.request,
		MemAlign:     f.limit.memory,
		ZeroAlign:    f.limit.request,
		DiscardAlign: f.limit.request,
		ReadOnly:     f.opt.ReadOnly,
		Growable:     !f.dev,
		ZeroInit:     !f.dev,
		QuickZero:    true,
		Unmap:        true,
	}
	if !f.dev {
		bs := max(int64(st.Blksize), 512)
		if bs&(bs-1) == 0 && bs <= 1<<20 {
			g.ZeroAlign, g.DiscardAlign = max(bs, g.RequestAlign), max(bs, g.RequestAlign)
		}
		return g
	}
	q := queueDir(st.Rdev)
	g.OptTransfer = sysfsInt(q + "optimal_io_size")
	if n := sysfsInt(q + "discard_granularity"); n > 0 && n&(n-1) == 0 {
		g.DiscardAlign = max(n, g.RequestAlign)
	}
	g.Unmap = sysfsInt(q+"discard_max_bytes") > 0
	g.QuickZero = sysfsInt(q+"write_zeroes_max_bytes") > 0
	lbs := int64(logicalBlock(int(f.fd.Load()), st))
	g.ZeroAlign = max(lbs, g.RequestAlign)
	return g
}

// queueDir is the sysfs directory of a block device's (or of a partition's whole device's) request queue.
func queueDir(rdev uint64) string {
	d := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(rdev), unix.Minor(rdev))
	if _, err := os.Stat(d + "queue"); err != nil {
		return d + "../queue/"
	}
	return d + "queue/"
}

func sysfsInt(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

// Geometry implements block.Driver.
func (f *File) Geometry() block.Geometry {
	g := f.geo
	g.ReadOnly = f.readOnly.Load()
	return g
}

// Size implements block.Driver: the length that this process knows of. See Refresh.
func (f *File) Size() int64 { return f.size.Load() }

// Refresh asks the host for the length again, for files that somebody else may change (force-share).
func (f *File) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.length()
	if err != nil {
		return f.fail("query size", block.NoOffset, err)
	}
	f.size.Store(n)
	f.extents.drop(0, math.MaxInt64)
	return nil
}

// Engine is the engine in use, never EngineAuto.
func (f *File) Engine() Engine { return f.eng.kind() }

// BlockDevice tells whether the file is a block device.
func (f *File) BlockDevice() bool { return f.dev }

// FD is the descriptor, for identity checks and ioctls of callers that know the host. It stays the File's, and a
// Reopen does not change its number.
func (f *File) FD() int { return int(f.fd.Load()) }

// Close implements block.Driver. It does not flush.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return &block.Error{Kind: block.KindInvalid, Op: "close", Path: f.path, Offset: block.NoOffset, Msg: "closed twice"}
	}
	f.mu.closed = true
	fd := int(f.fd.Load())
	err := f.eng.close()
	if f.mu.locks != (Locks{}) {
		err = errors.Join(err, ofdlock.Release(fd, f.mu.locks))
	}
	return f.fail("close", block.NoOffset, errors.Join(err, unix.Close(fd)))
}
