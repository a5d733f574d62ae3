package conformance_test

import (
	"testing"

	"byre/block"
	"byre/storage/conformance"
	"byre/storage/mem"
)

func TestMemoryConforms(t *testing.T) {
	files := map[string]*mem.File{}
	conformance.Run(t, conformance.Maker{
		New: func(t *testing.T, size int64) block.Driver {
			d := mem.New(size)
			files[d.Geometry().Path] = d.File()
			return d
		},
		Reopen: func(t *testing.T, path string) block.Driver { return files[path].Open(mem.Options{}) },
	})
}
