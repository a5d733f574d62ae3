package check

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"byre/block"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

// sparse builds images in memory that claim much and hold little.
type sparse struct {
	t *testing.T
	f *mem.File
	h layout.Header
}

func newSparse(t *testing.T, clusterBits, order uint32, size int64) *sparse {
	s := &sparse{t: t, f: mem.NewFile("hostile", size)}
	s.h = layout.Header{Version: 3, ClusterBits: clusterBits, RefcountOrder: order}
	return s
}

func (s *sparse) write(off int64, b []byte) {
	s.t.Helper()
	if _, err := s.f.WriteAt(b, off); err != nil {
		s.t.Fatal(err)
	}
}

// words writes n entries.
func (s *sparse) words(off int64, n int, v func(i int) uint64) {
	b := make([]byte, 8*n)
	for i := range n {
		binary.BigEndian.PutUint64(b[8*i:], v(i))
	}
	s.write(off, b)
}

// onDisk is memory that takes what a sparse file with these contents takes on a disk.
type onDisk struct{ *mem.Driver }

func (onDisk) AllocatedSize(context.Context) (int64, error) { return 64 << 20, nil }

// check runs all levels within limits.
func (s *sparse) check(limit uint64) {
	s.t.Helper()
	head, err := s.h.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(0, head[:512])
	for _, level := range []Level{Nothing, Leaks, All} {
		f := s.f.Clone()
		d := block.NewDevice(onDisk{f.Open(mem.Options{})})
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		var peak uint64
		done, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				}
			}
		}()
		var was runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&was)
		start := time.Now()
		r, err := Run(ctx, d, Options{Repair: level})
		close(done)
		<-gone
		s.t.Logf("level %d: %v, %d MiB, %+v %v", level, time.Since(start).Round(time.Millisecond), (max(peak, was.HeapAlloc)-was.HeapAlloc)>>20, r, err)
		if ctx.Err() != nil {
			s.t.Errorf("level %d takes too long", level)
		}
		if peak > was.HeapAlloc+limit<<20 {
			s.t.Errorf("level %d takes %d MiB, the limit is %d", level, (peak-was.HeapAlloc)>>20, limit)
		}
		cancel()
		d.Close()
	}
}

const exa = int64(1) << 60

func TestClaimsTakeNeitherMemoryNorTime(t *testing.T) {
	if testing.Short() {
		t.Skip("large tables")
	}
	t.Run("tables of the largest sizes in holes of a huge file", func(t *testing.T) {
		s := newSparse(t, 21, 0, 7*exa)
		s.h.L1TableOffset, s.h.L1Size = 1<<40, layout.MaxL1Entries
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<41, layout.MaxRefTableBytes>>21
		s.h.SnapshotsOffset, s.h.NbSnapshots = 1<<42, layout.MaxSnapshots
		s.check(200)
	})
	t.Run("every L1 entry names the same full L2 table", func(t *testing.T) {
		s := newSparse(t, 21, 6, 1<<45)
		s.h.L1TableOffset, s.h.L1Size = 4<<21, layout.MaxL1Entries
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<21, 1
		s.words(1<<21, 1, func(int) uint64 { return 2 << 21 })
		s.words(4<<21, layout.MaxL1Entries, func(int) uint64 { return 3 << 21 })
		s.words(3<<21, 1<<18, func(i int) uint64 { return uint64(i+100) << 21 })
		s.check(250)
	})
	t.Run("snapshots whose L1 tables lie in one another", func(t *testing.T) {
		s := newSparse(t, 16, 6, 1<<40)
		const l1, n = 1 << 30, 65536
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<16, 1
		s.words(l1, 1<<17, func(i int) uint64 { return 1<<32 + uint64(i)<<16 })
		s.h.SnapshotsOffset, s.h.NbSnapshots = 1<<20, n
		var table []byte
		for i := range n {
			table = layout.AppendSnapshot(table, &layout.Snapshot{L1TableOffset: l1 + layout.HostOffset(i%64)<<16, L1Size: uint32(1<<17 + i), ID: "1", Name: "a"})
		}
		s.write(1<<20, table)
		s.check(250)
	})
	t.Run("every refcount table entry names the same full block", func(t *testing.T) {
		s := newSparse(t, 21, 0, 7*exa)
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<21, 4
		s.words(1<<21, 1<<20, func(int) uint64 { return 8 << 21 })
		s.words(8<<21, 1<<12, func(int) uint64 { return ^uint64(0) })
		s.check(250)
	})
	t.Run("every refcount table entry names a block in a hole", func(t *testing.T) {
		s := newSparse(t, 21, 0, 7*exa)
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<21, 4
		s.words(1<<21, 1<<20, func(i int) uint64 { return uint64(i+16) << 21 })
		s.check(350)
	})
	t.Run("every L2 entry lies far from its neighbour", func(t *testing.T) {
		s := newSparse(t, 9, 4, 1<<55)
		s.h.L1TableOffset, s.h.L1Size = 1<<12, 1<<12
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<9, 1
		s.words(1<<12, 1<<12, func(i int) uint64 { return 1<<20 + uint64(i)<<9 })
		s.words(1<<20, 1<<17, func(i int) uint64 { return uint64(i+1) << 37 })
		s.check(250)
	})
	t.Run("L2 tables of the largest size in holes", func(t *testing.T) {
		s := newSparse(t, 21, 4, 1<<60)
		s.h.L1TableOffset, s.h.L1Size = 4<<21, layout.MaxL1Entries/4
		s.h.RefcountTableOffset, s.h.RefcountTableClusters = 1<<21, 1
		s.words(4<<21, layout.MaxL1Entries/4, func(i int) uint64 { return uint64(i+1) << 30 })
		s.check(250)
	})
}
