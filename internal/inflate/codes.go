package inflate

// preOrder is the order in which the lengths of the code length code are sent.
var preOrder = [preSyms]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

const (
	preSyms    = 19
	maxPreBits = 7
)

// readCodes reads the codes that stand at the start of a dynamic block (RFC
// 1951 §3.2.7) and builds the tables.
func (d *Decoder) readCodes() error {
	d.refill()
	if d.bitCnt < 14 {
		return d.fail(ErrTruncated, "")
	}
	nLit := int(d.take(5)) + 257
	nDist := int(d.take(5)) + 1
	nPre := int(d.take(4)) + 4
	if nLit > maxLitSyms {
		return d.fail(ErrCorrupt, "too many literal and length codes")
	}
	if nDist > maxDistSyms {
		return d.fail(ErrCorrupt, "too many distance codes")
	}
	if err := d.readPre(nPre); err != nil {
		return err
	}
	if err := d.readLengths(nLit + nDist); err != nil {
		return err
	}
	lit, ok := sortCode(d.lens[:nLit], d.sorted[:])
	if !ok {
		return d.fail(ErrCorrupt, "literal and length code is not complete")
	}
	d.minBits = max(lit.shortest(), uint(d.lens[endOfBlock]))
	lit.fill(d.own.lit[:], litProto[:], litBits)
	dist, ok := sortCode(d.lens[nLit:nLit+nDist], d.sorted[:])
	if !ok {
		return d.fail(ErrCorrupt, "distance code is not complete")
	}
	dist.fill(d.own.dist[:], distProto[:], distBits)
	return nil
}

// shortest returns the length of the shortest code, 0 if there is none.
func (c *code) shortest() uint {
	for n := uint(1); n <= maxCodeLen; n++ {
		if c.count[n] != 0 {
			return n
		}
	}
	return 0
}

// readPre reads the code length code, n lengths of 3 bits, into d.pre.
func (d *Decoder) readPre(n int) error {
	var lens [preSyms]uint8
	for i := range n {
		if d.bitCnt < 3 {
			if d.refill(); d.bitCnt < 3 {
				return d.fail(ErrTruncated, "")
			}
		}
		lens[preOrder[i]] = uint8(d.take(3))
	}
	c, ok := sortCode(lens[:], d.sorted[:])
	if !ok {
		return d.fail(ErrCorrupt, "code length code is not complete")
	}
	clear(d.pre[:]) // 0: no such code
	word := uint(0)
	syms := c.symbols
	for n := uint(1); n <= maxPreBits; n++ {
		for range c.count[n] {
			for i := word; i < 1<<maxPreBits; i += 1 << n {
				d.pre[i] = uint8(syms[0])<<3 | uint8(n)
			}
			syms = syms[1:]
			word = nextCode(word, n)
		}
	}
	return nil
}

// readLengths reads n code lengths into d.lens.
func (d *Decoder) readLengths(n int) error {
	for i := 0; i < n; {
		if d.bitCnt < 14 { // 7 for the code, 7 extra
			d.refill()
		}
		p := d.pre[d.bitBuf&(1<<maxPreBits-1)]
		bits, sym := uint(p&7), p>>3
		if bits == 0 {
			return d.fail(ErrCorrupt, "undefined code length code")
		}
		if bits > d.bitCnt {
			return d.fail(ErrTruncated, "")
		}
		d.take(bits)
		if sym < 16 {
			d.lens[i] = sym
			i++
			continue
		}
		var val uint8
		var rep, extra uint
		switch sym {
		case 16:
			if i == 0 {
				return d.fail(ErrCorrupt, "nothing to repeat in front of the first code length")
			}
			val, rep, extra = d.lens[i-1], 3, 2
		case 17:
			rep, extra = 3, 3
		default:
			rep, extra = 11, 7
		}
		if extra > d.bitCnt {
			return d.fail(ErrTruncated, "")
		}
		rep += d.take(extra)
		if i+int(rep) > n {
			return d.fail(ErrCorrupt, "more code lengths than codes")
		}
		for range rep {
			d.lens[i] = val
			i++
		}
	}
	return nil
}
