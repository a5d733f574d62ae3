package image

import (
	"os"

	"byre/block"
	"byre/storage/file"
)

// node is one open layer of the stack.
type node struct {
	driver   string // "qcow2", "raw", "file"…
	dev      *block.Device
	exact    string // the plain name that opens the same, or "" if only options can say it
	opts     Tree   // what a listing has to repeat to open the same, children aside
	children []child
	backing  *node
	// backingOverridden: the caller chose another backing file than the header's, so a listing has to name it.
	backingOverridden bool
	stat              os.FileInfo // of host files
	probed            bool        // the format was guessed
}

// child is a layer below under the role it has there: "file", "data-file", "image".
type child struct {
	name string
	*node
}

// file is the child that holds the format's own bytes; nil for storage.
func (n *node) file() *node {
	for _, c := range n.children {
		if c.name == "file" || c.name == "image" {
			return c.node
		}
	}
	return nil
}

// name is what listings call the layer.
func (n *node) name() string {
	if n.exact != "" {
		return n.exact
	}
	return jsonName(n)
}

// storage is the host file under a layer, nil if there is none.
func (n *node) storage() *node {
	for ; n != nil; n = n.file() {
		if _, ok := n.dev.Driver().(*file.File); ok {
			return n
		}
	}
	return nil
}
