package image

import (
	"maps"
	"slices"

	"byre/block"
	"byre/format/raw"
)

// drivers opens each kind of layer: the options are those of the layer, the driver name and common ones taken.
var drivers map[string]func(o *opener, t Tree, r role) (*node, error)

func init() {
	drivers = map[string]func(o *opener, t Tree, r role) (*node, error){
		"blkdebug":    openFault,
		"file":        openFile,
		"host_cdrom":  openFile,
		"host_device": openFile,
		"null-aio":    openNull("null-aio"),
		"null-co":     openNull("null-co"),
		"qcow2":       openQCOW2,
		"raw":         openRaw,
	}
}

// storageDrivers stand for storage: a name given with them is their filename.
var storageDrivers = []string{"file", "host_device", "host_cdrom", "null-co", "null-aio", "blkdebug"}

func isStorageDriver(d any) bool {
	s, ok := d.(string)
	return ok && slices.Contains(storageDrivers, s)
}

// foreignFormats are known by name, and perhaps by probing, but not opened.
var foreignFormats = []string{"bochs", "cloop", "dmg", "luks", "parallels", "qcow", "qed", "vdi", "vhdx", "vmdk", "vpc",
	"vvfat", "quorum", "throttle", "compress", "copy-on-read", "preallocate", "blkverify", "blklogwrites", "replication",
	"copy-before-write", "snapshot-access", "nbd", "http", "https", "ftp", "ftps", "ssh", "iscsi", "rbd", "nfs",
	"gluster", "nvme"}

// unknownDriver is the error for a driver that cannot be opened; path is the image it was found in, if any.
func unknownDriver(name, path string) error {
	if slices.Contains(foreignFormats, name) {
		return &block.Error{Kind: block.KindUnsupported, Op: "open", Path: path, Offset: block.NoOffset,
			Msg: "format or driver '" + name + "' is known but not supported"}
	}
	return &block.Error{Kind: block.KindInvalid, Op: "open", Path: path, Offset: block.NoOffset, Msg: "unknown driver '" + name + "'"}
}

func openRaw(o *opener, t Tree, r role) (*node, error) {
	n := &node{driver: "raw", opts: Tree{}}
	_, n.probed = t[probedKey]
	for _, k := range []string{"offset", "size"} {
		if v, ok := t[k]; ok {
			n.opts[k] = v
		}
	}
	var opt raw.Options
	var err error
	if opt.Offset, err = t.takeSize("offset", 0); err != nil {
		return nil, err
	}
	_, opt.HasSize = t["size"]
	if opt.Size, err = t.takeSize("size", 0); err != nil {
		return nil, err
	}
	if n.probed {
		opt.Guess = func(first []byte) string {
			if f := Probe(first, ""); f != "raw" {
				return f
			}
			return ""
		}
	}
	r.shared = true // unless it is written, which needs other locks anyway
	if !r.storage {
		r.chain = nil // a raw layer names no other: no loop goes through it
	}
	file, err := o.openChild(t, "file", r)
	if err != nil {
		return nil, err
	}
	if err := t.rest("raw"); err != nil {
		file.dev.Close()
		return nil, err
	}
	d, err := raw.Open(file.dev, opt)
	if err != nil {
		file.dev.Close()
		return nil, err
	}
	n.dev = block.NewDevice(d)
	n.children = []child{{"file", file}}
	if len(n.opts) == 0 {
		n.exact = file.exact
	}
	if n.probed && r.writable {
		o.cfg.warn(Warning{Kind: WarnGuessedRaw, Path: n.name()})
	}
	return n, nil
}

// Drivers lists the formats and storage drivers that Open handles, in alphabetical order.
func Drivers() []string { return slices.Sorted(maps.Keys(drivers)) }
