package qcow2

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"byre/block"
)

// snapshotVariants are the flavours that the histories below run over.
func snapshotVariants() map[string]CreateOptions {
	return map[string]CreateOptions{
		"default":        {Size: 8 << 20},
		"512":            {Size: 200 << 10, ClusterSize: 512},
		"4k wide":        {Size: 3 << 20, ClusterSize: 4096, RefcountBits: 64},
		"2 bits":         {Size: 3 << 20, ClusterSize: 4096, RefcountBits: 2},
		"v2":             {Size: 3 << 20, ClusterSize: 4096, Version: 2},
		"extended":       {Size: 4 << 20, ClusterSize: 16384, ExtendedL2: true},
		"lazy":           {Size: 3 << 20, ClusterSize: 4096, LazyRefcounts: true},
		"preallocated":   {Size: 3 << 20, ClusterSize: 4096, Prealloc: block.PreallocMetadata},
		"with a backing": {Size: 3 << 20, ClusterSize: 4096},
	}
}

func TestSnapshotHistoriesKeepEveryState(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(snapshotVariants())) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				snapshotHistory(t, snapshotVariants()[name], seed, name == "with a backing")
			}
		})
	}
}

// snapshotHistory writes, resizes, takes, applies and deletes snapshots at random, beside a model of each state.
func snapshotHistory(t *testing.T, o CreateOptions, seed uint64, backed bool) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	var base []byte
	if backed {
		base = randomBytes(rnd, o.Size+70000&^511)
	}
	b := newBench(t, o, Options{}, base)
	saved := map[string][]byte{}
	for step := range 60 {
		switch k := rnd.IntN(10); {
		case k < 5:
			n := 1 + rnd.Int64N(min(40000, int64(len(b.model))))
			b.write(randomBytes(rnd, n), rnd.Int64N(int64(len(b.model))-n+1))
		case k == 5:
			name := fmt.Sprint("s", step)
			_, err := b.im.CreateSnapshot(b.ctx, SnapshotOptions{Name: name})
			if o.RefcountBits == 2 && errors.Is(err, block.ErrUnsupported) {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: create: %v", seed, step, err)
			}
			saved[name] = slices.Clone(b.model)
		case k == 6 && len(saved) > 0:
			name := slices.Sorted(maps.Keys(saved))[rnd.IntN(len(saved))]
			err := b.im.ApplySnapshot(b.ctx, name)
			if o.RefcountBits == 2 && errors.Is(err, block.ErrUnsupported) {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: apply: %v", seed, step, err)
			}
			b.model = slices.Clone(saved[name])
		case k == 7 && len(saved) > 0:
			name := slices.Sorted(maps.Keys(saved))[rnd.IntN(len(saved))]
			if err := b.im.DeleteSnapshot(b.ctx, "", name); err != nil {
				t.Fatalf("seed %d, step %d: delete: %v", seed, step, err)
			}
			delete(saved, name)
		case k == 8 && (o.Version != 2 || len(saved) == 0 && !backed):
			b.resize(max(4096, (o.Size/2+rnd.Int64N(o.Size))&^511))
		case k == 9:
			b.reopen()
		}
		if step%10 == 9 {
			b.verify()
			b.verifySnapshots(saved)
			b.close()
			b.judge()
			b.reopen()
		}
	}
	b.close()
}

func (b *bench) resize(size int64) {
	b.t.Helper()
	if err := b.dev.Resize(b.ctx, size, block.ResizeOptions{}); err != nil {
		b.t.Fatalf("resize to %d: %v", size, err)
	}
	old := int64(len(b.model))
	if size <= old {
		b.model = b.model[:size:size]
		return
	}
	b.model = append(b.model, make([]byte, size-old)...)
}

func (b *bench) verifySnapshots(saved map[string][]byte) {
	b.t.Helper()
	for name, want := range saved {
		s, err := b.im.OpenSnapshot(name)
		if err != nil {
			b.t.Fatalf("open snapshot %s: %v", name, err)
		}
		if s.Size() != int64(len(want)) {
			b.t.Fatalf("snapshot %s has %d bytes, want %d", name, s.Size(), len(want))
		}
		got := make([]byte, len(want))
		if err := s.ReadvAt(b.ctx, [][]byte{got}, 0); err != nil {
			b.t.Fatal(err)
		}
		same(b.t, got, want)
		if err := s.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestVMStateBelongsToTheSnapshotOnly(t *testing.T) {
	b := newBench(t, CreateOptions{Size: 3 << 20, ClusterSize: 4096}, Options{}, nil)
	rnd := rand.New(rand.NewPCG(1, 1))
	state := randomBytes(rnd, 3<<20)
	if err := b.im.WriteVMState(b.ctx, state, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(state))
	if err := b.im.ReadVMState(b.ctx, got, 0); err != nil {
		t.Fatal(err)
	}
	same(t, got, state)
	if _, err := b.im.CreateSnapshot(b.ctx, SnapshotOptions{Name: "s", VMStateSize: uint64(len(state))}); err != nil {
		t.Fatal(err)
	}
	if err := b.im.ReadVMState(b.ctx, got, 0); err != nil {
		t.Fatal(err)
	}
	same(t, got, make([]byte, len(state)))
	b.resize(8 << 20)
	b.verify()
	if err := b.im.ApplySnapshot(b.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := b.im.ReadVMState(b.ctx, got, 0); err != nil {
		t.Fatal(err)
	}
	same(t, got, state)
	b.model = b.model[:3<<20]
	b.resize(8 << 20) // what was machine state must not become disk
	b.verify()
	b.close()
	b.judge()
}

func TestGrowthPreallocates(t *testing.T) {
	for _, ext := range []bool{false, true} {
		for _, m := range []block.PreallocMode{block.PreallocOff, block.PreallocMetadata, block.PreallocFull} {
			b := newBench(t, CreateOptions{Size: 1 << 20, ClusterSize: 16384, ExtendedL2: ext}, Options{}, nil)
			b.write(randomBytes(rand.New(rand.NewPCG(1, 2)), 1<<20), 0)
			if err := b.dev.Resize(b.ctx, 3<<20-512, block.ResizeOptions{Prealloc: m}); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			b.model = append(b.model, make([]byte, 2<<20-512)...)
			b.verify()
			e, err := b.dev.Extent(b.ctx, 2<<20, 4096, block.TopOnly)
			if err != nil {
				t.Fatal(err)
			}
			if has := e.Flags&block.HasHost != 0; has != (m != block.PreallocOff) {
				t.Errorf("%v, extended %v: extent %+v", m, ext, e)
			}
			b.close()
			b.judge()
		}
	}
}

func TestResizeRefusesWhatTheFormatCannotHave(t *testing.T) {
	b := newBench(t, CreateOptions{Size: 1 << 20, Version: 2}, Options{}, nil)
	if _, err := b.im.CreateSnapshot(b.ctx, SnapshotOptions{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	if err := b.dev.Resize(b.ctx, 2<<20, block.ResizeOptions{}); !errors.Is(err, block.ErrUnsupported) {
		t.Errorf("version 2 with a snapshot: %v", err)
	}
	b.close()
	b = newBench(t, CreateOptions{Size: 1 << 20, ClusterSize: 512}, Options{}, nil)
	if err := b.dev.Resize(b.ctx, 129<<30, block.ResizeOptions{}); !errors.Is(err, block.ErrOutOfBounds) {
		t.Errorf("129 GiB with clusters of 512 bytes: %v", err)
	}
	if err := b.dev.Resize(b.ctx, 1<<19, block.ResizeOptions{Prealloc: block.PreallocFull}); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("shrink with preallocation: %v", err)
	}
	b.close()
}
