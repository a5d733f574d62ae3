package fault

import (
	"context"
	"fmt"
	"io"
	"slices"

	"byre/block"
)

// held is a suspended request.
type held struct {
	tag  string
	wake chan struct{}
}

// SetLog sends the lines "blkdebug: Suspended request 'TAG'" and "blkdebug: Resuming request 'TAG'" to w.
func (d *Driver) SetLog(w io.Writer) {
	d.mu.Lock()
	d.mu.log = w
	d.mu.Unlock()
}

// Break suspends the next request that reaches e, under a tag. All breaks that wait for an event hold the same request,
// which goes on when each of their tags was resumed.
func (d *Driver) Break(e block.Event, tag string) {
	d.mu.Lock()
	d.mu.breaks[e] = append(d.mu.breaks[e], tag)
	d.heard[e].Add(1)
	d.mu.Unlock()
}

// RemoveBreak removes the breaks with this tag and resumes the requests that they hold. It tells whether there was a
// break that nobody had reached yet (a break that holds a request is spent).
func (d *Driver) RemoveBreak(tag string) (found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := range d.mu.breaks {
		kept := slices.DeleteFunc(d.mu.breaks[e], func(t string) bool { return t == tag })
		if gone := len(d.mu.breaks[e]) - len(kept); gone > 0 {
			found = true
			d.heard[e].Add(int32(-gone))
		}
		d.mu.breaks[e] = kept
	}
	for d.resumeLocked(tag) {
	}
	return found
}

// Resume lets go the request that was suspended last under this tag. It tells whether there was one.
func (d *Driver) Resume(tag string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resumeLocked(tag)
}

func (d *Driver) resumeLocked(tag string) bool {
	i := slices.IndexFunc(d.mu.suspended, func(h *held) bool { return h.tag == tag })
	if i < 0 {
		return false
	}
	h := d.mu.suspended[i]
	d.mu.suspended = slices.Delete(d.mu.suspended, i, i+1)
	d.logLocked("Resuming", tag)
	close(h.wake)
	return true
}

// ResumeAll removes all breaks and lets everything go.
func (d *Driver) ResumeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := range d.mu.breaks {
		d.heard[e].Add(int32(-len(d.mu.breaks[e])))
		d.mu.breaks[e] = nil
	}
	for len(d.mu.suspended) > 0 {
		d.resumeLocked(d.mu.suspended[0].tag)
	}
}

func (d *Driver) logLocked(what, tag string) {
	if d.mu.log != nil {
		fmt.Fprintf(d.mu.log, "blkdebug: %s request '%s'\n", what, tag)
	}
}

// Suspended tells whether a request is held under this tag.
func (d *Driver) Suspended(tag string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.suspendedLocked(tag)
}

func (d *Driver) suspendedLocked(tag string) bool {
	return slices.ContainsFunc(d.mu.suspended, func(h *held) bool { return h.tag == tag })
}

// WaitBreak waits until a request is held under this tag, or for the end of ctx.
func (d *Driver) WaitBreak(ctx context.Context, tag string) error {
	for {
		d.mu.Lock()
		there, changed := d.suspendedLocked(tag), d.mu.changed
		d.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Event implements block.EventSink: it arms rules, changes the state and suspends the caller, in this order.
func (d *Driver) Event(ctx context.Context, e block.Event) error {
	if d.heard[e].Load() == 0 {
		return nil
	}
	for _, h := range d.hear(e) {
		select {
		case <-h.wake:
		case <-ctx.Done():
			d.drop(h)
			return ctx.Err()
		}
	}
	return nil
}

// hear does what an event causes at once and gives what the caller must wait for.
func (d *Driver) hear(e block.Event) (waits []*held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var fresh []*rule
	for _, r := range d.mu.rules[e] {
		if !r.spent && (r.State == 0 || r.State == d.mu.state) {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) > 0 {
		slices.Reverse(fresh)
		d.mu.active = fresh
		d.armed.Store(true)
	}
	state := d.mu.state
	for _, t := range d.mu.transitions[e] {
		if t.State == 0 || t.State == state {
			d.mu.state = t.To
		}
	}
	for _, tag := range d.mu.breaks[e] {
		h := &held{tag, make(chan struct{})}
		waits = append(waits, h)
		d.mu.suspended = append([]*held{h}, d.mu.suspended...)
		d.logLocked("Suspended", tag)
	}
	if len(waits) > 0 {
		d.mu.breaks[e] = nil
		d.heard[e].Add(int32(-len(waits)))
		close(d.mu.changed)
		d.mu.changed = make(chan struct{})
	}
	return waits
}

// drop forgets a request that no longer waits.
func (d *Driver) drop(h *held) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.suspended = slices.DeleteFunc(d.mu.suspended, func(x *held) bool { return x == h })
}
