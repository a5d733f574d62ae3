package qcow2

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"byre/block"
	"byre/storage/fault"
	"byre/storage/mem"
)

// TestEachIOOfEachOperationFailsInTurn: the error is reported, nothing that was flushed is lost, the image is sound
// and, unless the header's state became unknown, goes on working.
func TestEachIOOfEachOperationFailsInTurn(t *testing.T) {
	kinds := []opKind{doWrite, doZero, doZeroUnmap, doDiscard, doCompressed, doFlush, doResize, doSnapshot, doApply, doDelete}
	list := flavours()
	for n, f := range list {
		if testing.Short() && n%3 != 0 {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			for _, k := range kinds {
				for seed := range uint64(rounds(2)) {
					failEach(t, f, k, seed)
				}
			}
		})
	}
}

// failEach fails the i-th request of one operation, for all i, each time on a fresh copy of the same image.
func failEach(t *testing.T, f flavour, k opKind, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, uint64(k)))
	b := newBench(t, f.o, f.open, testBase(f))
	weights := defaultWeights
	weights[doReopen] = 0
	for range 25 {
		if err := b.do(randomOp(rnd, b, weights)); err != nil {
			t.Fatal(err)
		}
	}
	var only [numOps]int
	only[k] = 1
	next := randomOp(rnd, b, only)
	b.close()
	for i := 0; ; i++ {
		var copyOf = *b
		copyOf.img = b.img.Clone()
		if b.data != nil {
			copyOf.data = b.data.Clone()
		}
		copyOf.model = append([]byte(nil), b.model...)
		copyOf.saved = make(map[string][]byte)
		for n, m := range b.saved {
			copyOf.saved[n] = m
		}
		if !failOne(t, &copyOf, next, i, []syscall.Errno{syscall.EIO, syscall.ENOSPC}[i&1]) {
			return
		}
	}
}

// failOne fails request i of what follows the open. It reports false if there were not that many.
func failOne(t *testing.T, b *bench, next op, i int, errno syscall.Errno) bool {
	t.Helper()
	var count atomic.Int64
	count.Store(-1 << 40)
	hit := false
	below := block.NewDevice(b.img.Open(mem.Options{GrowStep: 1 << 16}))
	fd, err := fault.New(below, fault.Config{Hook: func(ty fault.IOType, off, n int64) error {
		if count.Add(1) != int64(i+1) {
			return nil
		}
		hit = true
		kind := block.KindIO
		if errno == syscall.ENOSPC {
			kind = block.KindNoSpace
		}
		return &block.Error{Kind: kind, Op: ty.String(), Path: "image", Offset: off, Err: errno}
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := b.open
	if b.data != nil {
		o.DataFile = block.NewDevice(b.data.Open(mem.Options{}))
	}
	im, err := Open(b.ctx, block.NewDevice(fd), o)
	if err != nil {
		t.Fatal(err)
	}
	var back *block.Device
	if b.base != nil {
		f := mem.NewFile("base", 0)
		f.WriteAt(b.base, 0)
		back = block.NewDevice(f.Open(mem.Options{ReadOnly: true}))
	}
	im.SetBacking(back)
	b.im, b.dev = im, block.NewDevice(im)
	name := fmt.Sprintf("%v, request %d fails with %v", next, i, errno)

	e := crashExpect{model: append([]byte(nil), b.model...), sizes: map[int64]bool{int64(len(b.model)): true}, saved: copySaved(b.saved)}
	from, to := next.off, next.off+next.n
	switch cs := im.geo.ClusterSize(); next.kind {
	case doDiscard:
		from, to = from&^(cs-1), (to+cs-1)&^(cs-1)
	case doResize:
		from, to = min(next.n, int64(len(b.model))), 1<<62
		e.sizes[next.n] = true
	case doSnapshot, doApply, doDelete:
		e.under = &crashStep{op: next, model: e.model}
	}
	e.touch = func(a, z int64) bool { return a < to && from < z }
	count.Store(0)
	first := b.do(next)
	flushed := b.dev.Flush(b.ctx)
	count.Store(1 << 40)
	if hit && first == nil && flushed == nil {
		// A request may fail without harm (a discard of the host file, a hint): then everything must be as if it had not.
		e.touch = func(int64, int64) bool { return false }
		e.model, e.saved, e.under = b.model, b.saved, nil
		e.sizes = map[int64]bool{int64(len(b.model)): true}
	}
	// Later requests work, unless nobody knows what the header says.
	if im.w.broke.Load() == nil {
		if err := e.judge(b.dev); err != nil {
			t.Fatalf("%s (%v, %v): %v", name, first, flushed, err)
		}
		p := pattern(0x77, 512)
		if err := b.dev.Write(b.ctx, p, 0, block.FUA); err != nil {
			t.Fatalf("%s (%v, %v): a later write: %v", name, first, flushed, err)
		}
		old := e.touch
		e.touch = func(a, z int64) bool { return a < 512 || old(a, z) }
	}
	_ = b.dev.Close() // its error, if any, was told
	if err := judgeCheck(b.img); err != nil {
		t.Fatalf("%s (%v, %v): %v", name, first, flushed, err)
	}
	b.im, b.dev = nil, nil
	b.reopen()
	if err := e.judge(b.dev); err != nil {
		t.Fatalf("%s (%v, %v), reopened: %v", name, first, flushed, err)
	}
	b.close()
	return hit
}

func copySaved(m map[string][]byte) map[string][]byte {
	c := make(map[string][]byte, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
