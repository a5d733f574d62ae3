// Package check finds what is wrong with the metadata of a qcow2 image, and repairs it (qcow2-format §11).
//
// [Run] works on the device that holds the image file, with the codec alone (qcow2/layout); it does not open the image,
// so that it can look at images that cannot be opened, and so that the engine can call it while it opens one.
// Findings are streamed to the caller as they are met, in an order that does not depend on the number of workers.
//
// # How
//
// One pass over the metadata counts every reference to a host cluster: header, L1 tables, L2 tables, data, snapshot table,
// refcount structures, encryption area, bitmaps. A second pass compares with the stored refcounts, a third judges the
// COPIED flags. L2 tables and refcount blocks are read and decoded by all cores; what they say is applied in order.
//
// # Bounds
//
// The image is hostile. Whatever is referred to many times is read once and counted with a weight; tables that lie in
// one another are read as the union of their bytes; holes of the file are not read. So the work is linear in what the
// file holds. Counters live in pages that exist only where something refers to, and a page takes a few bytes, four kilobytes
// or (counts above 255) more, as its contents need. No claim of a header takes memory.
//
// # Repair
//
// Repairs keep the ordering rules of the format (§8.1), so that a power cut at any instant leaves an image that another
// repair finishes: counts are raised and durable before a new structure is referred to; a structure is complete and durable
// before the header names it, by one poke within one sector; references are gone and durable before counts fall; host
// space is given back last.
//
// What may enter: rules that decide whether metadata is sound. What may not: guest requests, the engine's caches, how
// findings are printed beyond their one line of text.
package check
