package inflate

import (
	"math/bits"
	"sync"
)

const (
	maxCodeLen  = 15
	maxLitSyms  = 286 // 286 and 287 have fixed codes but no meaning
	maxDistSyms = 30  // so have 30 and 31
	endOfBlock  = 256

	litBits  = 11 // index width of the first level for literals and lengths
	distBits = 9  // the same for distances
	litMask  = 1<<litBits - 1
	distMask = 1<<distBits - 1

	litSize  = 4096
	distSize = 1024
)

// A table is looked up with the next litBits (distBits) bits of input. Codes
// that are longer lead to a second level behind it, indexed by the bits that
// follow. The sizes are powers of two above what complete codes of these
// alphabets can need (2342 and 594 entries), so that a masked index needs no
// bounds check.
type (
	litTable  [litSize]uint32
	distTable [distSize]uint32
	tables    struct {
		lit  litTable
		dist distTable
	}
)

// A table entry has the number of bits to consume in its low byte, extra bits
// included, and is one of
//
//	literal   entryLit set; bits 8-15 the byte.
//	length or distance: bits 8-11 the code length alone, 16-30 the base value,
//	          to which the value of the extra bits is added.
//	special   exactly one of entrySub (second level: bits 8-11 its index
//	          width, 16-30 where it starts), entryEnd, entryBad.
//
// Entries with two literals, where their codes fit the index together, were
// measured: what they spare in lookups they cost in mispredicted branches.
const (
	entryBad  = 1 << 13 // no such code, or a code without meaning
	entryEnd  = 1 << 14 // end of block
	entrySub  = 1 << 15
	entryLit  = 1 << 31
	entrySpec = entryBad | entryEnd | entrySub

	lenShift = 8 // where the code length of a length or distance is
)

// litProto and distProto hold the entry of every symbol without its code
// length; entryFor adds it.
var (
	litProto  [288]uint32
	distProto [32]uint32
)

func init() {
	for s := range 256 {
		litProto[s] = entryLit | uint32(s)<<8
	}
	litProto[endOfBlock] = entryEnd
	base := uint32(3)
	for s := 257; s < 285; s++ {
		extra := uint32(0)
		if s >= 265 {
			extra = uint32(s-261) / 4
		}
		litProto[s] = base<<16 | extra
		base += 1 << extra
	}
	litProto[285] = 258 << 16
	litProto[286], litProto[287] = entryBad, entryBad

	base = 1
	for s := range 30 {
		extra := uint32(0)
		if s >= 4 {
			extra = uint32(s-2) / 2
		}
		distProto[s] = base<<16 | extra
		base += 1 << extra
	}
	distProto[30], distProto[31] = entryBad, entryBad
}

// entryFor returns the entry of a symbol whose prototype is p for a code of n bits.
func entryFor(p uint32, n uint) uint32 {
	if p&entryLit != 0 {
		return p | uint32(n)
	}
	return p + uint32(n)<<lenShift + uint32(n)
}

// code is a canonical prefix code.
type code struct {
	count   [maxCodeLen + 1]uint16 // codes of each length
	symbols []uint16               // in the order of their codes
}

// sortCode orders the symbols of a code by code length, into sorted. It
// reports false if the lengths are no code that may be used: it must be
// complete, or have no symbol at all, or a single symbol of one bit.
func sortCode(lens []uint8, sorted []uint16) (c code, ok bool) {
	for _, n := range lens {
		c.count[n&15]++
	}
	unused := c.count[0]
	c.count[0] = 0
	var next [maxCodeLen + 2]uint16
	space := uint32(0)
	for n := 1; n <= maxCodeLen; n++ {
		next[n+1] = next[n] + c.count[n]
		space += uint32(c.count[n]) << (maxCodeLen - n)
	}
	used := len(lens) - int(unused)
	c.symbols = sorted[:used]
	for s, n := range lens {
		if n != 0 {
			sorted[next[n&15]] = uint16(s)
			next[n&15]++
		}
	}
	complete := space == 1<<maxCodeLen
	return c, complete || used == 0 || used == 1 && c.count[1] == 1
}

// fill builds the table of a code that sortCode accepted; width is the index
// width of its first level.
//
// Codes are handed out in their canonical order, bit-reversed, since deflate
// sends them from the most significant bit on. While all codes so far have at
// most n bits, only the first 1<<n entries are kept; the table is doubled by
// copying when longer codes begin. So each entry is computed once.
func (c *code) fill(table []uint32, proto []uint32, width uint) {
	if len(c.symbols) < 2 {
		c.fillDegenerate(table[:1<<width], proto)
		return
	}
	n := uint(1)
	for c.count[n] == 0 {
		n++
	}
	syms := c.symbols
	word, end := uint(0), uint(1)<<n // next code (reversed); entries in use
	for ; n <= width; n++ {
		for range c.count[n] {
			table[word] = entryFor(proto[syms[0]], n)
			syms = syms[1:]
			word = nextCode(word, n)
		}
		if n < width {
			copy(table[end:2*end], table[:end])
			end *= 2
		}
		if len(syms) == 0 {
			for ; end < 1<<width; end *= 2 {
				copy(table[end:2*end], table[:end])
			}
			return
		}
	}
	c.fillSecond(table, proto, width, n, word, syms)
}

// fillSecond builds the second levels: for the codes of n bits and more, the
// next of which is word.
func (c *code) fillSecond(table []uint32, proto []uint32, width, n, word uint, syms []uint16) {
	mask := uint(1)<<width - 1
	prefix, start, end := ^uint(0), uint(0), mask+1
	for ; n <= maxCodeLen; n++ {
		for left := uint(c.count[n]); left > 0; left-- {
			if word&mask != prefix {
				// As wide as needed for all codes that share this prefix: widen
				// until the codes that are left fill it.
				prefix, start = word&mask, end
				w, room := n-width, left
				for room < 1<<w {
					w++
					room = room*2 + uint(c.count[width+w])
				}
				end = start + 1<<w
				table[prefix] = uint32(entrySub | start<<16 | w<<lenShift | width)
			}
			e := entryFor(proto[syms[0]], n)
			for i := start + word>>width; i < end; i += 1 << (n - width) {
				table[i] = e
			}
			syms = syms[1:]
			word = nextCode(word, n)
		}
	}
}

// nextCode returns the code of n bits that follows word, both bit-reversed;
// after the last one (all ones) it returns 0.
func nextCode(word, n uint) uint {
	zeros := word ^ (1<<n - 1)
	if zeros == 0 {
		return 0
	}
	bit := uint(1) << (bits.Len(zeros) - 1) // the highest zero becomes one, what is above it zero
	return word&(bit-1) | bit
}

func (c *code) fillDegenerate(table []uint32, proto []uint32) {
	for i := range table {
		table[i] = entryBad
	}
	if len(c.symbols) == 1 {
		e := entryFor(proto[c.symbols[0]], 1)
		for i := 0; i < len(table); i += 2 {
			table[i] = e
		}
	}
}

// fixedTables returns the tables of the fixed code (RFC 1951 §3.2.6) and its minBits.
var fixedTables = sync.OnceValue(func() *tables {
	var lens [288]uint8
	for s := range lens {
		switch {
		case s < 144:
			lens[s] = 8
		case s < 256:
			lens[s] = 9
		case s < 280:
			lens[s] = 7
		default:
			lens[s] = 8
		}
	}
	t := new(tables)
	var sorted [288]uint16
	c, _ := sortCode(lens[:], sorted[:])
	c.fill(t.lit[:], litProto[:], litBits)
	for s := range 32 {
		lens[s] = 5
	}
	c, _ = sortCode(lens[:32], sorted[:])
	c.fill(t.dist[:], distProto[:], distBits)
	return t
})

const fixedMinBits = 7
