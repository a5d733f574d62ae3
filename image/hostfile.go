package image

import (
	"os"

	"byre/block"
	"byre/storage/file"
)

// openFile opens a host file or block device.
func openFile(o *opener, t Tree, r role) (*node, error) {
	path, err := t.takeString("filename")
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, invalidf("driver file wants a filename")
	}
	n := &node{driver: "file", exact: path, opts: Tree{"filename": path}}
	opt := file.Options{ReadOnly: !r.writable, Cache: r.cacheMode(), NoLock: o.cfg.noLock, Locks: r.locks()}
	if err := fileOptions(o, t, &opt, n); err != nil {
		return nil, err
	}
	if err := t.rest("file"); err != nil {
		return nil, err
	}
	if err := r.checkLoop(path); err != nil {
		return nil, err
	}
	f, err := file.Open(o.ctx, path, opt)
	if err != nil {
		return nil, err
	}
	if f.BlockDevice() {
		n.driver = "host_device"
	}
	n.dev = block.NewDevice(f)
	n.stat, _ = os.Stat(path)
	return n, nil
}

// fileOptions takes what a host file can be told.
func fileOptions(o *opener, t Tree, opt *file.Options, n *node) error {
	aio, err := t.takeEnum("aio", o.cfg.aio, "threads", "native", "io_uring")
	if err != nil {
		return err
	}
	if aio != "" {
		if opt.Engine, err = file.ParseEngine(aio); err != nil {
			return invalidf("%w", err)
		}
	}
	if v, ok := t["locking"]; ok {
		n.opts["locking"] = v
	}
	locking, err := t.takeEnum("locking", "auto", "on", "off", "auto")
	if err != nil {
		return err
	}
	opt.NoLock = opt.NoLock || locking == "off"
	ahead, err := t.takeBool("grow-ahead", true)
	if err != nil {
		return err
	}
	opt.NoGrowAhead = !ahead
	// What is known elsewhere and makes no difference here.
	for _, k := range []string{"drop-cache", "x-check-cache-dropped"} {
		if _, err := t.takeBool(k, false); err != nil {
			return err
		}
	}
	_, err = t.takeSize("aio-max-batch", 0)
	return err
}

// cacheMode is the mode of a host file in the role. What makes every write durable is the policy of the top layer.
func (r role) cacheMode() file.CacheMode {
	switch {
	case r.direct:
		return file.CacheNone
	case r.noFlush:
		return file.CacheUnsafe
	}
	return file.CacheWriteback
}

// locks is what a host file is held by in the role (qcow2-format §13.1).
func (r role) locks() file.Locks {
	switch {
	case r.writable:
		return file.LocksReadWrite
	case r.shared || r.forceShare || r.probing:
		return file.LocksShared
	}
	return file.LocksReadOnly
}

// checkLoop refuses a file that stands above itself in the chain. It comes before the file is opened, because locks
// would refuse it for a less helpful reason.
func (r role) checkLoop(path string) error {
	if len(r.chain) == 0 {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil // opening it will tell
	}
	for _, a := range r.chain {
		if os.SameFile(a, info) {
			return errOpen(block.KindCorrupt, path, "the backing chain is a loop: this file stands above itself in it")
		}
	}
	return nil
}
