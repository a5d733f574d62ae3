package file

import (
	"context"

	"byre/block"

	"golang.org/x/sys/unix"
)

// AllocatedSize implements block.AllocatedSizer: the blocks that the file system has given to the file; 0 for a block
// device, which takes no space of its own.
func (f *File) AllocatedSize(ctx context.Context) (int64, error) {
	const op = "query size on disk"
	if err := f.started(ctx, op, block.NoOffset); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(int(f.fd.Load()), &st) }); err != nil {
		return 0, failure(op, f.path, block.NoOffset, err)
	}
	return st.Blocks * 512, nil
}

var _ block.AllocatedSizer = (*File)(nil)
