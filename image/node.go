package image

import (
	"byre/block"
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
	id                fileID // of host files
	probed            bool   // the format was guessed
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

// fileID is the identity of a host file, with the window that is looked at; the zero value is nobody's.
type fileID struct {
	dev, ino uint64
	offset   int64
	known    bool
}

// storageID is the identity of the storage under a layer.
func (n *node) storageID() fileID {
	var offset int64
	for ; n != nil; n = n.file() {
		if w, ok := n.dev.Driver().(interface{ Offset() int64 }); ok {
			offset += w.Offset()
		}
		if n.id.known {
			id := n.id
			id.offset = offset
			return id
		}
	}
	return fileID{}
}
