package file

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The attribute calls of include/uapi/linux/fs.h.
const (
	fsNoCOW      = 0x00800000 // FS_NOCOW_FL
	xflagExtSize = 0x00000800 // FS_XFLAG_EXTSIZE

	// The direction bits of an ioctl number differ between architectures; these have the right ones.
	dirRead    = unix.FS_IOC_GETFLAGS &^ 0x1fffffff
	dirWrite   = unix.FS_IOC_SETFLAGS &^ 0x1fffffff
	fsGetXattr = dirRead | 28<<16 | 'X'<<8 | 31
	fsSetXattr = dirWrite | 28<<16 | 'X'<<8 | 32
)

type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// setExtentSizeHint asks for allocation in units of n bytes. Best effort: a hint that the file system does not know,
// or refuses because the file has space already, costs speed only.
func setExtentSizeHint(fd int, n int64) {
	if n <= 0 || n > 1<<30 {
		return
	}
	var a fsxattr
	if ioctl(fd, fsGetXattr, unsafe.Pointer(&a)) != nil {
		return
	}
	a.xflags |= xflagExtSize
	a.extsize = uint32(n)
	_ = ioctl(fd, fsSetXattr, unsafe.Pointer(&a))
}

// setNoCOW marks an empty file to be written in place. Best effort, as above.
func setNoCOW(fd int) {
	var fl int32
	if ioctl(fd, unix.FS_IOC_GETFLAGS, unsafe.Pointer(&fl)) != nil {
		return
	}
	fl |= fsNoCOW
	_ = ioctl(fd, unix.FS_IOC_SETFLAGS, unsafe.Pointer(&fl))
}
