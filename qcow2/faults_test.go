package qcow2

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"byre/block"
	"byre/storage/mem"
)

var errInjected = errors.New("injected")

// flaky fails one read of a driver and hears its events.
type flaky struct {
	block.Driver
	reads  atomic.Int64
	failAt int64
	events [block.NumEvents]atomic.Int64
}

func (f *flaky) ReadvAt(ctx context.Context, iov [][]byte, off int64) error {
	if f.reads.Add(1) == f.failAt {
		return &block.Error{Kind: block.KindIO, Op: "read", Path: "flaky", Offset: off, Err: errInjected}
	}
	return f.Driver.ReadvAt(ctx, iov, off)
}

func (f *flaky) Event(_ context.Context, e block.Event) error {
	f.events[e].Add(1)
	return nil
}

func TestEveryReadThatFailsIsReportedAndSpoilsNothing(t *testing.T) {
	f := sampleImage(t, "cluster_size=4096", true)
	base := bytes.Repeat([]byte{0xbb}, 1<<20)
	read := func(failAt int64) (reads int64, b []byte, first, again error) {
		d := &flaky{Driver: f.Open(mem.Options{ReadOnly: true}), failAt: failAt}
		im, err := Open(ctx, block.NewDevice(d), Options{})
		if err != nil {
			return 0, nil, err, nil
		}
		low := mem.NewFile("base", 0)
		if _, err := low.WriteAt(base, 0); err != nil {
			t.Fatal(err)
		}
		im.SetBacking(block.NewDevice(low.Open(mem.Options{ReadOnly: true})))
		dev := block.NewDevice(im)
		defer dev.Close()
		all := func() error {
			b = make([]byte, dev.Size())
			if err := dev.Read(ctx, b[:5000], 0); err != nil {
				return err
			}
			if _, err := im.Info(ctx); err != nil {
				return err
			}
			for off := int64(0); off < dev.Size(); {
				e, err := dev.Extent(ctx, off, dev.Size()-off, block.WantZero)
				if err != nil {
					return err
				}
				off = e.End()
			}
			return dev.Read(ctx, b, 0)
		}
		first = all()
		reads = d.reads.Load()
		again = all()
		return reads, b, first, again
	}
	total, want, err, _ := read(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(1); i <= total; i++ {
		_, b, err, again := read(i)
		if !errors.Is(err, errInjected) || block.KindOf(err) != block.KindIO {
			t.Fatalf("read %d of %d failed, and the result is %v", i, total, err)
		}
		if b == nil {
			continue // Open failed
		}
		if again != nil {
			t.Fatalf("after read %d failed, another try fails: %v", i, again)
		}
		diff(t, "a second try", b, want)
	}
}

func TestReadingFiresItsNamedEvents(t *testing.T) {
	p := filepath.Join(t.TempDir(), "e.qcow2")
	mustCreate(t, p, "cluster_size=4096", "1M")
	script(t, p, "write -q -c -P 1 0 4k", "write -P 2 64k 64k")
	d := &flaky{Driver: load(t, p).Open(mem.Options{ReadOnly: true})}
	im, err := Open(ctx, block.NewDevice(d), Options{})
	if err != nil {
		t.Fatal(err)
	}
	base := mem.NewFile("base", 1<<20)
	im.SetBacking(block.NewDevice(base.Open(mem.Options{ReadOnly: true})))
	dev := block.NewDevice(im)
	defer dev.Close()
	if err := dev.Read(ctx, make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	for _, e := range []block.Event{block.EventL2Load, block.EventReadAIO, block.EventReadBackingAIO, block.EventReadCompressed} {
		if d.events[e].Load() == 0 {
			t.Errorf("event %v was not fired", e)
		}
	}
}
