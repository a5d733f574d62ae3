package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// contents says what written bytes are: the same byte everywhere, or stamps that depend on the place, so that data
// that went astray is noticed. Overlapping requests agree about every byte.
type contents struct {
	stamped bool
	pattern byte
	seed    uint64
}

// fill writes the contents of [off, off+len(p)) into p.
func (c *contents) fill(p []byte, off int64) {
	if !c.stamped {
		for i := range p {
			p[i] = c.pattern
		}
		return
	}
	for len(p) > 0 && off&7 != 0 {
		p[0] = c.stamp(off)
		p, off = p[1:], off+1
	}
	for ; len(p) >= 8; p, off = p[8:], off+8 {
		binary.LittleEndian.PutUint64(p, mix(c.seed, uint64(off)>>3))
	}
	for i := range p {
		p[i] = c.stamp(off + int64(i))
	}
}

func (c *contents) stamp(off int64) byte {
	return byte(mix(c.seed, uint64(off)>>3) >> (8 * (uint64(off) & 7)))
}

// check compares p, read from off, with what must be there; scratch is at least as long as p.
func (c *contents) check(p []byte, off int64, scratch []byte) error {
	want := scratch[:len(p)]
	c.fill(want, off)
	if bytes.Equal(p, want) {
		return nil
	}
	for i := range p {
		if p[i] != want[i] {
			return &VerifyError{Offset: off + int64(i), Got: p[i], Want: want[i]}
		}
	}
	return nil
}

// VerifyError is the first byte that was not what it must be.
type VerifyError struct {
	Offset    int64
	Got, Want byte
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("verification failed at offset %#x: read %#02x, want %#02x", e.Offset, e.Got, e.Want)
}
