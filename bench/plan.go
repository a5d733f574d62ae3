package bench

import "math/bits"

// Mode is the kind of a workload.
type Mode uint8

const (
	Read      Mode = iota // sequential: each request a step behind the one before
	Write                 // likewise
	RandRead              // at random multiples of the step
	RandWrite             // likewise
	Mix                   // random reads and writes
)

var modeNames = [...]string{"read", "write", "randread", "randwrite", "mix"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode finds a mode by its name.
func ParseMode(s string) (Mode, bool) {
	for i, n := range modeNames {
		if n == s {
			return Mode(i), true
		}
	}
	return 0, false
}

// Writes reports whether a workload of this mode writes.
func (m Mode) Writes() bool { return m != Read && m != RandRead }

// plan computes the place of every request from its number.
type plan struct {
	mode      Mode
	first     int64 // offset of request 0, and the lowest one of random modes
	length    int64
	step      int64
	size      int64 // of the image
	slots     uint64
	seed      uint64
	readShare uint64 // of 1<<32; for Mix
}

func newPlan(o *Options, size int64) plan {
	p := plan{mode: o.Mode, first: o.Offset, length: o.Size, step: o.Step, size: size, seed: o.Seed}
	if p.step == 0 {
		p.step = p.length
	}
	p.readShare = uint64(o.ReadShare * (1 << 32))
	p.slots = 1
	if span := size - p.first; span > 0 && p.step > 0 {
		p.slots = max(1, uint64(span/p.step))
	}
	return p
}

// request is one unit of work.
type request struct {
	off, n int64
	write  bool
}

// at returns request i. The classic sequence goes round at the end of the image; a request that would cross the end is
// shortened there. One that starts behind the end is left as it is, and fails.
func (p *plan) at(i int64) request {
	r := request{off: p.first, n: p.length, write: p.mode == Write}
	switch {
	case p.mode >= RandRead:
		h := mix(p.seed, uint64(i))
		slot, _ := bits.Mul64(h, p.slots)
		r.off += int64(slot) * p.step
		r.write = p.mode == RandWrite || p.mode == Mix && mix(h, 1)>>32 >= p.readShare
	case i > 0 && p.size > 0:
		hi, lo := bits.Mul64(uint64(p.step), uint64(i))
		lo, carry := bits.Add64(lo, uint64(p.first), 0)
		_, rem := bits.Div64((hi+carry)%uint64(p.size), lo, uint64(p.size))
		r.off = int64(rem)
	}
	if r.off < p.size && r.n > p.size-r.off {
		r.n = p.size - r.off
	}
	return r
}

// mix is a hash of two words (the finalizer of splitmix64).
func mix(seed, i uint64) uint64 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
