package file

import (
	"fmt"
	"unsafe"

	"byre/internal/iobuf"

	"golang.org/x/sys/unix"
)

// directLimits finds what direct I/O on fd demands: from statx, else from the block device (the file itself, or the
// one below the file system), else by trying.
func directLimits(fd int, st *unix.Stat_t) (limits, error) {
	var sx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &sx)
	if err == nil && sx.Mask&unix.STATX_DIOALIGN != 0 && sane(sx.Dio_offset_align) && sane(sx.Dio_mem_align) {
		return limits{request: int64(sx.Dio_offset_align), memory: int(sx.Dio_mem_align)}, nil
	}
	if n := logicalBlock(fd, st); n > 0 {
		l := limits{request: int64(n), memory: n}
		if tryRead(fd, l) == nil {
			return l, nil
		}
	}
	for n := 512; n <= iobuf.Align; n *= 2 {
		l := limits{request: int64(n), memory: n}
		if tryRead(fd, l) == nil {
			// What is demanded of memory is not known any better.
			return limits{request: int64(n), memory: iobuf.Align}, nil
		}
	}
	return limits{}, fmt.Errorf("direct reads are refused with every alignment up to %d", iobuf.Align)
}

func sane(n uint32) bool { return n > 0 && n&(n-1) == 0 && n <= iobuf.Align }

// logicalBlock is the logical block size of the device fd is, or lies on; 0 if unknown.
func logicalBlock(fd int, st *unix.Stat_t) int {
	var n int32
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		if ioctl(fd, unix.BLKSSZGET, unsafe.Pointer(&n)) == nil && sane(uint32(n)) {
			return int(n)
		}
		return int(sysfsInt(queueDir(st.Rdev) + "logical_block_size"))
	}
	if n := sysfsInt(queueDir(st.Dev) + "logical_block_size"); n > 0 && sane(uint32(n)) {
		return int(n)
	}
	return 0
}

// tryRead reads the first block with the alignment l. An empty file accepts every alignment at its end, which is
// harmless: then the file system will say so when the time comes.
func tryRead(fd int, l limits) error {
	b := iobuf.Get(2 * iobuf.Align)
	defer iobuf.Put(b)
	p := b[l.memory%iobuf.Align:][:l.request]
	return again(func() error {
		_, err := unix.Pread(fd, p, 0)
		return err
	})
}
