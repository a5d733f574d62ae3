package file

import (
	"errors"

	"byre/block"
	"byre/internal/ofdlock"

	"golang.org/x/sys/unix"
)

func kindOf(err error) block.Kind {
	var c *ofdlock.Conflict
	switch {
	case errors.As(err, &c):
		return block.KindLocked
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return block.KindNoSpace
	case errors.Is(err, unix.EFBIG), errors.Is(err, unix.EOVERFLOW):
		return block.KindOutOfBounds
	case errors.Is(err, unix.EOPNOTSUPP):
		return block.KindUnsupported
	}
	return block.KindIO
}
