//go:build unix

package inflate

import (
	"encoding/binary"
	"os"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var ru syscall.Rusage
	syscall.Getrusage(0, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func TestLocalSpeed(t *testing.T) {
	data, err := os.ReadFile(os.Getenv("CORPUS"))
	if err != nil {
		t.Skip()
	}
	var s [][]byte
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		s = append(s, data[4:4+n:4+n])
		data = data[4+n:]
	}
	dst := make([]byte, 65536)
	var d Decoder
	for range 4 {
		t0 := cpu()
		for _, x := range s {
			if _, _, err := d.Decode(dst, x); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("own %.1f MB/s", float64(len(s)*65536)/1e6/(cpu()-t0).Seconds())
	}
}
