package image

import (
	"path/filepath"
	"strings"

	"byre/block"
	"byre/qcow2"
	"byre/qcow2/layout"
)

// openQCOW2 opens a qcow2 layer with everything it stands on.
func openQCOW2(o *opener, t Tree, r role) (*node, error) {
	n := &node{driver: "qcow2", opts: Tree{}}
	if err := o.assembleQCOW2(n, t, r); err != nil {
		for _, d := range n.devices() {
			d.Close()
		}
		return nil, err
	}
	return n, nil
}

// assembleQCOW2 fills n in. On error the devices that n has by then are the caller's to close.
func (o *opener) assembleQCOW2(n *node, t Tree, r role) error {
	opt, err := o.qcow2Options(t, r)
	if err != nil {
		return err
	}
	below := r
	below.shared = false
	file, err := o.openChild(t, "file", below)
	if err != nil {
		return err
	}
	n.children = []child{{"file", file}}
	if o.cfg.check {
		return fileOnly(n, t, file)
	}
	h, err := qcow2.ReadHeader(o.ctx, file.dev, o.cfg.check)
	if err != nil {
		return err
	}
	refs, err := o.references(t, h, file)
	if err != nil {
		return err
	}
	if err := t.rest("qcow2"); err != nil {
		return err
	}
	if err := o.openReferences(n, refs, r); err != nil {
		return err
	}
	opt.Budget = o.budget(opt)
	im, err := qcow2.Open(o.ctx, file.dev, opt)
	if err != nil {
		return err
	}
	if d := n.child("data-file"); d != nil {
		im.SetDataFile(d.dev)
	}
	switch {
	case n.backing != nil:
		im.SetBacking(n.backing.dev)
	case refs.backing == nil:
		im.SetBacking(nil)
	}
	n.dev = block.NewDevice(im)
	n.backingOverridden = refs.backing != nil && !refs.backing.implicit || refs.backing == nil && h.BackingFile != "" && !o.cfg.noBacking
	if !n.backingOverridden && len(n.opts) == 0 {
		n.exact = file.exact
	}
	return nil
}

// devices are the devices right below a node.
func (n *node) devices() (out []*block.Device) {
	for _, c := range n.children {
		out = append(out, c.dev)
	}
	if n.backing != nil {
		out = append(out, n.backing.dev)
	}
	return out
}

// child finds a child by its role.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c.node
		}
	}
	return nil
}

// budget is the memory for metadata that all layers share; the first layer that is opened decides how much it is.
func (o *opener) budget(opt qcow2.Options) *qcow2.Budget {
	if o.shared == nil {
		size := o.cfg.cacheBytes
		if size == 0 {
			size = opt.CacheSize
		}
		if size == 0 {
			size = qcow2.DefaultCacheSize
		}
		o.shared = qcow2.NewBudget(size)
	}
	return o.shared
}

// reference is a layer to be opened below a qcow2 layer.
type reference struct {
	implicit bool   // the image names it, not the caller
	name     string // for an implicit backing file: what openLayer gets
	tree     Tree
	ask      Reference // what the gate is asked
}

type references struct {
	backing, data *reference // nil: none
}

// references finds out what the layer wants opened, without opening any of it.
func (o *opener) references(t Tree, h *layout.Header, file *node) (refs references, err error) {
	base := ""
	if s := file.storage(); s != nil {
		base = s.exact
	}
	if refs.backing, err = backingReference(t, h, base); err != nil {
		return refs, err
	}
	if refs.data, err = dataReference(t, h, base, file.name()); err != nil {
		return refs, err
	}
	if o.cfg.noBacking {
		refs.backing = nil
	}
	if o.cfg.noData {
		refs.data = nil
	}
	return refs, nil
}

func backingReference(t Tree, h *layout.Header, base string) (*reference, error) {
	v, set := t.takeValue("backing")
	switch {
	case set && (v == nil || v == "" || v == "null"):
		return nil, nil
	case set:
		return nil, invalidf("option \"backing\" names a node, %v, but there are none; use backing.file.filename", v)
	}
	sub := t.take("backing")
	for _, k := range []string{"filename", "file.filename", "file.driver", "file"} {
		if _, explicit := sub[k]; explicit {
			return &reference{tree: sub}, nil
		}
	}
	if h.BackingFile == "" {
		if len(sub) > 0 {
			return nil, invalidf("there are options for a backing file, but neither they nor the image name one")
		}
		return nil, nil
	}
	name := h.BackingFile
	full := combine(base, name)
	if base == "" && !isAbsolute(name) {
		return nil, invalidf("backing file %q is relative to an image that is in no folder", name)
	}
	format, _ := sub["driver"].(string)
	if format == "" && h.BackingFormat != "" {
		format = h.BackingFormat
		sub["driver"] = format
	}
	return &reference{implicit: true, name: full, tree: sub,
		ask: Reference{Kind: RefBacking, From: base, Name: name, Resolved: full, Format: format}}, nil
}

// dataReference: the name in the image is the path of a local file and nothing else.
func dataReference(t Tree, h *layout.Header, base, path string) (*reference, error) {
	if v, set := t["data-file"]; set {
		return nil, invalidf("option \"data-file\" names a node, %v, but there are none; use data-file.filename", v)
	}
	sub := t.take("data-file")
	if !h.HasIncompatible(layout.IncompatDataFile) {
		if len(sub) > 0 {
			return nil, invalidf("%s: there are options for a data file, but the image has none", path)
		}
		return nil, nil
	}
	if len(sub) > 0 {
		return &reference{tree: sub}, nil
	}
	if h.DataFile == "" {
		return nil, invalidf("%s: the image keeps its data in another file and does not say which; use data-file.filename", path)
	}
	full := h.DataFile
	if !filepath.IsAbs(full) {
		full = base[:strings.LastIndexByte(base, '/')+1] + full
	}
	return &reference{implicit: true, tree: Tree{"driver": "file", "filename": full},
		ask: Reference{Kind: RefDataFile, From: base, Name: h.DataFile, Resolved: full}}, nil
}

// openReferences asks the gate for all at once and opens what it allows.
func (o *opener) openReferences(n *node, refs references, r role) error {
	var ask []Reference
	for _, ref := range []*reference{refs.backing, refs.data} {
		if ref != nil && ref.implicit {
			ask = append(ask, ref.ask)
		}
	}
	file := n.child("file")
	if err := askGate(o.ctx, o.cfg.gate, file.name(), ask); err != nil {
		return err
	}
	if refs.data != nil {
		d := r
		d.storage, d.writethrough, d.detectZeroes = true, false, "off"
		data, err := o.openTree(refs.data.tree, d)
		if err != nil {
			return errOpen(block.KindOf(err), file.name(), "data file: %w", err)
		}
		n.children = append(n.children, child{"data-file", data})
	}
	if refs.backing != nil {
		b := role{direct: r.direct, noFlush: r.noFlush, forceShare: r.forceShare, detectZeroes: "off"}
		b.chain = r.chain[:len(r.chain):len(r.chain)]
		if s := file.storage(); s != nil && s.stat != nil {
			b.chain = append(b.chain, s.stat)
		}
		backing, err := o.openLayer(refs.backing.name, refs.backing.tree, b)
		if err != nil {
			return errOpen(block.KindOf(err), file.name(), "backing file: %w", err)
		}
		n.backing = backing
	}
	return nil
}
