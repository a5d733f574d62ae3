package file

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// caps is what the file is believed to be able to do. It starts hopeful; what the kernel refuses for good is learnt
// at the first refusal and not tried again.
type caps struct {
	zeroRange atomic.Bool // fallocate(ZERO_RANGE)
	punchHole atomic.Bool // fallocate(PUNCH_HOLE)
	fallocate atomic.Bool // plain fallocate
	ioctlZero atomic.Bool // BLKZEROOUT
	ioctlTrim atomic.Bool // BLKDISCARD
	seekHole  atomic.Bool // SEEK_DATA and SEEK_HOLE
	dsync     atomic.Bool // RWF_DSYNC
}

func (c *caps) reset(dev bool) {
	c.zeroRange.Store(!dev)
	c.punchHole.Store(true)
	c.fallocate.Store(!dev)
	c.ioctlZero.Store(dev)
	c.ioctlTrim.Store(dev)
	c.seekHole.Store(!dev)
	c.dsync.Store(true)
}

// unable tells whether err means that the file cannot do this at all.
func unable(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTTY)
}

// unfit tells whether err means that this one request cannot be done this way, though others may.
func unfit(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.ENODEV)
}

// attempt runs call if can says it may work. It returns done=false if the caller must find another way.
func attempt(can *atomic.Bool, call func() error) (done bool, err error) {
	if !can.Load() {
		return false, nil
	}
	err = call()
	switch {
	case err == nil:
		return true, nil
	case unable(err):
		can.Store(false)
		return false, nil
	case unfit(err):
		return false, nil
	}
	return true, err
}
