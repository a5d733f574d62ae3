package qcow2

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"byre/block"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

const testSlot = 4096

// numbered returns a device whose every 8-byte word holds its own offset.
func numbered(t testing.TB, size int64) (*block.Device, *mem.File) {
	t.Helper()
	f := mem.NewFile("numbered", size)
	b := make([]byte, size)
	for i := int64(0); i+8 <= size; i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(i))
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return block.NewDevice(f.Open(mem.Options{})), f
}

// readSlot checks and releases the slice at off.
func readSlot(t *testing.T, c *cache, off layout.HostOffset) {
	t.Helper()
	s, err := c.get(context.Background(), off)
	if err != nil {
		t.Error(err)
		return
	}
	s.RLock()
	if got := binary.BigEndian.Uint64(s.data[testSlot-8:]); !s.dead && got != uint64(off)+testSlot-8 {
		t.Errorf("slice %v ends in %#x", off, got)
	}
	s.RUnlock()
	s.release()
}

func TestCacheStaysWithinItsBudgetAndReturnsRightSlices(t *testing.T) {
	dev, _ := numbered(t, 4<<20)
	b := NewBudget(0)
	c1 := newCache("slice", dev, testSlot, block.EventNone, b)
	c2 := newCache("slice", dev, testSlot, block.EventNone, b)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 2000 {
				readSlot(t, []*cache{c1, c2}[r.IntN(2)], layout.HostOffset(r.IntN(1024)*testSlot))
			}
		}()
	}
	wg.Wait()
	if over := b.Used() - b.Limit(); over > 8*testSlot {
		t.Errorf("%d bytes above the limit", over)
	}
	if got := c1.held() + c2.held(); got != b.Used() {
		t.Errorf("caches hold %d bytes, the budget counts %d", got, b.Used())
	}
	c1.trim()
	c1.trim()
	if c1.held() != 0 || c2.held() == 0 {
		t.Errorf("after two trims %d bytes are held", c1.held())
	}
	c1.close()
	c2.close()
	if b.Used() != 0 {
		t.Errorf("closed caches left %d bytes counted", b.Used())
	}
}

func TestCacheThatFilledTheBudgetMakesRoomForAnother(t *testing.T) {
	dev, _ := numbered(t, 4<<20)
	b := NewBudget(0)
	greedy := newCache("slice", dev, testSlot, block.EventNone, b)
	late := newCache("slice", dev, testSlot, block.EventNone, b)
	for i := range 1024 {
		readSlot(t, greedy, layout.HostOffset(i*testSlot))
	}
	for range 10 {
		for i := range 24 {
			readSlot(t, late, layout.HostOffset(i*testSlot))
		}
	}
	if late.held() < 24*testSlot/2 {
		t.Errorf("the late cache holds %d bytes of %d", late.held(), b.Limit())
	}
}

func TestDirtySlicesAreKeptUntilWrittenThroughTheHook(t *testing.T) {
	dev, f := numbered(t, 4<<20)
	b := NewBudget(0)
	c := newCache("slice", dev, testSlot, block.EventNone, b)
	type write struct {
		off layout.HostOffset
		n   int64
	}
	var hooked []write
	var refuse error
	c.beforeWrite = func(_ context.Context, off layout.HostOffset, n int64) error {
		hooked = append(hooked, write{off, n})
		return refuse
	}
	edit := func(off layout.HostOffset) {
		s, err := c.get(context.Background(), off)
		if err != nil {
			t.Fatal(err)
		}
		s.Lock()
		s.data[0] = 0xee
		c.markDirty(s)
		c.markDirty(s)
		s.Unlock()
		s.release()
	}
	edit(0x5000)
	edit(0x3000)
	edit(0x4000)
	edit(0x9000)
	for i := range 1024 {
		if off := layout.HostOffset(i * testSlot); off != 0x3000 && off != 0x4000 && off != 0x5000 && off != 0x9000 {
			readSlot(t, c, off)
		}
	}
	if c.dirtyBytes() != 4*testSlot || f.Bytes()[0x3000] == 0xee {
		t.Fatalf("%d bytes dirty after eviction pressure", c.dirtyBytes())
	}
	refuse = errors.New("not now")
	if err := c.flush(context.Background()); !errors.Is(err, refuse) || c.dirtyBytes() != 4*testSlot || f.Bytes()[0x3000] == 0xee {
		t.Fatalf("refused flush: %v, %d bytes dirty", err, c.dirtyBytes())
	}
	refuse, hooked = nil, nil
	if err := c.flush(context.Background()); err != nil || c.dirtyBytes() != 0 {
		t.Fatalf("%v, %d bytes dirty", err, c.dirtyBytes())
	}
	if len(hooked) != 2 || hooked[0] != (write{0x3000, 3 * testSlot}) || hooked[1] != (write{0x9000, testSlot}) {
		t.Errorf("hook saw %v", hooked)
	}
	for _, off := range []int{0x3000, 0x4000, 0x5000, 0x9000} {
		if f.Bytes()[off] != 0xee {
			t.Errorf("slice %#x was not written", off)
		}
	}
	if err := c.flush(context.Background()); err != nil || len(hooked) != 2 {
		t.Error("a second flush wrote again")
	}
}

func TestWriteBackLeavesNoMoreThanAsked(t *testing.T) {
	dev, _ := numbered(t, 1<<20)
	c := newCache("slice", dev, testSlot, block.EventNone, NewBudget(0))
	for i := range 10 {
		s := c.create(layout.HostOffset(i * testSlot))
		c.markDirty(s)
		s.Unlock()
		s.release()
	}
	if err := c.writeBack(context.Background(), 3*testSlot); err != nil || c.dirtyBytes() != 3*testSlot {
		t.Fatal(err, c.dirtyBytes())
	}
	if err := c.flush(context.Background()); err != nil || c.dirtyBytes() != 0 {
		t.Fatal(err, c.dirtyBytes())
	}
}

func TestDroppedSlicesAreDeadForHoldersAndNeverWritten(t *testing.T) {
	dev, f := numbered(t, 1<<20)
	c := newCache("slice", dev, testSlot, block.EventNone, NewBudget(0))
	s, err := c.get(context.Background(), 0x2000)
	if err != nil {
		t.Fatal(err)
	}
	s.Lock()
	s.data[0] = 0xee
	c.markDirty(s)
	s.Unlock()
	c.drop(0x1000, 3*testSlot)
	s.RLock()
	dead := s.dead
	s.RUnlock()
	s.release()
	if err := c.flush(context.Background()); err != nil || !dead || f.Bytes()[0x2000] == 0xee || c.dirtyBytes() != 0 || c.held() != 0 {
		t.Errorf("dead %v, %d dirty, %d held, %v", dead, c.dirtyBytes(), c.held(), err)
	}
	readSlot(t, c, 0x2000)
	n := c.create(0x2000) // replaces what a late reader loaded
	n.Unlock()
	n.release()
	if s, _ := c.get(context.Background(), 0x2000); s != n || s.data[9] != 0 {
		t.Error("create did not replace the slice")
	}
}

func TestSliceBeyondTheEndIsCorruptAndLeavesNothingBehind(t *testing.T) {
	dev, _ := numbered(t, 3*testSlot-1)
	b := NewBudget(0)
	c := newCache("L2 table", dev, testSlot, block.EventNone, b)
	for _, off := range []layout.HostOffset{2 * testSlot, 1 << 40, -testSlot, 1<<63 - testSlot} {
		if _, err := c.get(context.Background(), off); !errors.Is(err, block.ErrCorrupt) {
			t.Errorf("%v: %v", off, err)
		}
	}
	if b.Used() != 0 || c.held() != 0 {
		t.Errorf("%d bytes counted", b.Used())
	}
}

func TestTablePagesComeAndGoWithoutChangingEntries(t *testing.T) {
	dev, _ := numbered(t, 4<<20)
	b := NewBudget(0)
	tab, err := newTable("L1 table", dev, 4096, (4<<20-4096)/8, block.EventNone, b)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		i := r.Int64N(tab.n)
		if v, err := tab.get(context.Background(), i); err != nil || v != uint64(4096+8*i) {
			t.Fatal(i, v, err)
		}
	}
	if b.Used() > b.Limit() || b.Used() != tab.held() {
		t.Errorf("%d bytes used, %d held", b.Used(), tab.held())
	}
	if err := tab.store(context.Background(), 511, 1, 2); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int64]uint64{510: 4096 + 8*510, 511: 1, 512: 2, 513: 4096 + 8*513} {
		if v, err := tab.get(context.Background(), i); err != nil || v != want {
			t.Error(i, v, err)
		}
	}
	tab.close()
	if b.Used() != 0 {
		t.Errorf("%d bytes counted after close", b.Used())
	}
	for _, n := range []int64{(4 << 20) / 8, 1 << 62} {
		if _, err := newTable("L1 table", dev, 4096, n, block.EventNone, b); !errors.Is(err, block.ErrCorrupt) {
			t.Error(n, err)
		}
	}
}
