//go:build !linux

package file

import (
	"errors"
	"syscall"

	"byre/block"
)

func kindOf(err error) block.Kind {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return block.KindNoSpace
	case errors.Is(err, syscall.EFBIG):
		return block.KindOutOfBounds
	}
	return block.KindIO
}
