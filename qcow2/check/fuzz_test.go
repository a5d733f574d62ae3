package check

import (
	"bytes"
	"context"
	"testing"
	"time"

	"byre/block"
	"byre/storage/mem"
)

// FuzzCheck: whatever the bytes, check and repair end in bounded time without a panic, a check changes nothing, and a repair that
// calls the image clean is confirmed by another check.
func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		check := func(b []byte, level Level) (int, []byte) {
			d := block.NewDevice(mem.New(int64(len(b))))
			defer d.Close()
			if len(b) > 0 {
				if _, err := d.WriteAt(b, 0); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			r, err := Run(ctx, d, Options{Repair: level, Workers: 1, Discard: true, Report: func(f *Finding) { _ = f.String() }})
			if ctx.Err() != nil {
				t.Fatal("takes too long")
			}
			if d.Size() > int64(len(b))+32<<20 {
				t.Fatalf("the repair made a file of %d bytes out of %d", d.Size(), len(b))
			}
			return exitCode(r, err), contents(t, d)
		}
		_, after := check(b, Nothing)
		if !bytes.Equal(after, b) {
			t.Fatal("a check changed the image")
		}
		for _, level := range []Level{Leaks, All} {
			code, after := check(b, level)
			if code != 0 {
				continue
			}
			if again, _ := check(after, Nothing); again != 0 {
				t.Fatalf("level %d ends clean, another check with %d", level, again)
			}
		}
	})
}
