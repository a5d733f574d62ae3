// Package zstdframe decodes zstd frames (RFC 8878) whose end is not known
// beforehand from one byte slice into another.
//
// It exists for compressed qcow2 clusters (qcow2-format §7.2): a cluster is
// one frame, or several in a row, and the input is cut only to whole sectors,
// so that a neighbour's frame or garbage may follow. Decode therefore finds
// the end of each frame first, by walking its block headers, and shows the
// decoder nothing beyond it:
//
//	nDst, nSrc, err := zstdframe.Decode(cluster, stream)
//
// Decode needs frames that hold exactly len(dst) bytes together; the last one
// must be complete, its checksum too if it has one. Decoders are pooled, each
// works on the caller's goroutine, and output goes straight into dst: memory
// does not depend on what a frame claims about its window or its content.
// Frames that need a dictionary are refused.
package zstdframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The kinds of failure, to be tested with errors.Is.
var (
	// ErrCorrupt: the input is not a sequence of zstd frames.
	ErrCorrupt = errors.New("invalid zstd stream")
	// ErrTruncated: the input ends inside a frame, or in front of one that is needed.
	ErrTruncated = errors.New("zstd stream is cut off")
	// ErrSize: a frame holds more data than there is room for.
	ErrSize = errors.New("zstd stream holds more data than expected")
)

// Error is what Decode and FrameSize return: a kind (one of the Err values
// above), what was wrong, and where. It unwraps to the kind and to the cause.
type Error struct {
	Kind   error
	Detail string // what was wrong, may be empty
	Cause  error  // the decoder's own error, may be nil
	Src    int    // offset in src of the frame or block concerned
}

func (e *Error) Error() string {
	s := e.Kind.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return fmt.Sprintf("%s (input byte %d)", s, e.Src)
}

func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

const (
	frameMagic     = 0xfd2fb528
	skipMagic      = 0x184d2a50 // the low 4 bits are free
	skipMask       = 0xfffffff0
	maxWindowLog   = 27      // what the reference decoder accepts unless told otherwise
	maxBlockSize   = 1 << 17 // RFC 8878 §3.1.1.2.4
	blockHeaderLen = 3
)

// FrameSize returns the length in bytes of the frame at the start of src, as
// its headers tell it, and whether it is a skippable one, which holds no data.
// It looks at headers only; the content of the blocks may still be invalid.
func FrameSize(src []byte) (size int, skippable bool, err error) {
	if len(src) < 4 {
		return 0, false, &Error{Kind: ErrTruncated, Detail: "no frame header"}
	}
	switch magic := binary.LittleEndian.Uint32(src); {
	case magic&skipMask == skipMagic:
		if len(src) < 8 {
			return 0, true, &Error{Kind: ErrTruncated, Detail: "skippable frame"}
		}
		n := uint64(binary.LittleEndian.Uint32(src[4:])) + 8
		if n > uint64(len(src)) {
			return 0, true, &Error{Kind: ErrTruncated, Detail: "skippable frame"}
		}
		return int(n), true, nil
	case magic != frameMagic:
		return 0, false, &Error{Kind: ErrCorrupt, Detail: "no frame magic"}
	}
	pos, checksum, err := headerSize(src)
	if err != nil {
		return 0, false, err
	}
	for last := false; !last; {
		if len(src)-pos < blockHeaderLen {
			return 0, false, &Error{Kind: ErrTruncated, Detail: "no block header", Src: pos}
		}
		h := uint32(src[pos]) | uint32(src[pos+1])<<8 | uint32(src[pos+2])<<16
		last = h&1 != 0
		n := int(h >> 3)
		if n > maxBlockSize {
			return 0, false, &Error{Kind: ErrCorrupt, Detail: "block too large", Src: pos}
		}
		switch h >> 1 & 3 {
		case 1: // one byte, repeated
			n = 1
		case 3:
			return 0, false, &Error{Kind: ErrCorrupt, Detail: "reserved block type", Src: pos}
		}
		if len(src)-pos-blockHeaderLen < n {
			return 0, false, &Error{Kind: ErrTruncated, Detail: "block", Src: pos}
		}
		pos += blockHeaderLen + n
	}
	if checksum {
		if len(src)-pos < 4 {
			return 0, false, &Error{Kind: ErrTruncated, Detail: "no checksum", Src: pos}
		}
		pos += 4
	}
	return pos, false, nil
}

// headerSize returns where the first block begins and whether a checksum ends the frame.
func headerSize(src []byte) (pos int, checksum bool, err error) {
	if len(src) < 5 {
		return 0, false, &Error{Kind: ErrTruncated, Detail: "no frame header"}
	}
	d := src[4]
	pos = 5
	single := d&0x20 != 0
	if !single {
		pos++ // window descriptor
	}
	pos += [4]int{0, 1, 2, 4}[d&3] // dictionary ID
	if fcs := d >> 6; fcs != 0 {
		pos += 1 << fcs // content size
	} else if single {
		pos++
	}
	if len(src) < pos {
		return 0, false, &Error{Kind: ErrTruncated, Detail: "no frame header"}
	}
	return pos, d&4 != 0, nil
}

// decoders holds decoders that start no goroutine and write nowhere but into
// the slice they are given.
var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(1<<maxWindowLog),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
}}

// Decode fills dst from the frames at the start of src. nDst is the number of
// bytes of dst that are valid, whole frames only: len(dst) if and only if err
// is nil. nSrc is the length of the frames used. It is safe for concurrent use.
func Decode(dst, src []byte) (nDst, nSrc int, err error) {
	if len(dst) == 0 {
		return 0, 0, nil
	}
	dec := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(dec)
	for nDst < len(dst) {
		size, skippable, err := FrameSize(src[nSrc:])
		if err != nil {
			return nDst, nSrc, at(err, nSrc)
		}
		if !skippable {
			n, err := decodeFrame(dec, dst[nDst:], src[nSrc:nSrc+size])
			if err != nil {
				return nDst, nSrc, at(err, nSrc)
			}
			nDst += n
		}
		nSrc += size
	}
	return nDst, nSrc, nil
}

// decodeFrame decodes one complete frame into the start of dst.
func decodeFrame(dec *zstd.Decoder, dst, frame []byte) (int, error) {
	out, err := dec.DecodeAll(frame, dst[:0:len(dst)])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return 0, &Error{Kind: ErrSize}
	case err != nil:
		return 0, &Error{Kind: ErrCorrupt, Cause: err}
	case len(out) > len(dst):
		return 0, &Error{Kind: ErrSize}
	}
	if len(out) > 0 && &out[0] != &dst[0] { // the decoder chose a buffer of its own
		copy(dst, out)
	}
	return len(out), nil
}

// at moves the place of an error from the start of the frame to that of src.
func at(err error, offset int) error {
	var e *Error
	if errors.As(err, &e) {
		e.Src += offset
	}
	return err
}
