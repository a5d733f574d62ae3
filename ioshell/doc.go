// Package ioshell is the exerciser behind `byre io` and `qemu-io`: a small command language that reads, writes, zeroes
// and discards pieces of an open image, synchronously or with any number of requests in flight, and stages
// interleavings through the breakpoints of a fault-injecting layer.
//
// Result lines equal the classic tool's, since test suites parse them. Requests are real concurrent requests on the
// block.Device: an aio command starts a goroutine, and prints when its request completes.
//
// What may enter: the language, its output, request bookkeeping. What may not: how images are opened (the caller hands
// in an opener) or what lies below the device.
package ioshell
