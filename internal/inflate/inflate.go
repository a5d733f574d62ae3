// Package inflate decodes raw deflate streams (RFC 1951, no zlib or gzip
// wrapping) from one byte slice into another, in one call.
//
// It exists for compressed qcow2 clusters (qcow2-format §7.1): the whole
// stream is in memory, the size of the output is known, the end of the input
// is known only roughly, and speed decides. The caller passes a destination
// of exactly the size it wants:
//
//	var d inflate.Decoder // or inflate.Decode, which borrows one from a pool
//	nDst, nSrc, err := d.Decode(cluster, stream)
//
// Decode stops with a nil error as soon as dst is full; whatever follows in
// src (the rest of the stream, a neighbour's stream, garbage) is not looked
// at. If the stream ends, breaks or is cut off earlier, the error says so and
// dst[:nDst] holds the bytes decoded before it; dst[nDst:] may have been
// overwritten with anything. src is never written to, and nothing outside dst
// and src is touched. No call allocates unless it fails.
//
// The verdict (error or none) and the bytes are those of
// io.ReadFull(flate.NewReader(src), dst) with the standard library's
// compress/flate, for every input; the fuzz target holds the two together.
package inflate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// The kinds of failure, to be tested with errors.Is.
var (
	// ErrCorrupt: the input is not a deflate stream.
	ErrCorrupt = errors.New("invalid deflate stream")
	// ErrTruncated: the input ends before the stream does.
	ErrTruncated = errors.New("deflate stream is cut off")
	// ErrShort: the stream ends properly but before dst is full.
	ErrShort = errors.New("deflate stream holds less data than expected")
)

// Error is what Decode returns: a kind (one of the Err values above), what
// was wrong, and where. It unwraps to the kind.
type Error struct {
	Kind   error
	Detail string // what was wrong, may be empty
	Src    int    // offset in src near which it was noticed
	Dst    int    // bytes of output decoded before it
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%v (input byte %d, output byte %d)", e.Kind, e.Src, e.Dst)
	}
	return fmt.Sprintf("%v: %s (input byte %d, output byte %d)", e.Kind, e.Detail, e.Src, e.Dst)
}

func (e *Error) Unwrap() error { return e.Kind }

// Decoder holds the code tables of a decoder (about 20 KiB), so that calls
// need not allocate them. The zero value is ready. A Decoder serves one call
// at a time and keeps nothing from one call to the next.
type Decoder struct {
	src, dst []byte
	bitBuf   uint64 // unread bits, the next one lowest; bits from bitCnt on are zero between steps
	bitCnt   uint   // how many bits of bitBuf count, <= 63
	inPos    int    // next byte of src to enter bitBuf
	outPos   int    // next byte of dst

	codes *tables // of the current block
	// minBits is how many bits of input must be left in front of every
	// literal/length code: the longer of the shortest code and the
	// end-of-block code. A proper stream always has them.
	minBits uint

	own    tables
	pre    [1 << maxPreBits]uint8 // code length code: symbol<<3 | length, 0 for none
	lens   [maxLitSyms + maxDistSyms]uint8
	sorted [maxLitSyms]uint16
}

var pool = sync.Pool{New: func() any { return new(Decoder) }}

// Decode is Decoder.Decode with a pooled decoder. It is safe for concurrent use.
func Decode(dst, src []byte) (nDst, nSrc int, err error) {
	d := pool.Get().(*Decoder)
	nDst, nSrc, err = d.Decode(dst, src)
	pool.Put(d)
	return nDst, nSrc, err
}

// Decode fills dst from the raw deflate stream at the start of src. nDst is
// the number of bytes of dst that are valid: len(dst) if and only if err is
// nil. nSrc is the number of bytes of src used up to that point; a partly used
// byte counts.
func (d *Decoder) Decode(dst, src []byte) (nDst, nSrc int, err error) {
	d.src, d.dst = src[:len(src):len(src)], dst[:len(dst):len(dst)]
	d.bitBuf, d.bitCnt, d.inPos, d.outPos = 0, 0, 0, 0
	err = d.blocks()
	nDst, nSrc = d.outPos, d.used()
	d.src, d.dst = nil, nil
	d.codes = nil
	return nDst, nSrc, err
}

// used returns how many bytes of src have been consumed, counting a partly
// consumed one.
func (d *Decoder) used() int {
	return d.inPos - int(d.bitCnt>>3)
}

func (d *Decoder) fail(kind error, detail string) error {
	return &Error{Kind: kind, Detail: detail, Src: d.used(), Dst: d.outPos}
}

// refill brings at least 56 bits into bitBuf, or all that are left.
func (d *Decoder) refill() {
	if d.inPos+8 <= len(d.src) {
		d.bitBuf |= binary.LittleEndian.Uint64(d.src[d.inPos:]) << (d.bitCnt & 63)
		d.inPos += int((63 - d.bitCnt) >> 3)
		d.bitCnt |= 56
		d.bitBuf &= 1<<(d.bitCnt&63) - 1
		return
	}
	for d.bitCnt < 56 && d.inPos < len(d.src) {
		d.bitBuf |= uint64(d.src[d.inPos]) << (d.bitCnt & 63)
		d.inPos++
		d.bitCnt += 8
	}
}

// take removes n bits, which must be there, and returns them.
func (d *Decoder) take(n uint) uint {
	v := uint(d.bitBuf) & (1<<n - 1)
	d.bitBuf >>= n & 63
	d.bitCnt -= n
	return v
}

// blocks decodes block by block until dst is full.
func (d *Decoder) blocks() error {
	for d.outPos < len(d.dst) {
		d.refill()
		if d.bitCnt < 3 {
			return d.fail(ErrTruncated, "")
		}
		final := d.take(1) == 1
		var err error
		switch d.take(2) {
		case 0:
			err = d.stored()
		case 1:
			d.codes = fixedTables()
			d.minBits = fixedMinBits
			err = d.symbols()
		case 2:
			if err = d.readCodes(); err == nil {
				d.codes = &d.own
				err = d.symbols()
			}
		default:
			err = d.fail(ErrCorrupt, "reserved block type")
		}
		if err != nil {
			return err
		}
		if final && d.outPos < len(d.dst) {
			return d.fail(ErrShort, "")
		}
	}
	return nil
}

// stored copies a block without compression.
func (d *Decoder) stored() error {
	// Give whole unread bytes back to src and drop the rest of the byte.
	d.inPos -= int(d.bitCnt >> 3)
	d.bitBuf, d.bitCnt = 0, 0
	if len(d.src)-d.inPos < 4 {
		d.inPos = len(d.src)
		return d.fail(ErrTruncated, "")
	}
	n := int(binary.LittleEndian.Uint16(d.src[d.inPos:]))
	if inv := int(binary.LittleEndian.Uint16(d.src[d.inPos+2:])); n != inv^0xffff {
		return d.fail(ErrCorrupt, "length of a stored block does not match its complement")
	}
	d.inPos += 4
	want := min(n, len(d.dst)-d.outPos)
	got := copy(d.dst[d.outPos:d.outPos+want], d.src[d.inPos:])
	d.inPos += got
	d.outPos += got
	if got < want {
		return d.fail(ErrTruncated, "")
	}
	return nil
}

// symbols decodes the symbols of one block up to its end or until dst is full.
func (d *Decoder) symbols() error {
	end, err := d.fast()
	if end || err != nil {
		return err
	}
	return d.careful()
}
