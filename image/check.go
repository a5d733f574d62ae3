package image

import (
	"context"

	"byre/block"
	"byre/qcow2/check"
)

// Checkable is an image opened for check and repair: only the file that holds it, with nothing of it judged yet, so that
// images can be repaired that cannot be opened.
type Checkable struct {
	node *node
}

// OpenForCheck opens an image for Check. Backing and data files stay closed, and the gate is not asked. A repair needs
// [Writable]. Errors are those of [Open].
func OpenForCheck(ctx context.Context, name string, opts ...Option) (*Checkable, error) {
	im, err := Open(ctx, name, append(opts[:len(opts):len(opts)], MetadataOnly(), func(c *config) { c.check = true })...)
	if err != nil {
		return nil, err
	}
	return &Checkable{im.top}, nil
}

// Format is the name of the image's format.
func (c *Checkable) Format() string { return c.node.driver }

// Filename is what listings call the image.
func (c *Checkable) Filename() string { return c.node.name() }

// HasChecks tells whether the format has anything to check.
func (c *Checkable) HasChecks() bool { return c.node.driver == "qcow2" }

// Check checks the image, and repairs it as far as o allows; see [check.Run]. A format without checks is KindUnsupported.
func (c *Checkable) Check(ctx context.Context, o check.Options) (check.Result, error) {
	if !c.HasChecks() {
		return check.Result{}, block.Errorf(block.KindUnsupported, "check", c.Filename(), block.NoOffset, "format %s has no checks", c.Format())
	}
	return check.Run(ctx, c.node.dev, o)
}

// Close closes the file.
func (c *Checkable) Close() error { return c.node.dev.Close() }

// fileOnly finishes the node of an image that is to be checked: its device is the file below.
func fileOnly(n *node, t Tree, file *node) error {
	for _, below := range []string{"backing", "data-file"} {
		t.take(below)
		delete(t, below)
	}
	if err := t.rest(n.driver); err != nil {
		return err
	}
	n.dev = file.dev
	if len(n.opts) == 0 {
		n.exact = file.exact
	}
	return nil
}
