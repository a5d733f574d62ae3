package job

import (
	"os"

	"byre/block"
)

// Reads finds out whether the host file (or block device) at path, by whatever name, is part of the stack below dev: as
// the image itself, a backing file or a data file. It returns the name under which it is. A path where there is
// nothing is not.
func Reads(dev *block.Device, path string) (name string, found bool) {
	info, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	return findFile(dev, info)
}

func findFile(dev *block.Device, info os.FileInfo) (string, bool) {
	if dev == nil {
		return "", false
	}
	if c, ok := dev.Driver().(block.Chained); ok {
		for _, below := range []*block.Device{c.File(), c.DataFile(), c.Backing()} {
			if name, found := findFile(below, info); found {
				return name, true
			}
		}
		return "", false
	}
	own, err := os.Stat(dev.Path())
	if err != nil {
		return "", false
	}
	return dev.Path(), os.SameFile(own, info) || sameDevice(own, info)
}
