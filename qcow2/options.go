package qcow2

import "byre/block"

// Options modify Open. The zero value opens an image for reading and, if the
// file below is writable, for writing.
type Options struct {
	// ReadOnly opens without the right to change anything, even if the file
	// below could be written. A file that is read-only itself implies it.
	ReadOnly bool

	// CheckMode opens for check and repair: a missing refcount table and a
	// broken snapshot table are tolerated.
	CheckMode bool

	// Backing and DataFile are the devices that unallocated clusters and, with
	// the external data file feature, all data come from. The image owns them
	// from then on. They may also be given by SetBacking and SetDataFile, after
	// the header told their names.
	Backing  *block.Device
	DataFile *block.Device

	// Budget is the memory for cached metadata, shared by the images of a
	// chain; nil stands for one of its own, of CacheSize bytes.
	Budget *Budget
	// CacheSize is the limit of the budget that is made if Budget is nil; 0
	// stands for DefaultCacheSize.
	CacheSize int64
	// L2SliceSize is the unit in which L2 tables are cached, loaded and
	// written: a power of two from 512 to the cluster size; 0 chooses.
	L2SliceSize int64

	// Write are the choices of an image that is open for writing.
	Write WriteOptions
}
