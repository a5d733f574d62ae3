// Package layout is the pure codec of the qcow2 format: bytes to structs and
// back, and the arithmetic of the format. It does no I/O, holds no state and
// starts no goroutines; the engine, check, inspect, amend and the fuzzers all
// share it, so there is one place that knows what a bit means.
//
// What may enter: the shape of on-disk structures, their limits, and formulas
// over them. What may not: files, caches, policy (who may open what), ordering
// of writes.
//
// Everything decoded here is hostile until it was validated: lengths are
// checked before memory is taken, sums are checked for overflow, and no input
// makes a function panic. Functions whose documentation states a precondition
// on an argument that does not come from an image (a table index, say) may
// panic when the caller breaks it.
//
// All multi-byte numbers are big-endian, bit 0 is the least significant bit,
// and a sector is always 512 bytes (qcow2-format §0). Offsets into the image
// file and offsets into the virtual disk are different types, so that a mix-up
// does not compile.
package layout
