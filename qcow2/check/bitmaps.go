package check

import (
	"byre/block"
	"byre/qcow2/layout"
)

// countBitmaps counts directory, tables and data of the persistent bitmaps, if their description is valid (§5.3). A
// directory that cannot be understood ends the check: what it owns would look like leaks.
func (c *checker) countBitmaps() error {
	x := c.hdr.Bitmaps
	if x == nil || c.hdr.Version < 3 || !c.hdr.HasAutoclear(layout.AutoclearBitmaps) {
		return nil
	}
	off := int64(x.DirectoryOffset)
	c.addStructure("bitmap directory", off, x.DirectorySize)
	if off > c.fileSize || x.DirectorySize > c.fileSize-off {
		return c.badBitmaps(off, "the bitmap directory is cut off by the end of the file")
	}
	buf := make([]byte, x.DirectorySize)
	if err := c.read(buf, off); err != nil {
		return c.failed(ReadError, "read bitmap directory", off, err)
	}
	dir, err := layout.DecodeBitmapDirectory(buf, x.DirectoryOffset, int(x.Count))
	if err != nil {
		return c.badBitmaps(off, err.Error())
	}
	var words []interval
	for i := range dir {
		e := &dir[i]
		if err := e.Validate(c.g, c.hdr.VirtualSize(), x.DirectoryOffset); err != nil {
			return c.badBitmaps(off, err.Error())
		}
		at, n := int64(e.TableOffset), int64(e.TableSize)*8
		c.addStructure("bitmap table", at, n)
		if at < c.fileSize {
			words = append(words, interval{at / 8, at/8 + int64(e.TableSize), 1})
		}
	}
	err = c.words(sweep(words), func(index, weight int64, w uint64) {
		e := layout.BitmapTableEntry(w)
		if !e.Valid(c.g) {
			c.report(&Finding{Class: Corruption, Kind: Bitmaps, Entry: w, Text: "ERROR invalid entry in the table of a bitmap"})
			return
		}
		if e.Offset() == 0 {
			return
		}
		if first, k, ok := c.region(int64(e.Offset()), c.g.ClusterSize()); ok {
			c.add(first, k, weight)
		}
	})
	if err != nil {
		return c.failed(ReadError, "read bitmap table", -1, err)
	}
	return nil
}

// badBitmaps ends the check because of a directory that cannot be understood.
func (c *checker) badBitmaps(off int64, why string) error {
	c.report(&Finding{Class: Corruption, Kind: Bitmaps, Offset: off, Text: "ERROR " + why})
	return block.Errorf(block.KindCorrupt, "check bitmaps", c.dev.Path(), off, "%s", why)
}
