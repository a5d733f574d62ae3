//go:build linux

package file

import (
	"path/filepath"
	"testing"

	"byre/block"
)

func TestCountersTellSystemCallsAndFlushes(t *testing.T) {
	f, err := Create(t.Context(), filepath.Join(t.TempDir(), "a"), Options{Engine: EngineThreads}, CreateOptions{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func() map[string]int64 {
		m := map[string]int64{}
		f.Counters(func(name string, n int64) { m[name] += n })
		return m
	}
	before := read()
	dev := block.NewDevice(f)
	for i := range int64(10) {
		if err := dev.Write(t.Context(), make([]byte, 512), i*512, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the second and third have nothing to do
		if err := dev.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	after := read()
	if s, fl := after["syscalls"]-before["syscalls"], after["flushes"]-before["flushes"]; s != 11 || fl != 1 {
		t.Errorf("%d system calls, %d flushes; want 11, 1", s, fl)
	}
}
