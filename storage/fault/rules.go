package fault

import (
	"slices"
	"syscall"

	"byre/block"
)

// IOType is a kind of request. Types of one Rule are a set: 1<<Read | 1<<Write.
type IOType uint8

const (
	Read IOType = iota
	Write
	WriteZeroes
	Discard
	Flush
	BlockStatus
	Resize // of rules in code only: no option names it
)

var ioNames = [...]string{"read", "write", "write-zeroes", "discard", "flush", "block-status", "resize"}

func (t IOType) String() string { return ioNames[t] }

// Types is a set of IOTypes.
type Types uint8

// Of makes a set.
func Of(types ...IOType) (s Types) {
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// defaultTypes are those of a rule that names none.
var defaultTypes = Of(Read, Write, WriteZeroes, Discard, Flush)

// Rule makes requests fail. It is armed when its event comes while the driver is in its state, and stays armed until
// another event arms something else; a rule of block.EventNone is armed from the start.
type Rule struct {
	Event block.Event
	// State in which the event arms the rule; 0 = any. Drivers start in state 1.
	State int
	// Types of the requests that fail; 0 = all but block-status and resize.
	Types Types
	// Errno that they fail with; 0 = EIO.
	Errno syscall.Errno
	// Sector, if At is set: only requests fail that touch this 512-byte sector's first byte.
	Sector int64
	At     bool
	// Skip lets that many requests pass first.
	Skip int
	// Once: only one request fails.
	Once bool
	// Immediately: asked for failing before anything waits. All errors are given at once here; kept for configurations.
	Immediately bool
}

// Transition moves the driver to state To when Event comes in state State (0 = any).
type Transition struct {
	Event     block.Event
	State, To int
}

// rule is a Rule at work.
type rule struct {
	Rule
	passed int
	spent  bool
}

// matches tells whether a request of n bytes at off is meant.
func (r *rule) matches(t IOType, off, n int64) bool {
	types := r.Types
	if types == 0 {
		types = defaultTypes
	}
	if types&(1<<t) == 0 {
		return false
	}
	at := r.Sector * 512
	return !r.At || n > 0 && at >= off && at < off+n
}

// request fails a request that a rule or the hook is for, or that breaks the limits of the driver.
func (d *Driver) request(t IOType, off, n int64) error {
	if err := d.limits(t, off, n); err != nil {
		return err
	}
	if d.cfg.Hook != nil {
		if err := d.cfg.Hook(t, off, n); err != nil {
			return err
		}
	}
	if !d.armed.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range d.mu.active {
		if !r.matches(t, off, n) {
			continue
		}
		if r.passed < r.Skip {
			r.passed++
			continue
		}
		if r.Once {
			r.spent = true
			d.mu.active = slices.Delete(d.mu.active, i, i+1)
			d.armed.Store(len(d.mu.active) > 0)
		}
		return d.injected(t, off, r.Errno)
	}
	return nil
}

// limits proves that the layer above keeps to the geometry.
func (d *Driver) limits(t IOType, off, n int64) error {
	g := &d.geo
	if t >= Flush {
		return nil
	}
	limit, unit := g.MaxTransfer, g.RequestAlign
	switch t {
	case WriteZeroes:
		limit = g.MaxZero
	case Discard:
		limit = g.MaxDiscard
	}
	if off%unit != 0 || n%unit != 0 || limit > 0 && n > limit {
		return block.Errorf(block.KindInvalid, t.String(), g.Path, off,
			"%d bytes break the limits of the driver (unit %d, at most %d)", n, unit, limit)
	}
	return nil
}

// injected makes the error of a rule.
func (d *Driver) injected(t IOType, off int64, errno syscall.Errno) error {
	if errno == 0 {
		errno = syscall.EIO
	}
	if t == Flush {
		off = block.NoOffset
	}
	return &block.Error{Kind: kindOf(errno), Op: t.String(), Path: d.geo.Path, Offset: off, Msg: "injected", Err: errno}
}

func kindOf(errno syscall.Errno) block.Kind {
	switch {
	case errno == syscall.ENOSPC || errno == syscall.EDQUOT:
		return block.KindNoSpace
	case errno == syscall.ENOTSUP || errno == syscall.EOPNOTSUPP || errno == syscall.EAGAIN:
		return block.KindUnsupported
	case errno == syscall.EINVAL:
		return block.KindInvalid
	case errno == syscall.EBUSY:
		return block.KindBusy
	}
	return block.KindIO
}
