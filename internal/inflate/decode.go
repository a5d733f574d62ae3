package inflate

import "encoding/binary"

const (
	// inSlack: one turn of fast refills twice, each time 8 bytes are read of
	// which at most 7 are taken.
	inSlack = 16
	// outSlack: one turn of fast writes up to 6 literals or 4 and a match,
	// which is rounded up to 16 bytes.
	outSlack = 6 + 258 + 16
)

// fast decodes symbols while so much input and room is left that no single
// step needs to check it. It reports whether it has seen the end of the block;
// if not, careful must go on.
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
	lit, dist := d.lit, d.dist

	bitBuf |= binary.LittleEndian.Uint64(src[in:]) << (bitCnt & 63)
	in += int((63 - bitCnt) >> 3)
	bitCnt |= 56
	e := lit[bitBuf&(1<<litBits-1)]
	for in <= inEnd && out <= outEnd {
		bitBuf |= binary.LittleEndian.Uint64(src[in:]) << (bitCnt & 63)
		in += int((63 - bitCnt) >> 3)
		bitCnt |= 56
		// 56 bits are there. Three literal entries take at most 33 of them, two
		// and a length 42.
		if int32(e) < 0 {
			binary.LittleEndian.PutUint16(dst[out:], uint16(e>>8))
			out += int(1 + e>>24&1)
			bitBuf >>= e & 63
			bitCnt -= uint8(e)
			e = lit[bitBuf&(1<<litBits-1)]
			if int32(e) < 0 {
				binary.LittleEndian.PutUint16(dst[out:], uint16(e>>8))
				out += int(1 + e>>24&1)
				bitBuf >>= e & 63
				bitCnt -= uint8(e)
				e = lit[bitBuf&(1<<litBits-1)]
				if int32(e) < 0 {
					binary.LittleEndian.PutUint16(dst[out:], uint16(e>>8))
					out += int(1 + e>>24&1)
					bitBuf >>= e & 63
					bitCnt -= uint8(e)
					e = lit[bitBuf&(1<<litBits-1)]
					continue
				}
			}
		}
		if e&entrySpec != 0 {
			if e&entrySub != 0 {
				e = lit[(bitBuf>>litBits&(1<<(e>>lenShift&15)-1)+uint64(e>>16))&4095]
				if int32(e) < 0 {
					dst[out] = byte(e >> 8)
					out++
					bitBuf >>= e & 63
					bitCnt -= uint8(e)
					e = lit[bitBuf&(1<<litBits-1)]
					continue
				}
			}
			if e&entryEnd != 0 {
				d.save(bitBuf>>(e&63), bitCnt-uint8(e), in, out)
				return true, nil
			}
			if e&entryBad != 0 {
				d.save(bitBuf, bitCnt, in, out)
				return false, d.fail(ErrCorrupt, "undefined literal or length code")
			}
		}
		length := int(e>>16) + int(bitBuf&(1<<(e&63)-1)>>(e>>lenShift&15))
		bitBuf >>= e & 63
		bitCnt -= uint8(e)

		bitBuf |= binary.LittleEndian.Uint64(src[in:]) << (bitCnt & 63)
		in += int((63 - bitCnt) >> 3)
		bitCnt |= 56
		e = dist[bitBuf&(1<<distBits-1)]
		if e&entrySpec != 0 {
			if e&entrySub != 0 {
				e = dist[(bitBuf>>distBits&(1<<(e>>lenShift&15)-1)+uint64(e>>16))&1023]
			}
			if e&entryBad != 0 {
				d.save(bitBuf, bitCnt, in, out)
				return false, d.fail(ErrCorrupt, "undefined distance code")
			}
		}
		from := out - int(e>>16) - int(bitBuf&(1<<(e&63)-1)>>(e>>lenShift&15))
		bitBuf >>= e & 63
		bitCnt -= uint8(e)
		if from < 0 {
			d.save(bitBuf, bitCnt, in, out)
			return false, d.fail(ErrCorrupt, "distance reaches beyond the start of the output")
		}
		e = lit[bitBuf&(1<<litBits-1)]

		to := out
		out += length
		switch {
		case to-from >= 16:
			*(*[16]byte)(dst[to:]) = *(*[16]byte)(dst[from:])
			for length > 16 {
				to += 16
				from += 16
				length -= 16
				*(*[16]byte)(dst[to:]) = *(*[16]byte)(dst[from:])
			}
		case to-from >= 8:
			for {
				binary.LittleEndian.PutUint64(dst[to:], binary.LittleEndian.Uint64(dst[from:]))
				if length <= 8 {
					break
				}
				to += 8
				from += 8
				length -= 8
			}
		case to-from == 1:
			v := uint64(dst[from]) * 0x0101010101010101
			for {
				binary.LittleEndian.PutUint64(dst[to:], v)
				if length <= 8 {
					break
				}
				to += 8
				length -= 8
			}
		default:
			copyShort(dst, to, to-from, length)
		}
	}
	d.save(bitBuf, bitCnt, in, out)
	return false, nil
}

// copyShort copies a match of a distance below 8, a pattern that repeats
// itself. It may write up to 7 bytes beyond the match.
func copyShort(dst []byte, to, dist, length int) {
	from := to - dist
	// Each copy of 8 bytes gets dist of them right; then the pattern is twice
	// as long.
	for dist < 8 {
		binary.LittleEndian.PutUint64(dst[to:], binary.LittleEndian.Uint64(dst[from:]))
		to += dist
		length -= dist
		dist *= 2
	}
	for length > 0 {
		binary.LittleEndian.PutUint64(dst[to:], binary.LittleEndian.Uint64(dst[to-dist:]))
		to += 8
		length -= 8
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
		e := d.lit[d.bitBuf&(1<<litBits-1)]
		if e&(entryLit|entrySub) == entrySub {
			e = d.lit[(d.bitBuf>>litBits&(1<<(e>>lenShift&15)-1)+uint64(e>>16))&4095]
		}
		if e&entryLit != 0 {
			n := uint(e >> firstShift & 15)
			if n > d.bitCnt {
				return d.fail(ErrTruncated, "")
			}
			d.take(n)
			d.dst[d.outPos] = byte(e >> 8)
			d.outPos++
			continue
		}
		if e&entryBad != 0 {
			return d.fail(ErrCorrupt, "undefined literal or length code")
		}
		if uint(e&63) > d.bitCnt {
			return d.fail(ErrTruncated, "")
		}
		if e&entryEnd != 0 {
			d.take(uint(e & 63))
			return nil
		}
		if err := d.match(d.value(e)); err != nil {
			return err
		}
	}
	return nil
}

// value consumes the code and the extra bits of a length or distance.
func (d *Decoder) value(e uint32) int {
	return int(e>>16) + int(d.take(uint(e&63))>>(e>>lenShift&15))
}

// match reads the distance of a match and copies as much of it as dst takes.
func (d *Decoder) match(length int) error {
	d.refill()
	e := d.dist[d.bitBuf&(1<<distBits-1)]
	if e&entrySub != 0 {
		e = d.dist[(d.bitBuf>>distBits&(1<<(e>>lenShift&15)-1)+uint64(e>>16))&1023]
	}
	if e&entryBad != 0 {
		return d.fail(ErrCorrupt, "undefined distance code")
	}
	if uint(e&63) > d.bitCnt {
		return d.fail(ErrTruncated, "")
	}
	from := d.outPos - d.value(e)
	if from < 0 {
		return d.fail(ErrCorrupt, "distance reaches beyond the start of the output")
	}
	for range min(length, len(d.dst)-d.outPos) {
		d.dst[d.outPos] = d.dst[from]
		d.outPos++
		from++
	}
	return nil
}
