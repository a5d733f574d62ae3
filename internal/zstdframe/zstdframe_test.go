package zstdframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func compress(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// stream compresses with the content size unknown to the header.
func stream(t testing.TB, data []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := min(len(data), 1000)
		w.Write(data[:n])
		w.Flush()
		data = data[n:]
	}
	w.Close()
	return b.Bytes()
}

func sample(size int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(size)))
	b := make([]byte, size)
	for i := range b {
		if i > 100 && r.Uint32()%5 != 0 {
			b[i] = b[i-1-int(r.Uint32()%100)]
		} else {
			b[i] = byte(r.ExpFloat64() * 20)
		}
	}
	return b
}

func rleFrame(value byte, counts ...int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, frameMagic)
	b = append(b, 0, 0x58) // window 2 MiB, no size, no checksum
	for i, n := range counts {
		h := uint32(n)<<3 | 1<<1
		if i == len(counts)-1 {
			h |= 1
		}
		b = append(b, byte(h), byte(h>>8), byte(h>>16), value)
	}
	return b
}

func skippable(n int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, skipMagic|5)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return append(b, make([]byte, n)...)
}

// frames returns streams that decode to data, made of every kind of frame.
func frames(t testing.TB, data []byte) map[string][]byte {
	half := len(data) / 2
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	return map[string][]byte{
		"one frame":             compress(t, data),
		"without checksum":      compress(t, data, zstd.WithEncoderCRC(false)),
		"single segment":        compress(t, data, zstd.WithSingleSegment(true)),
		"best":                  compress(t, data, zstd.WithEncoderLevel(zstd.SpeedBestCompression)),
		"window of 8 MiB":       stream(t, data, zstd.WithWindowSize(8<<20)),
		"size unknown":          stream(t, data),
		"no entropy coding":     stream(t, data, zstd.WithNoEntropyCompression(true)),
		"two frames":            join(compress(t, data[:half]), compress(t, data[half:])),
		"empty frames between":  join(compress(t, nil, zstd.WithZeroFrames(true)), compress(t, data[:half]), compress(t, nil, zstd.WithZeroFrames(true)), stream(t, data[half:])),
		"skippable frames":      join(skippable(0), compress(t, data[:half]), skippable(77), compress(t, data[half:])),
		"incompressible middle": join(compress(t, data[:half]), compress(t, data[half:half+1]), compress(t, data[half+1:])),
	}
}

func TestWhatFollowsTheLastFrameDoesNotMatter(t *testing.T) {
	for _, size := range []int{4, 512, 65536, 2 << 20} {
		data := sample(size)
		tails := map[string][]byte{"nothing": nil, "a neighbour": compress(t, sample(size)), "half a neighbour": compress(t, sample(size))[:6],
			"zeros": make([]byte, 511), "noise": sample(300), "magic": {0x28, 0xb5, 0x2f, 0xfd}}
		for name, s := range frames(t, data) {
			for tail, b := range tails {
				t.Run(name+", then "+tail, func(t *testing.T) {
					room := bytes.Repeat([]byte{0xa5}, size+64)
					n, used, err := Decode(room[:size], append(bytes.Clone(s), b...))
					if err != nil || n != size || used != len(s) {
						t.Fatalf("decoded %d of %d bytes from %d of %d: %v", n, size, used, len(s), err)
					}
					if !bytes.Equal(room[:size], data) {
						t.Fatal("wrong bytes")
					}
					if !bytes.Equal(room[size:], bytes.Repeat([]byte{0xa5}, 64)) {
						t.Fatal("wrote beyond the end of dst")
					}
				})
			}
		}
	}
}

func TestTheLastFrameMustBeComplete(t *testing.T) {
	data := sample(4096)
	for name, s := range frames(t, data) {
		t.Run(name, func(t *testing.T) {
			for cut := range s {
				n, _, err := Decode(make([]byte, len(data)), s[:cut])
				if !errors.Is(err, ErrTruncated) || n == len(data) {
					t.Fatalf("cut to %d of %d bytes: decoded %d, %v", cut, len(s), n, err)
				}
			}
		})
	}
}

func TestFramesThatHoldTooMuchOrTooLittleAreRefused(t *testing.T) {
	data := sample(4096)
	for name, s := range frames(t, data) {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Decode(make([]byte, 4095), s); !errors.Is(err, ErrSize) {
				t.Fatalf("one byte too many: %v", err)
			}
			if n, _, err := Decode(make([]byte, 4097), s); !errors.Is(err, ErrTruncated) || n != 4096 {
				t.Fatalf("one byte too few: %d, %v", n, err)
			}
		})
	}
}

func TestHostileFramesAreRefusedWithinBoundedMemory(t *testing.T) {
	bomb := make([]int, 4000)
	for i := range bomb {
		bomb[i] = 1 << 17
	}
	claim := compress(t, sample(60000), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
	if claim[4] != 0x60 {
		t.Fatalf("unexpected frame header %#x", claim[4])
	}
	// The same with a content size of 2^62 in 8 bytes.
	claim = append(append(bytes.Clone(claim[:4]), 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40), claim[7:]...)
	cases := map[string]struct {
		src  []byte
		kind error
	}{
		"500 MB of one byte":        {rleFrame('x', bomb...), ErrSize},
		"claims 2^62 bytes":         {claim, ErrSize},
		"window of 3.75 TiB":        {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 0, 0xff, 1, 0, 0), ErrCorrupt},
		"window of 256 MiB":         {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 0, 18<<3, 1, 0, 0), ErrCorrupt},
		"needs a dictionary":        {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 1, 0x58, 9, 1, 0, 0), ErrCorrupt},
		"reserved block type":       {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 0, 0x58, 7, 0, 0), ErrCorrupt},
		"block of 2 MiB":            {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 0, 0x58, 0xff, 0xff, 0xff), ErrCorrupt},
		"no magic":                  {make([]byte, 100), ErrCorrupt},
		"nothing":                   {nil, ErrTruncated},
		"skippable of 4 GiB":        {[]byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 0}, ErrTruncated},
		"a deflate stream":          {[]byte{0x63, 0x60, 0x18, 0x05, 0xa3, 0x00, 0}, ErrCorrupt},
		"invalid compressed blocks": {append(binary.LittleEndian.AppendUint32(nil, frameMagic), 0, 0x58, 0x55, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), ErrCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dst := make([]byte, 65536)
			Decode(dst, rleFrame('y', 65536)) // so that the pool has a decoder
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Decode(dst, c.src)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, c.kind) {
				t.Fatalf("got %v, want %v", err, c.kind)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
				t.Fatalf("%d bytes allocated", used)
			}
		})
	}
}

func TestAWrongChecksumIsNoticed(t *testing.T) {
	data := sample(4096)
	s := compress(t, data)
	s[len(s)-1] ^= 1
	if _, _, err := Decode(make([]byte, 4096), s); !errors.Is(err, zstd.ErrCRCMismatch) || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

// FuzzDecode holds Decode against the same decoder used as a stream, which
// cannot look beyond what it has read: whenever Decode succeeds, the stream
// yields the same bytes.
func FuzzDecode(f *testing.F) {
	for _, s := range frames(f, sample(700)) {
		f.Add(s, uint16(700))
		f.Add(append(bytes.Clone(s), sample(100)...), uint16(700))
	}
	f.Add(rleFrame('z', 5, 6, 7), uint16(18))
	f.Fuzz(func(t *testing.T, src []byte, size uint16) {
		dst := make([]byte, size)
		n, used, err := Decode(dst, src)
		if n > len(dst) || used > len(src) || (err == nil) != (n == len(dst)) {
			t.Fatalf("n %d, used %d, err %v", n, used, err)
		}
		if err != nil || size == 0 {
			return
		}
		r, err := zstd.NewReader(bytes.NewReader(src[:used]), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		want, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(want, dst) {
			t.Fatalf("the stream decoder yields %d bytes, %v; same bytes: %v", len(want), err, bytes.Equal(want, dst))
		}
	})
}
