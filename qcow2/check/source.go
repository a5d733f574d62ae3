package check

import (
	"byre/block"
)

// read fills buf from off of the image file. What lies past its end reads as zeros (qcow2-format §0).
func (c *checker) read(buf []byte, off int64) error {
	n := int64(len(buf))
	if off < 0 || off >= c.fileSize {
		clear(buf)
		return nil
	}
	if n > c.fileSize-off {
		clear(buf[c.fileSize-off:])
		buf = buf[:c.fileSize-off]
	}
	return c.dev.Read(c.ctx, buf, off)
}

// holes answers whether a range of the file is known to be a hole, remembering the last answer: neighbouring questions
// cost one look. Not for use by several goroutines.
type holes struct {
	c          *checker
	start, end int64
	zero       bool
}

// zeroUntil returns how many bytes from off on are known to read as zeros, at most n.
func (h *holes) zeroUntil(off, n int64) int64 {
	if off < 0 || off >= h.c.fileSize {
		return n
	}
	if off < h.start || off >= h.end {
		e, err := h.c.dev.Extent(h.c.ctx, off, h.c.fileSize-off, block.WantZero)
		if err != nil {
			return 0
		}
		h.start, h.end, h.zero = off, e.End(), e.IsZero()
	}
	if !h.zero {
		return 0
	}
	if h.end >= h.c.fileSize {
		return n
	}
	return min(n, h.end-off)
}

// isZero tells whether all of [off, off+n) is known to read as zeros.
func (h *holes) isZero(off, n int64) bool { return h.zeroUntil(off, n) == n }

// words calls visit with the words of the ranges, which are in units of 8 bytes of the file, disjoint and ascending;
// index is the number of the word in the file. Words that are zero are left out; holes are not read.
func (c *checker) words(ranges []interval, visit func(index, weight int64, w uint64)) error {
	piece := int64(8)
	for _, r := range ranges {
		piece = max(piece, min((r.end-r.start)*8, 1<<20))
	}
	buf := make([]byte, piece)
	h := &holes{c: c}
	for _, r := range ranges {
		for at, end := r.start*8, min(r.end*8, c.fileSize+7); at < end; {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			n := min(end-at, piece)
			if z := h.zeroUntil(at, end-at); z >= 8 {
				at += z &^ 7
				continue
			}
			n = (n + 7) &^ 7
			buf = buf[:n]
			if err := c.read(buf, at); err != nil {
				return err
			}
			for i := 0; i+8 <= len(buf); i += 8 {
				if w := word(buf[i:]); w != 0 {
					visit((at+int64(i))/8, r.weight, w)
				}
			}
			at += n
		}
	}
	return nil
}

func word(b []byte) uint64 {
	_ = b[7]
	return uint64(b[7]) | uint64(b[6])<<8 | uint64(b[5])<<16 | uint64(b[4])<<24 |
		uint64(b[3])<<32 | uint64(b[2])<<40 | uint64(b[1])<<48 | uint64(b[0])<<56
}
