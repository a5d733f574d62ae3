//go:build linux

package ioqueue

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"byre/internal/iobuf"

	"golang.org/x/sys/unix"
)

type maker struct {
	name string
	new  func(fd, depth int) (*Queue, error)
}

var makers = []maker{{"io_uring", NewURing}, {"aio", NewAIO}}

func file(t *testing.T, flags int) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func vec(bufs ...[]byte) (v []unix.Iovec) {
	for _, b := range bufs {
		x := unix.Iovec{Base: &b[0]}
		x.SetLen(len(b))
		v = append(v, x)
	}
	return v
}

func TestTheKernelMovesWhatManyGoroutinesAsk(t *testing.T) {
	for _, m := range makers {
		for _, flags := range []int{unix.O_RDWR, unix.O_RDWR | unix.O_DIRECT} {
			t.Run(fmt.Sprintf("%s direct=%v", m.name, flags != unix.O_RDWR), func(t *testing.T) {
				q, err := m.new(file(t, flags), 8)
				if err != nil {
					t.Skip(err)
				}
				within(t, func() {
					var wg sync.WaitGroup
					for w := range int64(24) {
						wg.Go(func() {
							buf, back := iobuf.Get(8192), iobuf.Get(8192)
							defer iobuf.Put(buf)
							defer iobuf.Put(back)
							r := &Request{}
							for round := range byte(20) {
								for i := range buf {
									buf[i] = byte(w) ^ round
								}
								r.Op, r.Off, r.Iov = OpWrite, w*8192, vec(buf[:4096], buf[4096:])
								if n, err := q.Do(r); n != 8192 || err != nil {
									t.Errorf("write: %d, %v", n, err)
									return
								}
								r.Op, r.Iov = OpRead, vec(back)
								if n, err := q.Do(r); n != 8192 || err != nil || !bytes.Equal(buf, back) {
									t.Errorf("read: %d, %v, equal %v", n, err, bytes.Equal(buf, back))
									return
								}
							}
						})
					}
					wg.Wait()
					if err := q.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestWhatTheKernelRefusesIsTheErrorOfThatRequestAlone(t *testing.T) {
	for _, m := range makers {
		t.Run(m.name, func(t *testing.T) {
			q, err := m.new(file(t, unix.O_RDONLY), 8)
			if err != nil {
				t.Skip(err)
			}
			within(t, func() {
				var wg sync.WaitGroup
				for w := range 16 {
					wg.Go(func() {
						buf := iobuf.Get(4096)
						defer iobuf.Put(buf)
						for range 50 {
							r := &Request{Op: OpWrite, Iov: vec(buf)}
							want := unix.EBADF
							if w%2 == 0 { // a read of the empty file beside it succeeds
								r.Op, want = OpRead, 0
							}
							if n, err := q.Do(r); n != 0 || want == 0 && err != nil || want != 0 && err != want {
								t.Errorf("op %d: %d, %v", r.Op, n, err)
								return
							}
						}
					})
				}
				wg.Wait()
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFlushAndFallocateGoThroughTheRing(t *testing.T) {
	fd := file(t, unix.O_RDWR)
	q, err := NewURing(fd, 4)
	if err != nil {
		t.Skip(err)
	}
	defer q.Close()
	if _, err := q.Do(&Request{Op: OpFallocate, Off: 4096, Len: 8192}); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st); st.Size != 12288 {
		t.Errorf("size %d", st.Size)
	}
	if _, err := q.Do(&Request{Op: OpFdatasync}); err != nil {
		t.Error(err)
	}
}
