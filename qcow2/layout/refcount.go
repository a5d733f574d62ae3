package layout

import "encoding/binary"

// Refcount returns counter i of a refcount block (or of a part of one that
// starts at a byte boundary) with counters of 1<<order bits. i must be inside
// the block and order at most 6. Packing: qcow2-format §2.2.
func Refcount(block []byte, order uint8, i int) uint64 {
	switch order {
	case 0:
		return uint64(block[i/8] >> (i % 8) & 1)
	case 1:
		return uint64(block[i/4] >> (2 * (i % 4)) & 3)
	case 2:
		return uint64(block[i/2] >> (4 * (i % 2)) & 15)
	case 3:
		return uint64(block[i])
	case 4:
		return uint64(binary.BigEndian.Uint16(block[2*i:]))
	case 5:
		return uint64(binary.BigEndian.Uint32(block[4*i:]))
	}
	return binary.BigEndian.Uint64(block[8*i:])
}

// SetRefcount stores counter i. v must not exceed the width's maximum; higher
// bits are cut off. Neighbouring counters keep their values.
func SetRefcount(block []byte, order uint8, i int, v uint64) {
	switch order {
	case 0:
		setBits(&block[i/8], uint(i%8), 1, byte(v))
	case 1:
		setBits(&block[i/4], uint(2*(i%4)), 3, byte(v))
	case 2:
		setBits(&block[i/2], uint(4*(i%2)), 15, byte(v))
	case 3:
		block[i] = byte(v)
	case 4:
		binary.BigEndian.PutUint16(block[2*i:], uint16(v))
	case 5:
		binary.BigEndian.PutUint32(block[4*i:], uint32(v))
	default:
		binary.BigEndian.PutUint64(block[8*i:], v)
	}
}

func setBits(b *byte, shift uint, mask, v byte) {
	*b = *b&^(mask<<shift) | v&mask<<shift
}

// CountNonzero returns how many of the first n counters of a block are not 0.
// n must not exceed the number of counters in the block.
func CountNonzero(block []byte, order uint8, n int) int {
	total := 0
	for i := 0; i < n; i++ {
		// Skip eight bytes of zeros at a time: blocks are mostly runs.
		if perWord := 64 >> order; i%perWord == 0 && i+perWord <= n {
			at := i << order / 8
			if binary.LittleEndian.Uint64(block[at:]) == 0 {
				i += perWord - 1
				continue
			}
		}
		if Refcount(block, order, i) != 0 {
			total++
		}
	}
	return total
}
