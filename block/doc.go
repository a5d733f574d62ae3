// Package block is the contract that every layer of byre speaks, and the request rules that all layers share.
//
// A [Driver] implements little: vectored reads and writes, zero, discard, flush, extents, resize. Rare abilities are
// small optional interfaces, found by type assertion:
//
//	Driver                    every layer
//	├─ EventSink              wants to hear the named steps of the format above it (storage/fault)
//	├─ Chained                has a backing device and perhaps a data file (qcow2)
//	├─ Syncer                 can flush for several waiters at once, or names a cheaper flush (storage/file)
//	├─ FreshSpace             knows from where on the file has never been written (storage/file, storage/mem)
//	├─ Widener                holds off other requests around its own, in ranges of its own choice
//	├─ AllocatedSizer         knows what it takes on its medium (storage/file)
//	├─ Preallocator           can reserve host space for a range (storage/file)
//	├─ RangeCopier            can take bytes from other storage by itself (storage/file, format/raw)
//	├─ StreamWriter           stores clusters that were compressed outside (qcow2)
//	├─ Counter                counts what it does, for measurements (storage/file, qcow2)
//	└─ Reopener               can change between read-only and read-write, or its cache mode
//
// A [Device] wraps a driver and gives everybody above the same guarantees: bounds and overflow checks, enforcement of
// read-only, padding of unaligned requests, tracking and serialising of requests, flush generations. Layers hold
// devices of the layers below them, never bare drivers.
//
// What may enter: what every layer needs. What may not: anything that knows a format, a host file or a command line.
package block
