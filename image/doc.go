// Package image turns a name or a tree of options into an open stack of layers.
//
//	im, err := image.Open(ctx, "disk.qcow2")
//	im, err := image.Open(ctx, `json:{"driver":"qcow2","file":{"driver":"file","filename":"disk.qcow2"}}`)
//	im, err := image.Open(ctx, "driver=qcow2,file.driver=file,file.filename=disk.qcow2", image.WithOptionString())
//
// What a name can be: a path; a path behind "file:"; "json:" with an object; "blkdebug:CONFIG:IMAGE"; any other word
// with a colon in front of every slash names a protocol, and one that is not handled here is an error.
//
// Without a format the first bytes decide (probing). An image that was probed as raw is guarded: its first sector
// cannot be made to look like another format, which a later probing would believe.
//
// # References
//
// An image can name other files: a backing file, an external data file, whole option trees behind "json:". Nothing of
// this is opened unless the [Gate] allows it. The default gate denies, with an error that lists everything that was
// wanted, so a program that opens images of strangers reads no file but the one it named. [AllowReferences] follows
// references as the command line tools do. Names that the caller gives (backing.file.filename=…) are not implicit and
// need no gate.
//
// # Concurrency
//
// An [Image] is safe for any number of goroutines, except Close, which must come after all else.
//
// What may enter here: names, options, probing, chains, the gate, creation. What may not: the bytes of any format
// (qcow2, format/…), host files (storage/…), command lines and their output (cli).
package image
