package image

import (
	"context"
	"os"
	"strings"

	"byre/block"
	"byre/qcow2"
	"byre/storage/file"
)

// Open opens the image that name stands for (package comment). Errors: KindRefused when the image refers to files that
// the gate does not allow, KindLocked, KindUnsupported (a format, feature or protocol that is not handled, by name),
// KindCorrupt, KindInvalid (options), KindIO with the system's error as the cause.
func Open(ctx context.Context, name string, opts ...Option) (*Image, error) {
	o := &opener{ctx: ctx, cfg: newConfig(opts)}
	name, t, err := o.options(name)
	if err != nil {
		return nil, err
	}
	top, err := o.openLayer(name, t, o.topRole())
	if err != nil {
		return nil, err
	}
	im := &Image{top: top, cfg: o.cfg}
	if err := im.settle(); err != nil {
		im.Close()
		return nil, err
	}
	return im, nil
}

// options merges what Open was given into one tree. The name that is returned is yet to be understood; it is empty for
// an option string.
func (o *opener) options(given string) (name string, t Tree, err error) {
	name, t = given, Tree{}
	if o.cfg.optionString {
		if t, err = ParseOptionString(given); err != nil {
			return "", nil, err
		}
		name = ""
	}
	for k, v := range o.cfg.overrides {
		t[k] = v
	}
	if f := o.cfg.format; f != "" {
		if d, ok := t["driver"]; ok && d != f {
			return "", nil, invalidf("the format is given twice, as %q and as driver %v", f, d)
		}
		t["driver"] = f
	}
	return name, t, nil
}

// OpenStorage opens what lies below the top format of the image that name stands for, so that its bytes can be looked
// at whatever they are: it takes the same names and options as Open, but no format is probed and none opened. The
// storage is held as a reader of the format would hold it.
func OpenStorage(ctx context.Context, name string, opts ...Option) (*Image, error) {
	o := &opener{ctx: ctx, cfg: newConfig(opts)}
	name, t, err := o.options(name)
	if err != nil {
		return nil, err
	}
	if t, err = mergeName(name, t); err != nil {
		return nil, err
	}
	r := o.topRole()
	r.storage = true
	if sub := t.take("file"); len(sub) > 0 && !isStorageDriver(t["driver"]) {
		t = sub
	}
	top, err := o.openTree(t, r)
	if err != nil {
		return nil, err
	}
	return &Image{top: top, cfg: o.cfg}, nil
}

// settle checks that the stack is what was asked for and puts the snapshot in front.
func (im *Image) settle() error {
	if im.cfg.hasSnapshot {
		if err := im.showSnapshot(im.cfg.snapshot); err != nil {
			return err
		}
	}
	if im.cfg.writable && im.top.dev.Geometry().ReadOnly {
		return errOpen(block.KindInvalid, im.top.name(), "the image is read-only, and was to be opened for writing")
	}
	return nil
}

// opener is one run of Open.
type opener struct {
	ctx    context.Context
	cfg    *config
	shared *qcow2.Budget // memory for metadata of all layers
}

// role is what a layer is opened for; children inherit it with changes.
type role struct {
	writable     bool
	direct       bool
	noFlush      bool
	writethrough bool // every write is durable when it returns
	forceShare   bool
	noDiscard    bool   // discards do nothing
	detectZeroes string // "off", "on", "unmap"; of this layer only
	storage      bool   // a layer below a format: its driver is not probed
	probing      bool   // opened for a look at its first bytes; its locks come later
	shared       bool   // others may write (raw images read-only)
	// chain holds the files of the layers above in the backing chain, whose format may name backing files again.
	chain []os.FileInfo
}

func (o *opener) topRole() role {
	return role{
		writable:     o.cfg.writable,
		direct:       o.cfg.cache.Direct(),
		writethrough: o.cfg.cache.Writethrough(),
		noFlush:      o.cfg.cache.NoFlush(),
		forceShare:   o.cfg.forceShare,
		detectZeroes: "off",
	}
}

// openLayer opens a whole layer, a format over its storage, by a name (which may be empty) and options. Options win
// over what a "json:" name says.
func (o *opener) openLayer(name string, t Tree, r role) (*node, error) {
	t, err := mergeName(name, t)
	if err != nil {
		return nil, err
	}
	return o.openTree(t, r)
}

// mergeName adds to the options of a layer what its name says.
func mergeName(name string, t Tree) (Tree, error) {
	if name == "" {
		return t, nil
	}
	named, err := nameTree(name, true)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(name, "json:") && !isStorageDriver(t["driver"]) {
		named = named.under("file")
	}
	for k, v := range named {
		if _, given := t[k]; !given {
			t[k] = v
		}
	}
	return t, t.checkShape()
}

// under puts the whole tree below a key.
func (t Tree) under(key string) Tree {
	out := Tree{}
	for k, v := range t {
		out[key+"."+k] = v
	}
	return out
}

// copyOf gives a tree that can be taken apart.
func (t Tree) copyOf() Tree {
	out := Tree{}
	for k, v := range t {
		out[k] = v
	}
	return out
}

// openTree opens a layer by options alone.
func (o *opener) openTree(t Tree, r role) (*node, error) {
	if err := o.ctx.Err(); err != nil {
		return nil, err
	}
	driver, err := t.takeString("driver")
	if err != nil {
		return nil, err
	}
	if driver == "" {
		if driver, t, err = o.chooseDriver(t, r); err != nil {
			return nil, err
		}
		if driver == "" { // the name brought a whole tree of its own
			return o.openTree(t, r)
		}
	}
	open, ok := drivers[driver]
	if !ok {
		return nil, unknownDriver(driver, "")
	}
	if err := takeCommon(t, &r); err != nil {
		return nil, err
	}
	if r.writable && r.forceShare {
		return nil, invalidf("force-share is for images that are opened read-only")
	}
	n, err := open(o, t, r)
	if below, ok := t[probedKey].(*node); ok && err != nil {
		below.dev.Close()
	}
	if err == nil {
		n.dev.SetPolicy(r.policy())
	}
	return n, err
}

// policy is what a layer does to the requests of those above it.
func (r role) policy() block.Policy {
	p := block.Policy{WriteThrough: r.writethrough, IgnoreDiscard: r.noDiscard}
	switch r.detectZeroes {
	case "on":
		p.DetectZeroes = block.DetectOn
	case "unmap":
		p.DetectZeroes = block.DetectUnmap
	}
	return p
}

// chooseDriver decides for options without a driver: storage goes by its name, a layer by its first bytes.
func (o *opener) chooseDriver(t Tree, r role) (string, Tree, error) {
	if filename, ok := t["filename"]; ok {
		name, ok := filename.(string)
		if !ok {
			return "", nil, invalidf("option \"filename\" wants a string, not %v", filename)
		}
		delete(t, "filename")
		named, err := nameTree(name, true)
		if err != nil {
			return "", nil, err
		}
		if !r.storage && named["file.driver"] == nil && isStorageDriver(named["driver"]) {
			named = named.under("file")
		}
		for k, v := range t {
			named[k] = v
		}
		if !r.storage && named["driver"] == nil {
			return o.chooseDriver(named, r)
		}
		driver, err := named.takeString("driver")
		return driver, named, err
	}
	if r.storage {
		return "", nil, invalidf("storage needs a driver or a filename")
	}
	below, err := o.openProbed(t, r)
	if err != nil {
		return "", nil, err
	}
	front := make([]byte, min(ProbeSize, below.dev.Size()))
	if err := below.dev.Read(o.ctx, front, 0); err != nil {
		below.dev.Close()
		return "", nil, err
	}
	format := Probe(front, below.name())
	if _, ok := drivers[format]; !ok {
		below.dev.Close()
		return "", nil, unknownDriver(format, below.name())
	}
	t[probedKey] = below
	return format, t, nil
}

// probedKey holds, between chooseDriver and openChild, the storage whose first bytes decided. No caller can spell it.
const probedKey = "\x00probed"

// openProbed opens the storage of a layer whose format is not known yet. It has no locks but the harmless one, unless
// it is to be written.
func (o *opener) openProbed(t Tree, r role) (*node, error) {
	if err := takeCommon(t.copyOf(), &r); err != nil { // the layer's own settings are inherited by the storage
		return nil, err
	}
	r.probing = true
	return o.openChild(t, "file", r)
}

// takeCommon takes the options that every layer has.
func takeCommon(t Tree, r *role) error {
	if _, err := t.takeString("node-name"); err != nil {
		return err
	}
	readOnly, err := t.takeBool("read-only", !r.writable)
	if err != nil {
		return err
	}
	if _, err := t.takeBool("auto-read-only", false); err != nil {
		return err
	}
	r.writable = r.writable && !readOnly
	if r.direct, err = t.takeBool("cache.direct", r.direct); err != nil {
		return err
	}
	if r.noFlush, err = t.takeBool("cache.no-flush", r.noFlush); err != nil {
		return err
	}
	if r.forceShare, err = t.takeBool("force-share", r.forceShare); err != nil {
		return err
	}
	discard, err := t.takeEnum("discard", "", "ignore", "off", "unmap", "on")
	if err != nil {
		return err
	}
	if discard != "" {
		r.noDiscard = discard == "ignore" || discard == "off"
	}
	if r.detectZeroes, err = t.takeEnum("detect-zeroes", r.detectZeroes, "off", "on", "unmap"); err != nil {
		return err
	}
	if cor, err := t.takeBool("copy-on-read", false); err != nil || cor {
		if err == nil {
			err = errOpen(block.KindUnsupported, "", "copy-on-read is not supported")
		}
		return err
	}
	return nil
}

// openChild opens the layer below a format or filter.
func (o *opener) openChild(t Tree, key string, r role) (*node, error) {
	if n, ok := t[probedKey].(*node); ok && key == "file" {
		delete(t, probedKey)
		return n, o.settle(n, r)
	}
	if v, ok := t[key]; ok {
		return nil, invalidf("option %q names a node, %v, but there are none; use %s.filename", key, v, key)
	}
	sub := t.take(key)
	if len(sub) == 0 {
		return nil, invalidf("option \"%s.filename\" is missing", key)
	}
	r.storage, r.writethrough, r.detectZeroes = true, false, "off"
	return o.openTree(sub, r)
}

// settle gives storage that was opened for probing the locks that its format asks for, and checks what could not be
// checked before the format was known. It closes the storage if that fails.
func (o *opener) settle(n *node, r role) error {
	s := n.storage()
	if s == nil {
		return nil
	}
	err := r.checkLoop(s.exact)
	if f, ok := s.dev.Driver().(interface{ SetLocks(file.Locks) error }); ok && err == nil {
		err = f.SetLocks(r.locks())
	}
	if err != nil {
		n.dev.Close()
	}
	return err
}
