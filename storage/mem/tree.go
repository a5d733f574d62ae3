package mem

import "sync/atomic"

const (
	pageShift = 12
	pageSize  = 1 << pageShift
	fanShift  = 6
	fan       = 1 << fanShift
	maxLevel  = (63 - pageShift + fanShift - 1) / fanShift // levels above the pages that cover 2^63 bytes
)

// owners hands out the identities by which a tree knows the nodes that it may change in place.
var owners atomic.Uint64

// node is a page (data) or an inner node (kids). A node whose owner is not the tree's is shared and must be copied
// before it changes.
type node struct {
	owner uint64
	kids  *[fan]*node
	data  *[pageSize]byte
}

// tree is a sparse byte array: what has no page reads as zeros. Not safe for concurrent use if one of the users writes
// or clones.
type tree struct {
	root  *node
	level int // of the root: 0 = a page
	owner uint64
}

// clone gives an independent tree with the same contents, in constant time.
func (t *tree) clone() tree {
	c := *t
	t.owner = owners.Add(1)
	c.owner = owners.Add(1)
	return c
}

func span(level int) uint64 { return 1 << min(63, pageShift+fanShift*level) }

// page finds the page that holds off, nil if there is none.
func (t *tree) page(off uint64) *[pageSize]byte {
	if t.root == nil || off >= span(t.level) {
		return nil
	}
	n := t.root
	for l := t.level; n != nil && l > 0; l-- {
		n = n.kids[off>>(pageShift+fanShift*(l-1))&(fan-1)]
	}
	if n == nil {
		return nil
	}
	return n.data
}

// writable finds or makes the page that holds off, for change.
func (t *tree) writable(off uint64) *[pageSize]byte {
	slot := t.slot(off)
	*slot = t.own(*slot, 0)
	return (*slot).data
}

// slot finds or makes the place of the page that holds off, for change.
func (t *tree) slot(off uint64) **node {
	if t.owner == 0 {
		t.owner = owners.Add(1)
	}
	for off >= span(t.level) && t.level < maxLevel {
		if t.root != nil {
			n := &node{owner: t.owner, kids: new([fan]*node)}
			n.kids[0] = t.root
			t.root = n
		}
		t.level++
	}
	slot := &t.root
	for l := t.level; l > 0; l-- {
		n := t.own(*slot, l)
		*slot = n
		slot = &n.kids[off>>(pageShift+fanShift*(l-1))&(fan-1)]
	}
	return slot
}

// own makes n, a node of level l or nil, changeable.
func (t *tree) own(n *node, l int) *node {
	switch {
	case n == nil && l == 0:
		return &node{owner: t.owner, data: new([pageSize]byte)}
	case n == nil:
		return &node{owner: t.owner, kids: new([fan]*node)}
	case n.owner == t.owner:
		return n
	case l == 0:
		d := *n.data
		return &node{owner: t.owner, data: &d}
	}
	k := *n.kids
	return &node{owner: t.owner, kids: &k}
}

// write copies p to off.
func (t *tree) write(p []byte, off uint64) {
	for len(p) > 0 {
		n := copy(t.writable(off)[off&(pageSize-1):], p)
		p, off = p[n:], off+uint64(n)
	}
}

// writeShared is write for a p that never changes: whole pages of it become part of the tree without a copy.
func (t *tree) writeShared(p []byte, off uint64) {
	for len(p) > 0 {
		if off&(pageSize-1) == 0 && len(p) >= pageSize {
			*t.slot(off) = &node{data: (*[pageSize]byte)(p)} // owned by no tree
			p, off = p[pageSize:], off+pageSize
			continue
		}
		n := copy(t.writable(off)[off&(pageSize-1):], p)
		p, off = p[n:], off+uint64(n)
	}
}

// read fills p from off.
func (t *tree) read(p []byte, off uint64) {
	for len(p) > 0 {
		in := off & (pageSize - 1)
		n := min(uint64(len(p)), pageSize-in)
		if pg := t.page(off); pg != nil {
			copy(p[:n], pg[in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+n
	}
}

// zero makes [off, end) read as zeros and drops the pages that lie wholly inside.
func (t *tree) zero(off, end uint64) {
	if t.root == nil || off >= end {
		return
	}
	t.root = t.zeroNode(t.root, t.level, 0, off, end)
}

// zeroNode zeroes [off, end) below n, whose span starts at base, and gives what n becomes.
func (t *tree) zeroNode(n *node, l int, base, off, end uint64) *node {
	last := base + span(l) - 1
	if n == nil || off > last || end <= base {
		return n
	}
	if off <= base && end > last {
		return nil
	}
	if l == 0 {
		n = t.own(n, 0)
		clear(n.data[max(off, base)-base : min(end-base, pageSize)])
		return n
	}
	n = t.own(n, l)
	step := span(l - 1)
	first := (max(off, base) - base) / step
	for i := first; i < fan && base+i*step < end; i++ {
		n.kids[i] = t.zeroNode(n.kids[i], l-1, base+i*step, off, end)
	}
	return n
}

// run tells whether a page holds off, and the end of the run of the same answer, at most end.
func (t *tree) run(off, end uint64) (data bool, stop uint64) {
	data, stop = t.step(off)
	for stop < end {
		d, s := t.step(stop)
		if d != data {
			break
		}
		stop = s
	}
	return data, min(stop, end)
}

// step is run for the largest subtree around off that has one answer.
func (t *tree) step(off uint64) (data bool, stop uint64) {
	if t.root == nil || off >= span(t.level) {
		return false, 1 << 63
	}
	n, l := t.root, t.level
	for n != nil && l > 0 {
		l--
		n = n.kids[off>>(pageShift+fanShift*l)&(fan-1)]
	}
	return n != nil, off&^(span(l)-1) + span(l)
}
