package qcow2

import (
	"context"
	"strconv"
	"time"

	"byre/block"
	"byre/qcow2/layout"
)

// SnapshotOptions describe a new internal snapshot.
type SnapshotOptions struct {
	Name string
	// Date is when it was taken; zero stands for now.
	Date time.Time
	// VMStateSize is how many bytes of machine state were written behind the disk (WriteVMState); they belong to the
	// snapshot from then on and vanish from the active state.
	VMStateSize uint64
	// VMClock is how long the guest had run.
	VMClock time.Duration
	// ICount is the number of instructions that the guest had run; 0 if nobody counted.
	ICount uint64
}

// CreateSnapshot takes an internal snapshot of the active state and returns its entry. It is a point between requests:
// every write that completed before the call is in it, none that starts later is, and those under way are waited for.
// On success the snapshot is durable. On failure (a refcount at its maximum: KindUnsupported) the image is as before,
// but for leaks if the storage failed. Source of the rules: qcow2-format §4.3.
func (im *Image) CreateSnapshot(ctx context.Context, o SnapshotOptions) (layout.Snapshot, error) {
	var s layout.Snapshot
	w := im.w
	switch {
	case w == nil:
		return s, im.readOnly("create snapshot", block.NoOffset)
	case im.geo.DataFile:
		return s, block.Errorf(block.KindUnsupported, "create snapshot", im.path, block.NoOffset,
			"internal snapshots cannot hold an external data file")
	case o.Name == "" || len(o.Name) > 65535:
		return s, block.Errorf(block.KindInvalid, "create snapshot", im.path, block.NoOffset, "a name has 1 to 65535 bytes, not %d", len(o.Name))
	}
	err := w.exclusive(ctx, func() (err error) {
		s, err = w.createSnapshot(ctx, o)
		return err
	})
	return s, err
}

func (w *writer) createSnapshot(ctx context.Context, o SnapshotOptions) (layout.Snapshot, error) {
	im := w.im
	list := im.Snapshots()
	if len(list) >= layout.MaxSnapshots {
		return layout.Snapshot{}, block.Errorf(block.KindUnsupported, "create snapshot", im.path, block.NoOffset,
			"an image has at most %d snapshots", layout.MaxSnapshots)
	}
	date := o.Date
	if date.IsZero() {
		date = time.Now()
	}
	active := im.view.l1.Load()
	s := layout.Snapshot{ID: nextSnapshotID(list), Name: o.Name, DateSec: uint32(date.Unix()), DateNsec: uint32(date.Nanosecond()),
		VMClockNsec: uint64(o.VMClock), VMStateSize: o.VMStateSize, DiskSize: uint64(im.Size()), ICount: o.ICount,
		ExtraSize: 24, L1Size: uint32(active.n)}
	if err := w.raiseAll(ctx, active); err != nil {
		return s, err
	}
	if err := w.unshareActive(ctx, active); err != nil {
		return s, err
	}
	if active.n > 0 {
		words, err := w.l1Words(ctx, active, active.n)
		if err != nil {
			return s, err
		}
		if s.L1TableOffset, _, err = w.writeL1(ctx, words); err != nil {
			return s, err
		}
	}
	if err := w.switchSnapshots(ctx, append(list, s)); err != nil {
		return s, err
	}
	if o.VMStateSize > 0 {
		if err := w.clearBehind(ctx, im.Size()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// l1Words gives the entries of an L1 table, cut or filled up with zeros to n, none of them COPIED.
func (w *writer) l1Words(ctx context.Context, t *table, n int64) ([]uint64, error) {
	words := make([]uint64, n)
	for i := range min(n, t.n) {
		v, err := t.get(ctx, i)
		if err != nil {
			return nil, err
		}
		words[i] = uint64(layout.MakeL1Entry(layout.L1Entry(v).Offset(), false))
	}
	return words, nil
}

// nextSnapshotID is one more than the largest number among the ids.
func nextSnapshotID(list []layout.Snapshot) string {
	top := uint64(0)
	for _, s := range list {
		if n, err := strconv.ParseUint(s.ID, 10, 64); err == nil && n < 1<<63 {
			top = max(top, n)
		}
	}
	return strconv.FormatUint(top+1, 10)
}

// raiseAll raises the counts of everything below an L1 table by one for each reference, all or none, and makes them
// durable.
func (w *writer) raiseAll(ctx context.Context, t *table) error {
	raised := 0
	err := eachTable(ctx, t, 0, func(_ int64, e layout.L1Entry) error {
		err := w.references(ctx, e, func(c clusters) error {
			if err := w.space.addRefs(ctx, c); err != nil {
				return err
			}
			raised++
			return nil
		})
		if err != nil {
			return err
		}
		return w.space.relieve(ctx, w.im.budget.Limit()/8)
	})
	if err == nil {
		err = w.countsDurable(ctx)
	}
	if err != nil {
		w.lowerFirst(ctx, t, raised)
	}
	return err
}

// lowerFirst takes back the first n steps of raiseAll; the walk is the same, for nothing changed meanwhile.
func (w *writer) lowerFirst(ctx context.Context, t *table, n int) {
	_ = eachTable(ctx, t, 0, func(_ int64, e layout.L1Entry) error {
		return w.references(ctx, e, func(c clusters) error {
			if n == 0 {
				return context.Canceled // ends the walk
			}
			n--
			return w.space.dropRefs(ctx, c)
		})
	})
}

// dropRefs lowers counts that addRefs raised; none of them comes to 0.
func (s *space) dropRefs(ctx context.Context, c clusters) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.refs.decrement(ctx, c.at, c.n, func(int64, int64) {})
}

// countsDurable brings refcounts to the medium, unless the dirty bit says that nobody relies on them.
func (w *writer) countsDurable(ctx context.Context) error {
	if w.lazy.Load() {
		return nil
	}
	if _, err := w.space.writeRefs(ctx, true); err != nil {
		return err
	}
	return w.order.all(ctx)
}

// unshareActive clears COPIED in all entries of the active state, durably: its clusters are about to get a second owner
// (qcow2-format §8.1 I6).
func (w *writer) unshareActive(ctx context.Context, t *table) error {
	err := eachTable(ctx, t, 0, func(i int64, e layout.L1Entry) error {
		if err := w.clearCopied(ctx, e); err != nil {
			return err
		}
		if e.Copied() {
			if err := t.stage(ctx, i, uint64(layout.MakeL1Entry(e.Offset(), false))); err != nil {
				return err
			}
		}
		return w.relieve(ctx)
	})
	if err != nil {
		return err
	}
	return w.commit(ctx, true)
}

// clearCopied clears COPIED in the entries of an L2 table.
func (w *writer) clearCopied(ctx context.Context, e layout.L1Entry) error {
	return w.editTable(ctx, e, 0, func(x l2Entry) (l2Entry, bool) {
		if !x.e.Copied() || x.e.Compressed() {
			return x, false
		}
		x.e &^= layout.L2Entry(copiedFlag)
		return x, true
	})
}

const copiedFlag = uint64(1) << 63

// editTable changes entries of an L2 table in memory, from entry index on: edit returns the new entry and whether it
// differs.
func (w *writer) editTable(ctx context.Context, e layout.L1Entry, index int, edit func(x l2Entry) (l2Entry, bool)) error {
	return w.eachSlice(ctx, e, index, func(s *slot, first int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.Lock()
		defer s.Unlock()
		changed := false
		for i := max(index-first, 0); i < len(s.data)/w.im.geo.L2EntrySize(); i++ {
			if x, differs := edit(w.entryAt(s.data, i)); differs {
				w.putEntry(s.data, i, x)
				changed = true
			}
		}
		if changed {
			w.im.l2.markDirty(s)
		}
		return nil
	})
}

// switchSnapshots writes a new snapshot table and makes it the image's by one write to the header: the commit point of
// what changes it. The old table's clusters are let go.
func (w *writer) switchSnapshots(ctx context.Context, list []layout.Snapshot) error {
	im := w.im
	buf, err := layout.EncodeSnapshotTable(list)
	if err != nil {
		return wrapLayout("write snapshot table", im.path, err)
	}
	off := layout.HostOffset(0)
	if len(buf) > 0 {
		a, err := w.allocMeta(ctx, im.geo.Clusters(int64(len(buf))))
		if err != nil {
			return err
		}
		off = im.geo.ClusterOffset(a.at)
		if err := w.writeSnapshotTable(ctx, off, buf); err != nil {
			w.space.giveBack(a.clusters)
			return err
		}
	}
	// Counts of the new structures, then their contents, before the pointer (I1, I2).
	if err := w.countsDurable(ctx); err != nil {
		return err
	}
	if err := w.order.all(ctx); err != nil {
		return err
	}
	h := im.Header()
	im.mu.RLock()
	old := clusters{im.geo.Cluster(h.SnapshotsOffset), im.geo.Clusters(im.mu.snapshotBytes)}
	im.mu.RUnlock()
	err = w.pokeHeader(ctx, layout.PokeSnapshots, func(h *layout.Header) {
		h.NbSnapshots, h.SnapshotsOffset = uint32(len(list)), off
	})
	if err != nil {
		return err
	}
	im.mu.Lock()
	im.mu.snapshots, im.mu.snapshotBytes = list, int64(len(buf))
	im.mu.Unlock()
	im.updateFences()
	w.over.moved()
	if err := w.order.all(ctx); err != nil {
		w.fail(err) // which table the file has is not known
		return err
	}
	if old.n > 0 {
		w.retireNow(ctx, []freed{{old, discardOther}})
	}
	return nil
}

func (w *writer) writeSnapshotTable(ctx context.Context, off layout.HostOffset, buf []byte) error {
	if err := w.checkOverlap(ctx, off, int64(len(buf)), metaNone); err != nil {
		return err
	}
	if err := w.im.file.Write(ctx, buf, int64(off), 0); err != nil {
		return err
	}
	w.order.image.note()
	return nil
}
