// Package qcow2 is the engine of the format: it turns an image file (a
// [block.Device]) into a virtual disk, which is itself a [block.Driver].
//
// Reading, in the order a request meets it:
//
//	read.go        ReadvAt: cut into pieces, merge, move data
//	lookup.go      guest offset → mapping, with pins on what it names
//	table.go       L1 and refcount table: 8-byte entries, held by pages
//	cache.go       L2 slices and refcount blocks: write-back caches of slices
//	budget.go      one memory limit for the metadata of a whole chain
//	compressed.go  streams: fetch, inflate, keep the last few clusters
//	extent.go      the answer to "what is here?"
//	snapshot.go    internal snapshots as read-only disks
//	info.go        what info and inspect show
//
// A lookup takes short locks on what is in memory, yields a mapping and pins
// the host clusters that the mapping names; data then moves, and is inflated,
// without any metadata lock.
//
// # Locks, outermost first
//
//   - the allocation lock of the writing half;
//   - slot.RWMutex of one cached slice: guards its bytes. Readers of the
//     metadata hold it shared while they decode entries and pin what these name.
//     Whoever holds it exclusively does memory edits only: no I/O, no other slot;
//   - the mutex of a cache shard, of a table, of the budget: leaves, held for
//     a few instructions (the budget's while it sweeps shards).
//
// What may enter: the format's semantics. What may not: bit layouts (package
// layout), the choice of which file to open (package image), request rules
// that all formats share (package block).
package qcow2
