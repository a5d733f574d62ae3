package file

import "byre/block"

// CreateOptions say what a new file is to be like.
type CreateOptions struct {
	Size     int64              // length in bytes
	Prealloc block.PreallocMode // off, falloc or full
	NoCOW    bool               // ask a copy-on-write file system to write this file in place
	// Exclusive fails if there is a file of that name already; otherwise it is emptied. Block devices are never
	// emptied, and Size must fit on them.
	Exclusive bool
	// Progress, if not nil, hears bytes done and the total of a long preallocation.
	Progress func(done, total int64)
}
