package inflate

import "encoding/binary"

const (
	// inSlack: one turn of fast refills twice, each time 8 bytes are read of
	// which at most 7 are taken.
	inSlack = 16
	// outSlack: one turn of fast writes up to 3 literals, or 2 and a match,
	// which is rounded up to 16 bytes.
	outSlack = 2 + 258 + 16
)

// fast decodes symbols while so much input and room is left that no single
// step needs to check it. It reports whether it has seen the end of the block;
// if not, careful must go on.
//
// It is one function, longer than others, so that its state stays in registers.
func (d *Decoder) fast() (end bool, err error) {
	src, dst := d.src, d.dst
	in, out := d.inPos, d.outPos
	inEnd, outEnd := len(src)-inSlack, len(dst)-outSlack
	if in > inEnd || out > outEnd {
		return false, nil
	}
	// Bits from bitCnt on are not kept zero here: they are the bits that the
	// next refill brings anyway.
	bitBuf, bitCnt := d.bitBuf, uint8(d.bitCnt)
	t := d.codes

	bitBuf |= load64(src, in) << (bitCnt & 63)
	in += int((63 - bitCnt) >> 3)
	bitCnt |= 56
	e := t.lit[bitBuf&litMask] // the entry of the next symbol, looked up ahead
	for in <= inEnd && out <= outEnd {
		bitBuf |= load64(src, in) << (bitCnt & 63)
		in += int((63 - bitCnt) >> 3)
		bitCnt |= 56
		// 56 bits are there: three literals of the first level take at most
		// 33 of them, two and a length 42.
		if int32(e) < 0 {
			dst[out] = byte(e >> 8)
			out++
			bitBuf >>= e & 63
			bitCnt -= uint8(e)
			e = t.lit[bitBuf&litMask]
			if int32(e) < 0 {
				dst[out] = byte(e >> 8)
				out++
				bitBuf >>= e & 63
				bitCnt -= uint8(e)
				e = t.lit[bitBuf&litMask]
				if int32(e) < 0 {
					dst[out] = byte(e >> 8)
					out++
					bitBuf >>= e & 63
					bitCnt -= uint8(e)
					e = t.lit[bitBuf&litMask]
					continue
				}
			}
		}
		if e&entrySpec != 0 {
			if e&entrySub != 0 {
				e = t.lit[subIndex(bitBuf>>litBits, e)&(litSize-1)]
				if int32(e) < 0 {
					dst[out] = byte(e >> 8)
					out++
					bitBuf >>= e & 63
					bitCnt -= uint8(e)
					e = t.lit[bitBuf&litMask]
					continue
				}
			}
			if e&entryEnd != 0 {
				d.save(bitBuf>>(e&63), bitCnt-uint8(e), in, out)
				return true, nil
			}
			if e&entryBad != 0 {
				d.save(bitBuf, bitCnt, in, out)
				return false, d.fail(ErrCorrupt, badLit)
			}
		}
		length := int(e>>16) + int(extra(bitBuf, e))
		bitBuf >>= e & 63
		bitCnt -= uint8(e)

		bitBuf |= load64(src, in) << (bitCnt & 63)
		in += int((63 - bitCnt) >> 3)
		bitCnt |= 56
		e = t.dist[bitBuf&distMask]
		if e&entrySpec != 0 {
			if e&entrySub != 0 {
				e = t.dist[subIndex(bitBuf>>distBits, e)&(distSize-1)]
			}
			if e&entryBad != 0 {
				d.save(bitBuf, bitCnt, in, out)
				return false, d.fail(ErrCorrupt, badDist)
			}
		}
		from := out - int(e>>16) - int(extra(bitBuf, e))
		bitBuf >>= e & 63
		bitCnt -= uint8(e)
		if from < 0 {
			d.save(bitBuf, bitCnt, in, out)
			return false, d.fail(ErrCorrupt, badReach)
		}
		e = t.lit[bitBuf&litMask]

		// Copy, rounded up: what is written too much is overwritten later.
		to := out
		out += length
		if to-from >= 16 {
			copy16(dst, to, from)
			for length > 16 {
				to += 16
				from += 16
				length -= 16
				copy16(dst, to, from)
			}
		} else {
			copyNear(dst, to, to-from, length)
		}
	}
	d.save(bitBuf, bitCnt, in, out)
	return false, nil
}

// subIndex returns the index in the table of the code that the second level e
// leads to; bits are those that follow the index of the first level.
func subIndex(bits uint64, e uint32) uint64 {
	return bits&(1<<(e>>lenShift&15)-1) + uint64(e>>16)
}

// extra returns the value of the extra bits of the length or distance e, which
// follow its code in bits.
func extra(bits uint64, e uint32) uint64 {
	return bits & (1<<(e&63) - 1) >> (e >> lenShift & 15)
}

// copyNear copies a match of a distance below 16, a pattern that repeats
// itself. It writes at most 7 bytes beyond the match, or 16 altogether.
func copyNear(dst []byte, to, dist, length int) {
	if dist == 1 {
		v := uint64(dst[to-1]) * 0x0101010101010101
		for ; length > 0; length -= 8 {
			store64(dst, to, v)
			to += 8
		}
		return
	}
	// Each copy of 8 bytes gets dist of them right; then twice as much of the
	// pattern is there.
	from := to - dist
	for dist < 8 {
		store64(dst, to, load64(dst, from))
		to += dist
		length -= dist
		dist *= 2
	}
	for ; length > 0; length -= 8 {
		store64(dst, to, load64(dst, to-dist))
		to += 8
	}
}

func (d *Decoder) save(bitBuf uint64, bitCnt uint8, in, out int) {
	d.bitCnt = uint(bitCnt)
	d.bitBuf = bitBuf & (1<<(bitCnt&63) - 1)
	d.inPos, d.outPos = in, out
}

// careful does what fast does, one symbol at a time and with every check, up
// to the end of the block or of dst.
func (d *Decoder) careful() error {
	for d.outPos < len(d.dst) {
		d.refill()
		if d.bitCnt < d.minBits {
			return d.fail(ErrTruncated, "")
		}
		e := d.codes.lit[d.bitBuf&litMask]
		if e&(entryLit|entrySub) == entrySub {
			e = d.codes.lit[subIndex(d.bitBuf>>litBits, e)&(litSize-1)]
		}
		switch {
		case e&(entryLit|entryBad) == entryBad:
			return d.fail(ErrCorrupt, badLit)
		case uint(e&63) > d.bitCnt:
			return d.fail(ErrTruncated, "")
		case e&entryLit != 0:
			d.take(uint(e & 63))
			d.dst[d.outPos] = byte(e >> 8)
			d.outPos++
		case e&entryEnd != 0:
			d.take(uint(e & 63))
			return nil
		default:
			if err := d.match(d.value(e)); err != nil {
				return err
			}
		}
	}
	return nil
}

// value consumes the code and the extra bits of a length or distance.
func (d *Decoder) value(e uint32) int {
	v := int(e>>16) + int(extra(d.bitBuf, e))
	d.take(uint(e & 63))
	return v
}

// match reads the distance of a match and copies as much of it as dst takes.
func (d *Decoder) match(length int) error {
	d.refill()
	e := d.codes.dist[d.bitBuf&distMask]
	if e&entrySub != 0 {
		e = d.codes.dist[subIndex(d.bitBuf>>distBits, e)&(distSize-1)]
	}
	if e&entryBad != 0 {
		return d.fail(ErrCorrupt, badDist)
	}
	if uint(e&63) > d.bitCnt {
		return d.fail(ErrTruncated, "")
	}
	from := d.outPos - d.value(e)
	if from < 0 {
		return d.fail(ErrCorrupt, badReach)
	}
	to := d.outPos
	d.outPos += min(length, len(d.dst)-to)
	for ; to < d.outPos; to++ {
		d.dst[to] = d.dst[from]
		from++
	}
	return nil
}

const (
	badLit   = "undefined literal or length code"
	badDist  = "undefined distance code"
	badReach = "distance reaches beyond the start of the output"
)

// The accessors below slice with three indices: a slice of constant capacity
// spares the compiler the care it takes about pointers behind an empty one.

func load64(b []byte, i int) uint64 {
	return binary.LittleEndian.Uint64(b[i : i+8 : i+8])
}

func store64(b []byte, i int, v uint64) {
	binary.LittleEndian.PutUint64(b[i:i+8:i+8], v)
}

func copy16(b []byte, to, from int) {
	*(*[16]byte)(b[to : to+16 : to+16]) = *(*[16]byte)(b[from : from+16 : from+16])
}
