package inflate

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	kflate "github.com/klauspost/compress/flate"
)

// reference decodes with the standard library.
func reference(dst, src []byte) (int, error) {
	r := readers.Get().(io.ReadCloser)
	defer readers.Put(r)
	if err := r.(flate.Resetter).Reset(bytes.NewReader(src), nil); err != nil {
		return 0, err
	}
	return io.ReadFull(r, dst)
}

var (
	readers  = sync.Pool{New: func() any { return flate.NewReader(nil) }}
	decoders = sync.Pool{New: func() any { return new(Decoder) }}
)

// agree holds Decode against the standard library for one input and size.
func agree(t *testing.T, src []byte, size int) {
	t.Helper()
	want := make([]byte, size)
	wantN, wantErr := reference(want, src)

	// Guard bytes on both sides, and spare capacity that must not be used.
	const guard = 64
	room := bytes.Repeat([]byte{0xa5}, guard+size+guard)
	got := room[guard : guard+size]
	in := append([]byte(nil), src...)
	d := decoders.Get().(*Decoder) // with the tables of an earlier call in it
	n, used, err := d.Decode(got, in[:len(in):len(in)])
	decoders.Put(d)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%d bytes of input, %d of output: got error %v, standard library %v", len(src), size, err, wantErr)
	}
	if n != wantN {
		t.Fatalf("decoded %d bytes (%v), standard library %d (%v)", n, err, wantN, wantErr)
	}
	if !bytes.Equal(got[:n], want[:n]) {
		t.Fatalf("bytes differ from the standard library's")
	}
	if used < 0 || used > len(src) {
		t.Fatalf("used %d of %d input bytes", used, len(src))
	}
	if !bytes.Equal(in, src) {
		t.Fatal("input was changed")
	}
	for i := range guard {
		if room[i] != 0xa5 || room[guard+size+i] != 0xa5 {
			t.Fatal("wrote outside dst")
		}
	}
	if err != nil {
		kinds := 0
		for _, k := range []error{ErrCorrupt, ErrTruncated, ErrShort} {
			if errors.Is(err, k) {
				kinds++
			}
		}
		if kinds != 1 {
			t.Fatalf("error %v is of %d kinds", err, kinds)
		}
	}
}

// deflate compresses with the standard library (32 KiB window).
func deflate(t testing.TB, data []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(data)
	w.Close()
	return b.Bytes()
}

// deflate4K compresses with a window of 4 KiB, as qcow2 images are.
func deflate4K(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := kflate.NewWriterWindow(&b, 4096)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(data)
	w.Close()
	return b.Bytes()
}

// samples returns data of many kinds: of several sizes, from zeros to noise.
func samples(size int) map[string][]byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	m := map[string][]byte{"zeros": make([]byte, size)}
	fill := func(name string, f func(i int, b []byte) byte) {
		b := make([]byte, size)
		for i := range b {
			b[i] = f(i, b)
		}
		m[name] = b
	}
	fill("noise", func(int, []byte) byte { return byte(r.Uint32()) })
	fill("two letters", func(int, []byte) byte { return 'a' + byte(r.Uint32()&1) })
	fill("skewed", func(int, []byte) byte { return byte(r.ExpFloat64() * 6) })
	fill("very skewed", func(int, []byte) byte { return byte(r.ExpFloat64()) * byte(r.ExpFloat64()*3) })
	fill("counters", func(i int, _ []byte) byte { return byte(i >> (8 * (i & 3))) })
	for dist := 1; dist <= 20; dist++ {
		fill(fmt.Sprintf("period %d", dist), func(i int, b []byte) byte {
			if i < dist || r.Uint32()%100 == 0 {
				return byte(r.Uint32())
			}
			return b[i-dist]
		})
	}
	fill("far repeats", func(i int, b []byte) byte {
		if i < 40000 || r.Uint32()%50 == 0 {
			return byte(r.Uint32())
		}
		return b[i-32768+int(r.Uint32()%8)]
	})
	return m
}

func TestStreamsOfEveryKindDecodeAsTheStandardLibraryDecodesThem(t *testing.T) {
	for _, size := range []int{0, 1, 7, 100, 512, 4096, 65536, 200000} {
		for name, data := range samples(size) {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				streams := [][]byte{deflate4K(t, data)}
				for _, level := range []int{flate.NoCompression, flate.HuffmanOnly, 1, 6, 9} {
					streams = append(streams, deflate(t, data, level))
				}
				for _, s := range streams {
					got := make([]byte, size)
					n, used, err := Decode(got, s)
					if err != nil || n != size || !bytes.Equal(got, data) {
						t.Fatalf("decoded %d of %d bytes: %v", n, size, err)
					}
					if used > len(s) {
						t.Fatalf("used %d of %d bytes", used, len(s))
					}
					agree(t, s, size/2)
					agree(t, s, size+1)
					agree(t, append(bytes.Clone(s), 0xff, 0, 1, 2, 3), size)
				}
			})
		}
	}
}

func TestEveryTruncationIsNoticedExactlyWhereTheStandardLibraryNoticesIt(t *testing.T) {
	for name, data := range samples(3000) {
		for _, s := range [][]byte{deflate4K(t, data), deflate(t, data, flate.HuffmanOnly), deflate(t, data, 0)} {
			t.Run(name, func(t *testing.T) {
				for cut := 0; cut < len(s); cut += 1 + cut/200 {
					agree(t, s[:cut], len(data))
				}
			})
		}
	}
}

func TestSingleBitErrorsAreJudgedAsByTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for name, data := range samples(4000) {
		for _, s := range [][]byte{deflate4K(t, data), deflate(t, data, flate.HuffmanOnly), deflate(t, data, 6)} {
			t.Run(name, func(t *testing.T) {
				for bit := range min(600, 8*len(s)) {
					b := bytes.Clone(s)
					b[bit/8] ^= 1 << (bit & 7)
					agree(t, b, len(data))
				}
				for range 100 {
					b := bytes.Clone(s)
					b[r.IntN(len(b))] ^= byte(r.Uint32())
					agree(t, b, len(data))
				}
			})
		}
	}
}

// bitWriter composes streams by hand.
type bitWriter struct {
	out []byte
	n   uint
}

func (w *bitWriter) bits(v, n uint) *bitWriter {
	for i := range n {
		if w.n%8 == 0 {
			w.out = append(w.out, 0)
		}
		w.out[len(w.out)-1] |= byte(v>>i&1) << (w.n % 8)
		w.n++
	}
	return w
}

// dynamic begins a final dynamic block whose code length code gives each of
// the values 0..15 four bits, followed by the lengths of nLit literal and
// nDist distance codes.
func dynamic(lit, dist map[int]uint, nLit, nDist int) *bitWriter {
	w := new(bitWriter)
	w.bits(1, 1).bits(2, 2).bits(uint(nLit-257), 5).bits(uint(nDist-1), 5).bits(19-4, 4)
	for _, s := range preOrder {
		if s < 16 {
			w.bits(4, 3)
		} else {
			w.bits(0, 3)
		}
	}
	put := func(v uint) {
		for i := 3; i >= 0; i-- {
			w.bits(v>>uint(i)&1, 1)
		}
	}
	for s := range nLit {
		put(lit[s])
	}
	for s := range nDist {
		put(dist[s])
	}
	return w
}

func TestOddCodesAreJudgedAsByTheStandardLibrary(t *testing.T) {
	ones := func(from, n int, length uint) map[int]uint {
		m := map[int]uint{}
		for i := range n {
			m[from+i] = length
		}
		return m
	}
	cases := map[string]*bitWriter{
		"no literal codes at all":           dynamic(nil, nil, 257, 1),
		"only an end of block":              dynamic(ones(256, 1, 1), nil, 257, 1).bits(0, 1),
		"only an end of block, other bit":   dynamic(ones(256, 1, 1), nil, 257, 1).bits(1, 1),
		"one code of two bits":              dynamic(ones(256, 1, 2), nil, 257, 1).bits(0, 8),
		"incomplete":                        dynamic(ones(254, 3, 2), nil, 257, 1).bits(0, 8),
		"oversubscribed":                    dynamic(ones(252, 5, 2), nil, 257, 1).bits(0, 8),
		"distance code oversubscribed":      dynamic(ones(253, 4, 2), ones(0, 3, 1), 257, 3).bits(0, 8),
		"distance code incomplete":          dynamic(ones(253, 4, 2), ones(0, 3, 2), 257, 3).bits(0, 8),
		"distance code of one bit":          dynamic(ones(254, 4, 2), ones(0, 1, 1), 258, 1).bits(0, 2).bits(0, 2).bits(3, 2).bits(0, 1).bits(1, 2),
		"distance code of one bit misused":  dynamic(ones(254, 4, 2), ones(0, 1, 1), 258, 1).bits(0, 2).bits(0, 2).bits(3, 2).bits(1, 1).bits(1, 2),
		"match without distance codes":      dynamic(ones(254, 4, 2), nil, 258, 1).bits(0, 2).bits(3, 2).bits(0, 8),
		"distance beyond the start":         dynamic(ones(254, 4, 2), ones(0, 2, 1), 258, 2).bits(0, 2).bits(3, 2).bits(1, 1).bits(1, 2),
		"no end of block code":              dynamic(ones(252, 4, 2), nil, 257, 1).bits(0, 200),
		"too many literal codes":            dynamic(ones(252, 4, 2), nil, 287, 1).bits(0, 200),
		"too many distance codes":           dynamic(ones(253, 4, 2), nil, 257, 31).bits(0, 200),
		"fixed code 286":                    new(bitWriter).bits(1, 1).bits(1, 2).bits(0b01100011, 8).bits(0, 64),
		"fixed distance 30":                 new(bitWriter).bits(1, 1).bits(1, 2).bits(0b0001100, 8).bits(0b1000000, 7).bits(0b01111, 5).bits(0, 64),
		"reserved block type":               new(bitWriter).bits(1, 1).bits(3, 2).bits(0, 64),
		"stored with wrong complement":      new(bitWriter).bits(1, 3).bits(0, 5).bits(3, 16).bits(3, 16).bits(0, 64),
		"stored, empty, then the end":       new(bitWriter).bits(0, 8).bits(0, 16).bits(0xffff, 16).bits(1, 8).bits(0, 16).bits(0xffff, 16),
		"stored, cut off":                   new(bitWriter).bits(1, 8).bits(5, 16).bits(0xfffa, 16).bits(0x616263, 24),
		"nothing":                           new(bitWriter),
		"three bits, no more":               new(bitWriter).bits(4, 3),
		"codes of 15 bits":                  longCodes(),
		"repeat of nothing":                 new(bitWriter).bits(5, 3).bits(0, 14).bits(1, 3).bits(0, 6).bits(1, 3).bits(0, 64),
		"repeat beyond the last code":       new(bitWriter).bits(5, 3).bits(0, 14).bits(0, 6).bits(1, 3).bits(1, 3).bits(0xffffffff, 32).bits(0xffffffff, 32),
		"length code complete, but useless": dynamic(ones(0, 2, 1), nil, 257, 1).bits(0x5a5a5a5a, 32),
	}
	for name, w := range cases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 2, 3, 4, 5, 100, 1000} {
				for pad := 0; pad < 20; pad += 3 {
					agree(t, append(bytes.Clone(w.out), make([]byte, pad)...), size)
				}
				for cut := range w.out {
					agree(t, w.out[:cut], size)
				}
			}
		})
	}
}

// longCodes makes a block with codes of every length from 1 to 15, each used.
func longCodes() *bitWriter {
	lit := map[int]uint{256: 15}
	for i := range 14 {
		lit[i] = uint(i + 1)
	}
	lit[14] = 15
	w := dynamic(lit, nil, 257, 1)
	for i := range 15 {
		for range min(i+1, 14) {
			w.bits(1, 1)
		}
		if i < 14 {
			// Undo the last one: code i is i ones and a zero.
			w.n--
			w.out[w.n/8] &^= 1 << (w.n % 8)
			w.n++
		} else {
			w.bits(0, 1)
		}
	}
	return w.bits(0x7fff, 15)
}

func TestOutputEndsWhereTheDestinationEnds(t *testing.T) {
	for name, data := range samples(2000) {
		s := deflate4K(t, data)
		t.Run(name, func(t *testing.T) {
			for size := range 600 {
				agree(t, s, size)
			}
		})
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	data := samples(65536)["skewed"]
	s := deflate4K(t, data)
	dst := make([]byte, len(data))
	var d Decoder
	if n := testing.AllocsPerRun(20, func() {
		if _, _, err := d.Decode(dst, s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations per call", n)
	}
}

func TestErrorsTellWhatAndWhere(t *testing.T) {
	_, _, err := Decode(make([]byte, 10), []byte{7})
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrCorrupt || e.Detail != "reserved block type" {
		t.Fatalf("got %v", err)
	}
	_, _, err = Decode(make([]byte, 10), deflate(t, []byte("abc"), 6))
	if !errors.As(err, &e) || e.Kind != ErrShort || e.Dst != 3 {
		t.Fatalf("got %v", err)
	}
}

func FuzzDecodeAgreesWithTheStandardLibrary(f *testing.F) {
	for _, size := range []int{300, 5000} {
		for _, data := range samples(size) {
			f.Add(deflate4K(f, data), uint32(size))
			f.Add(deflate(f, data, flate.HuffmanOnly), uint32(size-1))
		}
	}
	f.Add(longCodes().out, uint32(15))
	f.Fuzz(func(t *testing.T, src []byte, size uint32) {
		agree(t, src, int(size%(1<<17)))
	})
}

// corpus returns chunks of 64 KiB of the files that match the patterns.
func corpus(b *testing.B, patterns ...string) [][]byte {
	b.Helper()
	var chunks [][]byte
	for _, p := range patterns {
		names, _ := filepath.Glob(p)
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			for len(data) >= 65536 && len(chunks) < 256 {
				chunks = append(chunks, data[:65536])
				data = data[65536:]
			}
		}
	}
	if len(chunks) == 0 {
		b.Skip("no such files here")
	}
	return chunks
}

func BenchmarkDecode(b *testing.B) {
	corpora := map[string][]string{
		"text":   {"*.go", "/usr/share/common-licenses/GPL-3", "/usr/share/perl/5*/*.pl", "/usr/share/perl/5*/unicore/*.txt", "/usr/share/dict/words", "/usr/share/perl/5*/*.pm"},
		"binary": {"/usr/bin/gdb", "/usr/bin/python3.1?", "/bin/bash", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/[a-f]*"},
	}
	for _, name := range []string{"text", "binary"} {
		for _, window := range []int{4, 32} {
			chunks := corpus(b, corpora[name]...)
			var streams [][]byte
			for _, c := range chunks {
				if window == 4 {
					streams = append(streams, deflate4K(b, c))
				} else {
					streams = append(streams, deflate(b, c, 6))
				}
			}
			run := func(who string, decode func(dst, src []byte) error) {
				b.Run(fmt.Sprintf("%s/%dK/%s", name, window, who), func(b *testing.B) {
					dst := make([]byte, 65536)
					b.SetBytes(65536)
					for i := range b.N {
						if err := decode(dst, streams[i%len(streams)]); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			var d Decoder
			run("own", func(dst, src []byte) error {
				_, _, err := d.Decode(dst, src)
				return err
			})
			std := flate.NewReader(nil)
			in := new(bytes.Reader)
			run("standard", func(dst, src []byte) error {
				in.Reset(src)
				std.(flate.Resetter).Reset(in, nil)
				_, err := io.ReadFull(std, dst)
				return err
			})
			kp := kflate.NewReader(nil)
			run("klauspost", func(dst, src []byte) error {
				in.Reset(src)
				kp.(kflate.Resetter).Reset(in, nil)
				_, err := io.ReadFull(kp, dst)
				return err
			})
		}
	}
}
