package fault

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"byre/block"
)

// Config is everything that can be set before the driver starts.
type Config struct {
	Rules       []Rule
	Transitions []Transition
	Limits      Limits
	// Hook, if not nil, is called before each request, from any goroutine; an error fails the request with it.
	Hook func(t IOType, off, n int64) error
}

// Limits override what the storage below says; 0 keeps it. Bytes. Align must be a power of two.
type Limits struct {
	Align, MaxTransfer, OptZero, MaxZero, OptDiscard, MaxDiscard int64
}

// Driver implements block.Driver, block.EventSink, block.Chained and block.FreshSpace over a device that it owns. It is
// safe for any number of goroutines.
type Driver struct {
	below *block.Device
	cfg   Config
	geo   block.Geometry
	armed atomic.Bool                   // there are active rules
	heard [block.NumEvents]atomic.Int32 // rules, transitions and breaks waiting for each event
	mu    struct {
		sync.Mutex
		state       int
		rules       [block.NumEvents][]*rule
		transitions [block.NumEvents][]Transition
		breaks      [block.NumEvents][]string
		active      []*rule       // the most recently armed first
		suspended   []*held       // the most recently suspended first
		changed     chan struct{} // closed and replaced when suspended grows
		log         io.Writer
	}
}

var (
	_ block.Driver     = (*Driver)(nil)
	_ block.EventSink  = (*Driver)(nil)
	_ block.Chained    = (*Driver)(nil)
	_ block.FreshSpace = (*Driver)(nil)
)

// New puts a driver over below, which it closes when it is closed.
func New(below *block.Device, cfg Config) (*Driver, error) {
	d := &Driver{below: below, cfg: cfg, geo: below.Geometry()}
	d.geo.Path = "blkdebug::" + below.Path()
	d.geo.RequestAlign = 1
	if err := cfg.Limits.apply(&d.geo); err != nil {
		return nil, err
	}
	d.mu.state = 1
	d.mu.changed = make(chan struct{})
	for _, r := range cfg.Rules {
		d.mu.rules[r.Event] = append(d.mu.rules[r.Event], &rule{Rule: r})
		d.heard[r.Event].Add(1)
	}
	for _, t := range cfg.Transitions {
		d.mu.transitions[t.Event] = append(d.mu.transitions[t.Event], t)
		d.heard[t.Event].Add(1)
	}
	return d, d.Event(context.Background(), block.EventNone)
}

// apply puts the limits into g.
func (l Limits) apply(g *block.Geometry) error {
	bad := func(name string, v, unit int64) error {
		return block.Errorf(block.KindInvalid, "open", g.Path, block.NoOffset,
			"%s=%d does not fit: it must be a multiple of %d, at most 2 GiB", name, v, unit)
	}
	if l.Align < 0 || l.Align > 1<<30 || l.Align&(l.Align-1) != 0 {
		return block.Errorf(block.KindInvalid, "open", g.Path, block.NoOffset, "align=%d is no power of two up to 1 GiB", l.Align)
	}
	if l.Align > 0 {
		g.RequestAlign = l.Align
	}
	for _, v := range []struct {
		name string
		v    int64
		unit int64
		to   *int64
	}{
		{"max-transfer", l.MaxTransfer, g.RequestAlign, &g.MaxTransfer},
		{"opt-write-zero", l.OptZero, g.RequestAlign, &g.ZeroAlign},
		{"max-write-zero", l.MaxZero, max(g.RequestAlign, l.OptZero), &g.MaxZero},
		{"opt-discard", l.OptDiscard, g.RequestAlign, &g.DiscardAlign},
		{"max-discard", l.MaxDiscard, max(g.RequestAlign, l.OptDiscard), &g.MaxDiscard},
	} {
		switch {
		case v.v == 0:
		case v.v < 0 || v.v > 1<<31-1 || v.v%v.unit != 0:
			return bad(v.name, v.v, v.unit)
		default:
			*v.to = v.v
		}
	}
	return nil
}

func (d *Driver) Geometry() block.Geometry { return d.geo }
func (d *Driver) Size() int64              { return d.below.Size() }

// Backing, DataFile and File make the driver a link of the chain.
func (d *Driver) Backing() *block.Device  { return nil }
func (d *Driver) DataFile() *block.Device { return nil }
func (d *Driver) File() *block.Device     { return d.below }

func (d *Driver) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	if err := d.request(Read, off, length(iov)); err != nil {
		return err
	}
	// The last unit may reach beyond the end of the storage below.
	return d.readTail(ctx, iov, off)
}

// readTail reads and fills what lies behind the end with zeros.
func (d *Driver) readTail(ctx context.Context, iov [][]byte, off int64) error {
	inside := min(length(iov), max(d.below.Size()-off, 0))
	if inside == length(iov) {
		return d.below.Readv(ctx, iov, off)
	}
	var head [][]byte
	for _, p := range iov {
		n := min(int64(len(p)), inside)
		if n > 0 {
			head = append(head, p[:n])
		}
		clear(p[n:])
		inside -= n
	}
	return d.below.Readv(ctx, head, off)
}

func (d *Driver) WritevAt(ctx context.Context, iov [][]byte, off int64, flags block.Flags) error {
	if err := d.request(Write, off, length(iov)); err != nil {
		return err
	}
	if inside := d.below.Size() - off; !d.geo.Growable && inside < length(iov) {
		var head [][]byte
		for _, p := range iov {
			n := min(int64(len(p)), inside)
			head = append(head, p[:n])
			inside -= n
		}
		iov = head
	}
	return d.below.Writev(ctx, iov, off, flags)
}

func (d *Driver) ZeroAt(ctx context.Context, off, n int64, flags block.Flags) error {
	if err := d.request(WriteZeroes, off, n); err != nil {
		return err
	}
	if n < d.cfg.Limits.OptZero {
		return block.Errorf(block.KindUnsupported, "write zeroes", d.geo.Path, off, "less than opt-write-zero")
	}
	return d.below.Zero(ctx, off, d.clip(off, n), flags)
}

func (d *Driver) DiscardAt(ctx context.Context, off, n int64) error {
	if err := d.request(Discard, off, n); err != nil {
		return err
	}
	return d.below.Discard(ctx, off, d.clip(off, n))
}

// clip cuts what the last unit has behind the end.
func (d *Driver) clip(off, n int64) int64 {
	if d.geo.Growable {
		return n
	}
	return min(n, d.below.Size()-off)
}

func (d *Driver) Flush(ctx context.Context) error {
	if err := d.request(Flush, 0, 0); err != nil {
		return err
	}
	return d.below.Flush(ctx)
}

func (d *Driver) Extent(ctx context.Context, off, n int64, q block.Query) (block.Extent, error) {
	if err := d.request(BlockStatus, off, n); err != nil {
		return block.Extent{}, err
	}
	return d.below.Extent(ctx, off, n, q)
}

func (d *Driver) Resize(ctx context.Context, size int64, o block.ResizeOptions) error {
	if err := d.request(Resize, size, 0); err != nil {
		return err
	}
	return d.below.Resize(ctx, size, o)
}

// Close closes the device below. Nothing is suspended then: the device above has waited for all requests. Call
// ResumeAll before closing that one if some may be.
func (d *Driver) Close() error { return d.below.Close() }

// GrowTo forwards to the storage below; KindUnsupported if it cannot.
func (d *Driver) GrowTo(ctx context.Context, size int64) (int64, error) {
	if err := d.request(Resize, size, 0); err != nil {
		return 0, err
	}
	return d.below.GrowTo(ctx, size)
}

// CutTo forwards to the storage below; KindUnsupported if it cannot.
func (d *Driver) CutTo(ctx context.Context, size int64) error {
	if err := d.request(Resize, size, 0); err != nil {
		return err
	}
	return d.below.CutTo(ctx, size)
}

// FreshFrom forwards to the storage below; its end if it does not know.
func (d *Driver) FreshFrom() int64 {
	if f, ok := d.below.Driver().(block.FreshSpace); ok {
		return f.FreshFrom()
	}
	return d.below.Size()
}

func length(iov [][]byte) (n int64) {
	for _, b := range iov {
		n += int64(len(b))
	}
	return n
}
