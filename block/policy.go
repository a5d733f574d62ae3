package block

import (
	"bytes"
	"context"
)

// DetectZeroes says whether writes of nothing but zeros are turned into zero requests.
type DetectZeroes uint8

const (
	DetectOff   DetectZeroes = iota
	DetectOn                 // they are
	DetectUnmap              // and may give space back
)

// Policy is what a device does to the requests of all its users.
type Policy struct {
	WriteThrough bool // every write and zero request has FUA
	// IgnoreDiscard: discards do nothing, and zeroes never give space back.
	IgnoreDiscard bool
	DetectZeroes  DetectZeroes
}

// SetPolicy changes the policy, which is the zero Policy at first. Requests in flight keep the old one.
func (d *Device) SetPolicy(p Policy) {
	if p == (Policy{}) {
		d.policy.Store(nil)
		return
	}
	d.policy.Store(&p)
}

// flags applies the policy to the flags of a write or zero request.
func (p *Policy) flags(f Flags) Flags {
	if p.WriteThrough {
		f |= FUA
	}
	if p.IgnoreDiscard {
		f &^= MayUnmap
	}
	return f
}

// zeroWrite does a write of n bytes of zeros as a zero request; done tells whether that happened.
func (p *Policy) zeroWrite(ctx context.Context, d *Device, iov [][]byte, off, n int64, flags Flags) (done bool, err error) {
	if p.DetectZeroes == DetectOff || flags&Compressed != 0 || !allZero(iov) {
		return false, nil
	}
	if p.DetectZeroes == DetectUnmap {
		flags |= MayUnmap
	}
	return true, d.Zero(ctx, off, n, flags)
}

var zeroPage [4096]byte

func allZero(iov [][]byte) bool {
	for _, b := range iov {
		for len(b) > 0 {
			n := min(len(b), len(zeroPage))
			if !bytes.Equal(b[:n], zeroPage[:n]) {
				return false
			}
			b = b[n:]
		}
	}
	return true
}
