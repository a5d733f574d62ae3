//go:build linux

package ioqueue

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"byre/internal/iobuf"

	"golang.org/x/sys/unix"
)

// BenchmarkDirect measures 4 KiB direct requests on the file or block device named by BYRE_BENCH_FILE.
func BenchmarkDirect(b *testing.B) {
	path := os.Getenv("BYRE_BENCH_FILE")
	if path == "" {
		b.Skip("BYRE_BENCH_FILE is not set")
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	size, _ := unix.Seek(fd, 0, unix.SEEK_END)
	for _, kind := range []string{"uring", "aio"} {
		for _, op := range []Op{OpWrite, OpRead} {
			for _, depth := range []int{1, 2, 8, 32, 64} {
				b.Run(fmt.Sprintf("%s/%s/depth%d", kind, [...]string{"read", "write"}[op], depth), func(b *testing.B) {
					var q *Queue
					if kind == "uring" {
						q, err = NewURing(fd, 128)
					} else {
						q, err = NewAIO(fd, 128)
					}
					if err != nil {
						b.Fatal(err)
					}
					defer q.Close()
					run(b, q, op, depth, size)
				})
			}
		}
	}
}

func run(b *testing.B, q *Queue, op Op, depth int, size int64) {
	var next atomic.Int64
	k := &counting{Kernel: q.k}
	q.k = k
	var ru0, ru1 unix.Rusage
	b.ReportAllocs()
	unix.Getrusage(unix.RUSAGE_SELF, &ru0)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range depth {
		wg.Go(func() {
			buf := iobuf.Get(4096)
			defer iobuf.Put(buf)
			r := &Request{}
			iov := make([]unix.Iovec, 1)
			for {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					return
				}
				iov[0].Base = unsafe.SliceData(buf)
				iov[0].SetLen(4096)
				r.Op, r.Iov, r.Off = op, iov, i*4096%size
				if n, err := q.Do(r); err != nil || n != 4096 {
					b.Errorf("%d %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	unix.Getrusage(unix.RUSAGE_SELF, &ru1)
	cs := ru1.Nvcsw - ru0.Nvcsw + ru1.Nivcsw - ru0.Nivcsw
	n := float64(b.N)
	b.ReportMetric(float64(k.submits.Load())/n, "submits/op")
	b.ReportMetric(float64(k.enters.Load())/n, "enters/op")
	b.ReportMetric(float64(k.waits.Load())/n, "waits/op")
	b.ReportMetric(float64(k.reaps.Load())/n, "reaps/op")
	b.ReportMetric(float64(cs)/float64(b.N), "switches/op")
	cpu := func(r *unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
	b.ReportMetric(float64(cpu(&ru1)-cpu(&ru0))/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "IOPS")
}
