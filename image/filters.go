package image

import (
	"fmt"
	"os"
	"time"

	"byre/block"
	"byre/storage/fault"
	"byre/storage/null"
)

// openFault opens the layer that injects faults, which users know as blkdebug.
func openFault(o *opener, t Tree, r role) (*node, error) {
	n := &node{driver: "blkdebug", opts: Tree{}}
	own := map[string]string{}
	for k, v := range t {
		if fault.IsOption(k) {
			own[k], n.opts[k] = fmt.Sprint(v), v
			delete(t, k)
		}
	}
	cfg, err := fault.ParseOptions(own, os.ReadFile)
	if err != nil {
		return nil, err
	}
	// A plain name that is given to the layer itself is that of the image below: "open -o file.driver=blkdebug NAME".
	for _, key := range []string{"filename", "x-image"} {
		name, err := t.takeString(key)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		named, err := nameTree(name, true)
		if err != nil {
			return nil, err
		}
		for k, v := range named.under("image") {
			if _, given := t[k]; !given {
				t[k] = v
			}
		}
	}
	below, err := o.openChild(t, "image", r)
	if err != nil {
		return nil, err
	}
	if err := t.rest("blkdebug"); err != nil {
		below.dev.Close()
		return nil, err
	}
	d, err := fault.New(below.dev, cfg)
	if err != nil {
		below.dev.Close()
		return nil, err
	}
	n.dev = block.NewDevice(d)
	n.children = []child{{"image", below}}
	if below.exact != "" && (len(own) == 0 || len(own) == 1 && own["config"] != "") {
		n.exact = "blkdebug:" + own["config"] + ":" + below.exact
	}
	return n, nil
}

// openNull opens storage that keeps nothing. name is the driver's.
func openNull(name string) func(o *opener, t Tree, r role) (*node, error) {
	return func(o *opener, t Tree, r role) (*node, error) {
		n := &node{driver: name, opts: Tree{}}
		for _, k := range []string{"size", "read-zeroes", "latency-ns"} {
			if v, ok := t[k]; ok {
				n.opts[k] = v
			}
		}
		opt := null.Options{ReadOnly: !r.writable}
		var err error
		if opt.Size, err = t.takeSize("size", 1<<30); err != nil {
			return nil, err
		}
		if opt.ReadZeroes, err = t.takeBool("read-zeroes", false); err != nil {
			return nil, err
		}
		latency, err := t.takeSize("latency-ns", 0)
		if err != nil {
			return nil, err
		}
		opt.Latency = time.Duration(latency)
		if err := t.rest(name); err != nil {
			return nil, err
		}
		n.dev = block.NewDevice(null.New(opt))
		if len(n.opts) == 0 {
			n.exact = name + "://"
		}
		return n, nil
	}
}
