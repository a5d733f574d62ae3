package block

import "context"

// Driver is one layer: a format over a file, a host file, memory. It is called by a [Device] only, which has already
// checked bounds, alignment and read-only, so a driver may rely on:
//
//   - off ≥ 0, the length is > 0, off+length does not overflow;
//   - off and length are multiples of Geometry.RequestAlign (memory addresses are not: a driver that needs aligned
//     memory bounces by itself);
//   - off+length ≤ Size() rounded up to RequestAlign, except for writes and zeroes on a Growable driver, which may lie
//     anywhere below MaxSize and extend the layer;
//   - any number of calls run at once; overlapping ones that need an order were ordered by the device;
//   - no request is longer than the limits of Geometry, nor has more buffers.
//
// Requests are all or nothing: a driver retries short transfers and returns nil only if every byte moved. Bytes of a
// read that lie between Size() and its rounded-up end are zeros.
//
// Errors are *[Error] (wrapped or not). A driver never keeps iov after it returned.
type Driver interface {
	// Geometry gives the facts that hold as long as the driver is open (and not reopened). Cheap.
	Geometry() Geometry
	// Size is the current length in bytes. Cheap, safe at any time.
	Size() int64

	// ReadvAt fills the buffers of iov in order from off.
	ReadvAt(ctx context.Context, iov [][]byte, off int64) error
	// WritevAt writes the buffers of iov in order at off. Flags: FUA, Compressed.
	WritevAt(ctx context.Context, iov [][]byte, off int64, flags Flags) error
	// ZeroAt makes [off, off+n) read as zeros. Flags: FUA, MayUnmap, NoFallback.
	// With NoFallback a driver that has no quick way returns KindUnsupported and has changed nothing. Without it a
	// driver may return KindUnsupported too: the device then writes zeros.
	ZeroAt(ctx context.Context, off, n int64, flags Flags) error
	// DiscardAt says that the contents of [off, off+n) are no longer needed. Advisory: what it does not do keeps its
	// contents. Never an error for being unable.
	DiscardAt(ctx context.Context, off, n int64) error
	// Flush makes everything that completed before the call durable, with all metadata it needs.
	Flush(ctx context.Context) error

	// Extent answers what is at off: the longest run of one kind that the driver can name cheaply, 0 < Length ≤ n.
	Extent(ctx context.Context, off, n int64, q Query) (Extent, error)

	// Resize changes the length. Growth reads as zeros. Not durable until Flush unless the driver says so.
	Resize(ctx context.Context, size int64, o ResizeOptions) error
	// Close releases everything after making metadata consistent. It does not imply Flush of the host file in cache
	// mode unsafe. A second Close returns an error of KindInvalid.
	Close() error
}

// Geometry holds the fixed facts of an open driver. All sizes are bytes.
type Geometry struct {
	Path         string // what errors and listings call it
	RequestAlign int64  // power of two ≥ 1: unit of offsets and lengths
	MemAlign     int    // power of two ≥ 1: memory with this alignment avoids a bounce buffer
	MaxTransfer  int64  // longest single read or write; 0 = no limit
	MaxIovec     int    // most buffers in a single request; 0 = no limit
	OptTransfer  int64  // transfers of a multiple of this are quickest; 0 = unknown
	ZeroAlign    int64  // unit in which ZeroAt is quick; 0 = RequestAlign
	MaxZero      int64  // longest single ZeroAt; 0 = no limit
	DiscardAlign int64  // unit in which DiscardAt has an effect; 0 = RequestAlign
	MaxDiscard   int64  // longest single DiscardAt; 0 = no limit
	ClusterSize  int64  // unit of allocation; 0 = none
	MaxSize      int64  // the layer can never be longer; 0 = math.MaxInt64
	ReadOnly     bool
	Growable     bool // writes beyond Size extend the layer
	ZeroInit     bool // space that a growth adds reads as zeros until written
	QuickZero    bool // ZeroAt with NoFallback can be expected to work
	NoFUA        bool // the driver ignores FUA: the device makes writes durable by a flush that waiters share
	Unmap        bool // DiscardAt and MayUnmap give space back
}

// Flags modify a request.
type Flags uint32

const (
	// FUA: the request is durable when it returns.
	FUA Flags = 1 << iota
	// MayUnmap: zeroes may be made by giving space back.
	MayUnmap
	// NoFallback: zero quickly or not at all.
	NoFallback
	// Compressed: store the whole clusters of this write compressed.
	Compressed
	// Serialising: hold off every overlapping request while this one runs.
	Serialising
	// NoWait: with Serialising, give up with KindBusy instead of waiting.
	NoWait
)

// PreallocMode says how much of a new range is reserved on the host.
type PreallocMode uint8

const (
	PreallocOff      PreallocMode = iota
	PreallocMetadata              // format metadata only
	PreallocFalloc                // host space reserved, not written
	PreallocFull                  // host space written with zeros
)

func (m PreallocMode) String() string {
	return [...]string{"off", "metadata", "falloc", "full"}[m&3]
}

// ResizeOptions modify Resize.
type ResizeOptions struct {
	Prealloc PreallocMode
	// Exact: fail rather than round (block devices).
	Exact bool
	// Progress, if not nil, hears bytes done and the total of a long preallocation.
	Progress func(done, total int64)
}

// EventSink is implemented by drivers that act on the named steps of the layer above (fault injection). Event may
// block (suspend the request) and may return an error, which the caller treats as if its step had failed.
type EventSink interface {
	Event(ctx context.Context, e Event) error
}

// Chained is implemented by drivers that stand on other images.
type Chained interface {
	Backing() *Device  // nil if none
	DataFile() *Device // nil if the data lies in the image file itself
	File() *Device     // the device below
}

// FreshSpace is implemented by storage that can tell where it has never been written (qcow2-format §9.4a).
type FreshSpace interface {
	// GrowTo extends the storage to at least size bytes, reading as zeros, without writing data. The growth is
	// durable only after Flush. It returns the new length, which may be larger.
	GrowTo(ctx context.Context, size int64) (int64, error)
	// CutTo gives back space behind size that GrowTo added and nobody wrote; KindInvalid if somebody did.
	CutTo(ctx context.Context, size int64) error
	// FreshFrom is the offset from which on nothing was written since the storage was opened: everything from there to
	// the end reads as zeros. A write counts as soon as it was issued, whatever became of it. It starts as the length
	// at open and goes down only when the storage is cut.
	FreshFrom() int64
}

// Widener is implemented by drivers that must at times hold off the requests around the one they serve, in a range that
// only they know. The device calls these methods instead of WritevAt and ZeroAt and hands down its record of the
// request; see [Request.Serialise].
type Widener interface {
	WritevRequest(ctx context.Context, r *Request, iov [][]byte, off int64, flags Flags) error
	ZeroRequest(ctx context.Context, r *Request, off, n int64, flags Flags) error
}

// Preallocator reserves host space for a range without changing contents.
type Preallocator interface {
	Preallocate(ctx context.Context, off, n int64) error
}

// RangeCopier is implemented by storage that takes bytes from other storage without moving them through this process.
// KindUnsupported means: not between these two, or not this range, of which any part may have been copied all the same.
type RangeCopier interface {
	// CopyRange makes [off, off+n) the same as the n bytes at srcOff of src. With share both must lie in the same
	// place on the host afterwards (a reflink), which wants whole blocks of the file system.
	CopyRange(ctx context.Context, off int64, src Driver, srcOff, n int64, share bool) error
}

// StreamWriter is implemented by formats that store clusters compressed. Compressing and storing are apart, so that
// several goroutines can compress while one stores in order.
type StreamWriter interface {
	// NewCompressor makes a compressor for this layer, for one goroutine at a time.
	NewCompressor() (Compressor, error)
	// WriteStreams stores consecutive clusters from off on, one a stream, back to back in the order given.
	WriteStreams(ctx context.Context, off int64, streams [][]byte) error
}

// Compressor makes streams.
type Compressor interface {
	// Compress appends the stream of one whole cluster to dst. ok is false, and dst unchanged, if that saves nothing.
	Compress(dst, cluster []byte) (stream []byte, ok bool)
}

// Counter is implemented by layers that count what they do, for measurements: "syscalls" (system calls for data, zeroes
// and flushes), "flushes" (those that reached the host), "metadata-writes" (of a format). Each name is its own sum
// since the layer was opened; it is called at any time.
type Counter interface {
	Counters(add func(name string, n int64))
}

// Reopener changes how a driver is open without closing it.
type Reopener interface {
	Reopen(ctx context.Context, o ReopenOptions) error
}

// ReopenOptions is what a Reopener can change.
type ReopenOptions struct {
	ReadOnly bool
}

// AllocatedSizer is implemented by storage that knows how many bytes it takes on its medium (a sparse file takes fewer
// than its length).
type AllocatedSizer interface {
	AllocatedSize(ctx context.Context) (int64, error)
}
