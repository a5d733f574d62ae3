package image

import (
	"context"
	"os"
	"strconv"
	"time"

	"byre/block"
	"byre/qcow2"
	"byre/qcow2/layout"
)

// Info is what listings show of a layer, in the terms of the real tools.
type Info struct {
	Filename    string
	Format      string
	VirtualSize int64 // bytes; of storage its length in whole sectors
	ActualSize  int64 // host space in bytes, -1 if it cannot be told
	ClusterSize int64 // bytes, 0 if there are no clusters
	Encrypted   bool
	// Dirty: not shut down cleanly. HasDirty is false where the question makes no sense.
	Dirty, HasDirty bool

	BackingFilename     string // as stored, "" if none
	FullBackingFilename string // relative to the folder of the image, "" if that cannot be told
	BackingFormat       string // as stored

	Snapshots []Snapshot
	// SpecificType and Specific are what only this format has. SpecificType is "" if there is no such thing, Specific may
	// be empty all the same.
	SpecificType string
	Specific     Fields
	Children     []ChildInfo
}

// ChildInfo is a layer below under its role: "file".
type ChildInfo struct {
	Name string
	Info *Info
}

// Fields are named values in the order of listings. Values are string, bool, int64, Fields or []any of these.
type Fields []Field

// Field is one of Fields.
type Field struct {
	Name  string // words joined by hyphens
	Value any
}

// Snapshot is an internal snapshot.
type Snapshot struct {
	ID, Name    string
	Date        time.Time
	VMClock     uint64 // nanoseconds that the guest had run
	VMStateSize uint64 // bytes
	DiskSize    int64  // virtual size when it was taken, bytes
	ICount      int64  // instructions executed; -1 if not recorded
}

// Snapshots lists the internal snapshots in the order in which the image holds them.
func (im *Image) Snapshots() []Snapshot {
	q := im.QCOW2()
	if q == nil {
		return nil
	}
	return snapshotsOf(q.Snapshots(), q.Size())
}

func snapshotsOf(table []layout.Snapshot, diskSize int64) (out []Snapshot) {
	for i := range table {
		s := &table[i]
		n := Snapshot{ID: s.ID, Name: s.Name, Date: time.Unix(int64(s.DateSec), int64(s.DateNsec)), VMClock: s.VMClockNsec,
			VMStateSize: s.VMStateSize, DiskSize: diskSize, ICount: int64(s.ICount)}
		if s.HasDiskSize() {
			n.DiskSize = int64(s.DiskSize)
		}
		out = append(out, n)
	}
	return out
}

// Info describes the image and the storage below it, but not its backing chain.
func (im *Image) Info(ctx context.Context) (*Info, error) { return im.top.info(ctx) }

func (n *node) info(ctx context.Context) (*Info, error) {
	i := &Info{Filename: n.name(), Format: n.driver, VirtualSize: sectors(n.dev.Size()), ActualSize: n.allocated(ctx)}
	switch d := n.dev.Driver().(type) {
	case *qcow2.Image:
		if err := i.fillQCOW2(ctx, n, d); err != nil {
			return nil, err
		}
	default:
		i.fillStorage(n)
	}
	for _, c := range n.children {
		if c.name == "data-file" {
			continue
		}
		below, err := c.info(ctx)
		if err != nil {
			return nil, err
		}
		i.Children = append(i.Children, ChildInfo{Name: c.name, Info: below})
	}
	return i, nil
}

func sectors(n int64) int64 {
	if n > 1<<63-512 {
		return n &^ 511
	}
	return (n + 511) &^ 511
}

// allocated sums the host space of a layer and its children; -1 if one of them cannot tell.
func (n *node) allocated(ctx context.Context) int64 {
	if a, ok := n.dev.Driver().(interface {
		AllocatedSize(context.Context) (int64, error)
	}); ok && len(n.children) == 0 {
		size, err := a.AllocatedSize(ctx)
		if err != nil {
			return -1
		}
		return size
	}
	if len(n.children) == 0 || n.driver == "blkdebug" {
		return -1
	}
	var sum int64
	for _, c := range n.children {
		size := c.allocated(ctx)
		if size < 0 {
			return -1
		}
		sum += size
	}
	return sum
}

// fillStorage fills in what host files and raw images have.
func (i *Info) fillStorage(n *node) {
	s := n.storage()
	i.HasDirty = s != nil && n.child("image") == nil
	if s != n || n.driver != "file" {
		return
	}
	i.SpecificType = "file"
	if h, ok := n.dev.Driver().(interface{ ExtentSizeHint() int64 }); ok && h.ExtentSizeHint() > 0 {
		i.Specific = Fields{{"extent-size-hint", h.ExtentSizeHint()}}
	}
}

func (i *Info) fillQCOW2(ctx context.Context, n *node, d *qcow2.Image) error {
	q, err := d.Info(ctx)
	if err != nil {
		return err
	}
	i.ClusterSize = q.ClusterSize
	i.Dirty, i.HasDirty = q.Dirty, true
	i.Encrypted = q.Encryption != nil
	i.BackingFilename, i.BackingFormat = q.BackingFile, q.BackingFormat
	if q.BackingFile != "" {
		if s := n.file().storage(); s != nil {
			i.FullBackingFilename = combine(s.exact, q.BackingFile)
		} else if isAbsolute(q.BackingFile) {
			i.FullBackingFilename = q.BackingFile
		}
	}
	i.Snapshots = snapshotsOf(q.Snapshots, q.VirtualSize)
	i.SpecificType, i.Specific = "qcow2", qcow2Fields(q)
	return nil
}

// qcow2Fields lists what only qcow2 has, in the order of listings (qcow2-format Appendix A).
func qcow2Fields(q *qcow2.Info) (f Fields) {
	v3 := q.Version >= 3
	add := func(when bool, name string, value any) {
		if when {
			f = append(f, Field{name, value})
		}
	}
	add(true, "compat", q.Compat)
	add(true, "compression-type", q.CompressionType)
	add(v3, "lazy-refcounts", q.LazyRefcounts)
	add(len(q.Bitmaps) > 0, "bitmaps", bitmapFields(q.Bitmaps))
	add(true, "refcount-bits", int64(q.RefcountBits))
	add(q.HasDataFile && q.DataFile != "", "data-file", q.DataFile)
	add(q.Encryption != nil, "encrypt", encryptionFields(q.Encryption))
	add(q.HasDataFile, "data-file-raw", q.DataFileRaw)
	add(v3, "corrupt", q.Corrupt)
	add(v3, "extended-l2", q.ExtendedL2)
	return f
}

func bitmapFields(bitmaps []layout.BitmapDirEntry) []any {
	var out []any
	for i := range bitmaps {
		b := &bitmaps[i]
		flags := []any{}
		if b.InUse() {
			flags = append(flags, "in-use")
		}
		if b.Auto() {
			flags = append(flags, "auto")
		}
		out = append(out, Fields{{"flags", flags}, {"name", b.Name}, {"granularity", b.Granularity()}})
	}
	return out
}

func encryptionFields(e *qcow2.EncryptionInfo) Fields {
	if e == nil {
		return nil
	}
	if e.LUKS == nil {
		return Fields{{"format", "aes"}}
	}
	return LUKSFields(e.LUKS)
}

// LUKSFields lists what a LUKS header says, in the order of listings.
func LUKSFields(l *layout.LUKS) Fields {
	slots := []any{}
	for _, s := range l.Slots {
		slot := Fields{{"active", s.Active}}
		if s.Active {
			slot = append(slot, Field{"iters", int64(s.Iterations)})
		}
		slot = append(slot, Field{"key-offset", int64(s.KeyOffset) * layout.SectorSize})
		if s.Active {
			slot = append(slot, Field{"stripes", int64(s.Stripes)})
		}
		slots = append(slots, slot)
	}
	f := Fields{{"ivgen-alg", l.IVGen()}, {"detached-header", false}, {"hash-alg", l.HashSpec},
		{"cipher-alg", cipherAlg(l)}, {"uuid", l.UUID}}
	if h := l.IVGenHash(); h != "" && l.IVGen() == "essiv" {
		f = append(f, Field{"ivgen-hash-alg", h})
	}
	return append(f, Fields{{"format", "luks"}, {"cipher-mode", l.Mode()}, {"slots", slots},
		{"payload-offset", int64(l.PayloadOffset) * layout.SectorSize}, {"master-key-iters", int64(l.DigestIterations)}}...)
}

// cipherAlg is the cipher with its key size: XTS uses two keys.
func cipherAlg(l *layout.LUKS) string {
	bits := int(l.KeyBytes) * 8
	if l.Mode() == "xts" {
		bits /= 2
	}
	if l.CipherName == "cast5" {
		return "cast5-128"
	}
	return l.CipherName + "-" + strconv.Itoa(bits)
}

// InfoChain describes an image and then every image of its backing chain, each opened alone and for its metadata only.
// The gate of the options is asked about every backing file.
func InfoChain(ctx context.Context, name string, opts ...Option) ([]*Info, error) {
	cfg := newConfig(opts)
	var list []*Info
	var seen []os.FileInfo
	for {
		im, err := Open(ctx, name, append(opts[:len(opts):len(opts)], MetadataOnly())...)
		if err != nil {
			return list, err
		}
		i, err := im.Info(ctx)
		s := im.top.storage()
		im.Close()
		if err != nil {
			return list, err
		}
		if s != nil && s.stat != nil {
			for _, f := range seen {
				if os.SameFile(f, s.stat) && i.Format != "raw" {
					return list, errOpen(block.KindCorrupt, name, "the backing chain is a loop: this file stands above itself in it")
				}
			}
			seen = append(seen, s.stat)
		}
		list = append(list, i)
		if i.BackingFilename == "" {
			return list, nil
		}
		if i.FullBackingFilename == "" {
			return list, errOpen(block.KindInvalid, i.Filename, "backing file %q is relative to an image that is in no folder", i.BackingFilename)
		}
		if err := askGate(ctx, cfg.gate, i.Filename, []Reference{{Kind: RefBacking, From: i.Filename, Name: i.BackingFilename,
			Resolved: i.FullBackingFilename, Format: i.BackingFormat}}); err != nil {
			return list, err
		}
		name = i.FullBackingFilename
		opts = append(opts[:len(opts):len(opts)], asBacking(i.BackingFormat))
	}
}

// asBacking is the way an image further down the chain is looked at: by its plain name and the format that the image
// above recorded.
func asBacking(format string) Option {
	return func(c *config) {
		c.format, c.optionString, c.overrides = format, false, nil
		c.snapshot, c.hasSnapshot = "", false
	}
}
