package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"byre/qcow2/layout"
)

// mutationCount is how many mutated images a run tries: CHECK_MUTATIONS, or a few hundred.
func mutationCount() int {
	if n, err := strconv.Atoi(os.Getenv("CHECK_MUTATIONS")); err == nil && n > 0 {
		return n
	}
	if testing.Short() {
		return 40
	}
	return 220
}

// mutator damages images in ways that look like metadata.
type mutator struct {
	*rand.Rand
	b     []byte
	g     layout.Geometry
	words []int64 // file offsets of 8-byte words of metadata that are not 0
	metas []int64 // offsets of metadata clusters
}

func newMutator(seed uint64, image []byte) *mutator {
	m := &mutator{Rand: rand.New(rand.NewPCG(seed, 7)), b: bytes.Clone(image)}
	h, err := layout.DecodeFixed(image)
	if err != nil {
		panic(err)
	}
	m.g = h.Geometry()
	cs := m.g.ClusterSize()
	meta := map[int64]bool{0: true}
	tables := func(off, n int64) (list []int64) {
		for i := int64(0); i < n && off+i*8+8 <= int64(len(image)); i++ {
			meta[(off+i*8)/cs*cs] = true
			if to := int64(binary.BigEndian.Uint64(image[off+i*8:]) & 0x00fffffffffffe00); to != 0 && to < int64(len(image)) {
				list = append(list, to)
			}
		}
		return list
	}
	for _, to := range tables(int64(h.L1TableOffset), int64(h.L1Size)) {
		meta[to] = true
	}
	for _, to := range tables(int64(h.RefcountTableOffset), int64(h.RefcountTableClusters)*cs/8) {
		meta[to] = true
	}
	if h.SnapshotsOffset > 0 {
		meta[int64(h.SnapshotsOffset)] = true
		meta[int64(binary.BigEndian.Uint64(image[h.SnapshotsOffset:]))] = true
	}
	for off := int64(0); off < int64(len(image)); off += cs {
		if !meta[off] {
			continue
		}
		m.metas = append(m.metas, off)
		for w := off; w+8 <= min(off+cs, int64(len(image))); w += 8 {
			if binary.BigEndian.Uint64(image[w:]) != 0 {
				m.words = append(m.words, w)
			}
		}
	}
	return m
}

func (m *mutator) place() int64 {
	at := m.words[m.IntN(len(m.words))]
	if m.IntN(4) == 0 {
		at = m.metas[m.IntN(len(m.metas))] + m.Int64N(min(m.g.ClusterSize(), 512))&^7
	}
	if at+8 > int64(len(m.b)) { // cut off before
		return 8 * m.Int64N(64)
	}
	return at
}

func (m *mutator) step() string {
	at := m.place()
	w := m.b[at : at+8]
	old := binary.BigEndian.Uint64(w)
	cs := uint64(m.g.ClusterSize())
	set := func(what string, v uint64) string {
		binary.BigEndian.PutUint64(w, v)
		return fmt.Sprintf("%s at %#x: %#x -> %#x", what, at, old, v)
	}
	switch m.IntN(12) {
	case 0:
		return set("bit", old^1<<m.IntN(64))
	case 1:
		return set("clear", 0)
	case 2:
		return set("other word", binary.BigEndian.Uint64(m.b[m.place()&^7:]))
	case 3:
		return set("cluster", old&^0x00fffffffffffe00|m.Uint64N(uint64(len(m.b))/cs+3)*cs)
	case 4:
		return set("odd offset", old+512*m.Uint64N(8))
	case 5:
		return set("beyond", old|1<<(20+m.IntN(40)))
	case 6:
		w[m.IntN(8)] = byte(m.Uint32())
		return fmt.Sprintf("byte near %#x", at)
	case 7:
		v := old ^ 1<<[]int{0, 62, 63}[m.IntN(3)]
		return set("flag", v)
	case 8: // a number of the header
		f := []int64{16, 24, 28, 36, 40, 44, 48, 52, 56, 60, 64, 72, 88, 96, 100}[m.IntN(15)]
		at, w = f, m.b[f:f+4]
		v := []uint32{0, 1, 2, 4, 0xffff, 1 << 31, m.Uint32(), binary.BigEndian.Uint32(w) + 1, uint32(cs)}[m.IntN(9)]
		binary.BigEndian.PutUint32(w, v)
		return fmt.Sprintf("header %d = %#x", f, v)
	case 9:
		if m.IntN(4) > 0 {
			return set("random", m.Uint64())
		}
		n := m.Int64N(int64(len(m.b)))
		m.b = m.b[:max(n, 512)]
		return fmt.Sprintf("cut to %d", len(m.b))
	case 10:
		from, to := m.metas[m.IntN(len(m.metas))], m.metas[1+m.IntN(len(m.metas)-1)]
		n := min(int64(cs), int64(len(m.b))-max(from, to))
		if n > 0 {
			copy(m.b[to:to+n], m.b[from:from+n])
		}
		return fmt.Sprintf("cluster %#x over %#x", from, to)
	default:
		i := m.IntN(1 + min(int(cs), 64))
		copy(w, m.b[min(at+int64(i)&^7, int64(len(m.b))):])
		return fmt.Sprintf("moved word at %#x", at)
	}
}

// TestMutatedImages puts damaged images through check, repair, check: no panic, bounded, and what is called clean the real
// tool calls clean too.
func TestMutatedImages(t *testing.T) {
	var bases [][]byte
	var kinds []flavour
	for _, f := range flavours {
		if f.name != "luks" { // the real tool wants its secret; nothing there differs but the area
			bases, kinds = append(bases, makeImage(t, f)), append(kinds, f)
		}
	}
	n, first := mutationCount(), 0
	if s, err := strconv.Atoi(os.Getenv("CHECK_SEED")); err == nil { // one image, told at length
		n, first = s+1, s
	}
	workers := runtime.GOMAXPROCS(0)
	stats := make([][5]int, workers)
	t.Run("all", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for seed := first + w; seed < n; seed += workers {
					k := seed % len(bases)
					m := newMutator(uint64(seed), bases[k])
					var steps []string
					for range 1 + m.IntN(4) {
						if len(m.b) < 600 {
							break
						}
						steps = append(steps, m.step())
						m.words = m.words[:len(m.words):len(m.words)]
					}
					judgeMutation(t, fmt.Sprintf("%s seed %d %q", kinds[k].name, seed, steps), kinds[k], m.b, &stats[w])
				}
			})
		}
	})
	var sum [5]int
	for _, s := range stats {
		for i := range s {
			sum[i] += s[i]
		}
	}
	t.Logf("%d images: plain %d clean, %d leaks, %d corrupt, %d not checkable; %d clean after repair", n, sum[0], sum[3], sum[2], sum[1], sum[4])
}

func judgeMutation(t *testing.T, name string, f flavour, b []byte, stats *[5]int) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: panic: %v", name, p)
			panic(p)
		}
	}()
	if os.Getenv("CHECK_SEED") != "" {
		tell(t, b)
	}
	plain := bounded(t, name, b, Nothing, nil)
	stats[plain]++
	if plain == 0 {
		if o := realCheckBytes(t, f, b); o.exit != 0 && o.exit != 1 {
			t.Errorf("%s: called clean, but the real tool says %d %q", name, o.exit, o.lines)
		}
	}
	for _, level := range []Level{Leaks, All} {
		var after []byte
		got := bounded(t, name, b, level, &after)
		again := bounded(t, name, after, Nothing, nil)
		if got != 1 && got != again {
			t.Errorf("%s: level %d ends with %d, and another check with %d", name, level, got, again)
		}
		if plain != 1 && level == All && got == 1 {
			t.Logf("%s: could be checked but not repaired", name)
		}
		if got != 0 {
			continue
		}
		if level == All {
			stats[4]++
		}
		if o := realCheckBytes(t, f, after); o.exit != 0 && !realRefuses(o) {
			t.Errorf("%s: level %d called clean, but the real tool says %d %q", name, level, o.exit, o.lines)
		}
	}
}

// realRefuses: the real tool does not open every image that is sound by its tables (names of files that are not there,
// features beside the tables).
func realRefuses(o oracle) bool { return o.exit == 1 && o.json == nil }

// bounded runs one check and holds it to limits of time and memory.
func bounded(t *testing.T, name string, b []byte, level Level, after *[]byte) int {
	d := memImage(t, b)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	r, err := Run(ctx, d, Options{Repair: level, Workers: 1})
	runtime.ReadMemStats(&is)
	if ctx.Err() != nil {
		t.Errorf("%s: level %d takes too long", name, level)
	}
	// What runs beside this allocates too: the bound is a coarse one.
	if n := is.TotalAlloc - was.TotalAlloc; n > 400<<20 {
		t.Errorf("%s: level %d took %d MiB", name, level, n>>20)
	}
	if after != nil {
		if d.Size() > int64(len(b))+(64<<20) {
			t.Errorf("%s: level %d made the file %d bytes long", name, level, d.Size())
			return 1
		}
		*after = contents(t, d)
	}
	return exitCode(r, err)
}

// tell prints what all levels say about an image.
func tell(t *testing.T, b []byte) {
	for _, level := range []Level{Nothing, Leaks, All} {
		d := memImage(t, b)
		r, lines, err := run(t, d, Options{Repair: level})
		t.Logf("level %d: %+v %v", level, r, err)
		for _, l := range lines {
			t.Log("    ", l)
		}
		if level != Nothing {
			r, lines, err = run(t, d, Options{})
			t.Logf("again: %+v %v %q", r, err, lines)
		}
	}
	o := realCheck(t, writeFile(t, "told.qcow2", b))
	t.Logf("the real tool: %d %v", o.exit, o.json)
	for _, l := range o.lines {
		t.Log("    ", l)
	}
}
