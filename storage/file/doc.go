// Package file is where bytes live on the host: regular files and block devices as a [block.Driver].
//
// [Open] and [Create] give a [File]. What it promises beyond the contract of package block:
//
// # Engines
//
// Requests block their goroutine; how they reach the kernel is the engine's matter ([Engine]). With EngineThreads each
// is one preadv or pwritev. With EngineNative (Linux AIO, direct I/O only) and EngineIOUring goroutines that run at
// the same time share a queue, and the one that has to wait enters the kernel for everybody; a request that is alone
// is still one plain system call. EngineAuto picks the quickest that the kernel offers. No engine allocates per
// request in steady state.
//
// # Cache modes
//
// [CacheMode] has the meaning that users of QEMU know:
//
//	             O_DIRECT   each write durable   Flush does
//	writeback    no         no                   fdatasync
//	none         yes        no                   fdatasync
//	writethrough no         yes                  fdatasync
//	directsync   yes        yes                  fdatasync
//	unsafe       no         no                   nothing
//
// The write-through modes make every write of this layer durable. A format that keeps metadata in memory must ask for
// durability of its own writes on top (block.FUA at its device); it opens its file with [CacheMode.Below].
//
// # Direct I/O
//
// Offsets and lengths must be multiples of Geometry.RequestAlign, which is found from statx, sysfs or the device.
// Memory need not be: what is not aligned goes through a pooled bounce buffer. A file whose length is no multiple of
// the alignment reads zeros behind its end; writing its last block extends it to the multiple. A file system that
// refuses O_DIRECT is an error of KindUnsupported at open, never a silent change of mode.
//
// # Durability
//
// Flush is fdatasync, shared by all that wait at the same time. A failed fdatasync of a buffered file makes every
// later one fail: the kernel has dropped the data, so it can no longer be made durable. FUA is RWF_DSYNC for a request
// that is alone and a shared flush for several. Resize and GrowTo are durable after the next Flush.
//
// # Fresh space
//
// GrowTo, CutTo and FreshFrom (block.FreshSpace) serve a format that lets its file grow (qcow2-format §9.4a):
//
//   - GrowTo(size) makes the file at least size long, in one large step ahead of what is asked (more for larger files,
//     less when the file system is short of space), reserving host space where it can. It returns the new length. The
//     growth is not durable until Flush has returned: flush once per step before anything points into the new area.
//   - FreshFrom() is the offset from which on nothing has been written since Open, whatever became of the writes: a
//     request counts from the moment it was issued. Everything from there to Size() reads as zeros. It starts as the
//     length of the file at Open and never goes down, except through CutTo and shrinking.
//   - CutTo(size) gives the surplus back; it refuses to cut what was written. Nothing is cut behind the caller's back,
//     also not by Close: only the format knows what it points to. A process that is killed leaves a longer file, which
//     is harmless: the next opener's FreshFrom starts at that length.
//   - Block devices cannot grow: GrowTo and CutTo return KindUnsupported and FreshFrom is their size.
//
// # Locks
//
// On Linux the file is held by the byte locks of qcow2-format §13.1, so that byre and a running QEMU keep out of each
// other's way ([Locks]). A conflict is an error of KindLocked that names the holder's process if it can be found.
package file
