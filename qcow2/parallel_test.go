package qcow2

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"byre/block"
)

// Many goroutines read a chain through one budget that is far too small, by
// all ways at once.
func TestParallelReadsOfAChainWithASmallBudgetSeeTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	low, top := filepath.Join(dir, "low.qcow2"), filepath.Join(dir, "top.qcow2")
	mustCreate(t, low, "cluster_size=512", "8M")
	var cmds []string
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		off := r.IntN(8<<20-40000) &^ 511
		cmds = append(cmds, []string{"write -q -P 7 ", "write -q -z ", "write -q -P 99 "}[i%3]+strconv.Itoa(off)+" 30k")
	}
	script(t, low, cmds...)
	mustCreate(t, top, "cluster_size=4096", "-b", "low.qcow2", "-F", "qcow2", "8M")
	script(t, top, "write -q -c -P 1 0 4k", "write -q -c -P 2 4k 4k", "write -q -c -P 3 8k 4k", "write -q -P 4 1M 300k", "write -q -z 3M 100k")
	want := contents(t, top)
	dev := block.NewDevice(openChain(t, top, NewBudget(0)))
	defer dev.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(9, uint64(g)))
			buf := make([]byte, 1<<20)
			for range 60 {
				n := 1 + r.IntN(1<<r.IntN(21))
				off := r.IntN(len(want) - n)
				if r.IntN(3) == 0 {
					off, n = r.IntN(12000), 1+r.IntN(6000) // the compressed clusters
				}
				if err := dev.Readv(ctx, [][]byte{buf[:n/3], buf[n/3 : n]}, int64(off)); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(buf[:n], want[off:off+n]) {
					t.Errorf("%d bytes at %#x differ", n, off)
					return
				}
				if e, err := dev.Extent(ctx, int64(off), int64(len(want)-off), block.WantZero); err != nil {
					t.Error(err)
				} else if e.IsZero() && !allZero(want[off:e.End()]) {
					t.Errorf("%+v is not zero", e)
				}
			}
		}()
	}
	wg.Wait()
	if b := dev.Driver().(*Image).budget; b.Used() > b.Limit()+1<<20 {
		t.Errorf("%d bytes of cache", b.Used())
	}
}

func TestACancelledReadDoesNotSpoilTheOthers(t *testing.T) {
	p := filepath.Join(t.TempDir(), "c.qcow2")
	mustCreate(t, p, "cluster_size=4096", "4M")
	script(t, p, "write -q -c -P 1 0 4k", "write -P 2 4k 64k")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for range 20 {
		dev := block.NewDevice(openChain(t, p, nil))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c, buf := ctx, make([]byte, 100)
				if i%2 == 0 {
					c = cancelled
				}
				err := dev.Read(c, buf, int64(i%3*4096))
				if i%2 == 1 && err != nil {
					t.Error(err)
				}
				if i%2 == 0 && err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		dev.Close()
	}
}

// In steady state a request allocates nothing.
func TestReadsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools are not reliable under the race detector")
	}
	p := filepath.Join(t.TempDir(), "a.qcow2")
	mustCreate(t, p, "cluster_size=65536", "4M")
	script(t, p, "write -q -c -P 1 0 64k", "write -q -c -P 1 64k 64k", "write -P 2 1M 1M", "write -z 3M 64k")
	dev := device(t, p)
	buf := make([]byte, 128<<10)
	for name, read := range map[string]struct{ off, n int64 }{
		"4 KiB of data": {1<<20 + 4096, 4096}, "128 KiB of data": {1 << 20, 128 << 10}, "zeros": {3 << 20, 4096}, "nothing": {2 << 20, 65536},
		"part of a compressed cluster": {100, 4096}, "whole compressed cluster": {0, 65536}, "data and zeros": {3<<20 - 4096, 8192},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := dev.Read(ctx, buf[:read.n], read.off); err != nil {
				t.Fatal(err)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := dev.Extent(ctx, 1<<20, 3<<20, 0); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("extent: %v allocations", n)
	}
}
