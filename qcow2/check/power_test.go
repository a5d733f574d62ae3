package check

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"byre/block"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

// guestDigest sums up what the active state and each snapshot read as, as far as their entries are valid. Zeros do not count,
// however they are said.
func guestDigest(b []byte) string {
	h, err := layout.DecodeFixed(b)
	if err != nil {
		return err.Error()
	}
	g := h.Geometry()
	sum := fnv.New64a()
	at := func(off, n int64) []byte {
		p := make([]byte, n)
		if off >= 0 && off < int64(len(b)) {
			copy(p, b[off:])
		}
		return p
	}
	var tables map[int64]bool // L2 tables of the active state
	walk := func(name string, l1, n int64) {
		for i := range min(n, 1<<16) {
			e := layout.L1Entry(binary.BigEndian.Uint64(at(l1+i*8, 8)))
			if e.Offset() == 0 || !g.Aligned(e.Offset()) {
				continue
			}
			table := at(int64(e.Offset()), g.ClusterSize())
			for k := range g.L2Entries() {
				w := layout.L2Entry(layout.Word(table, k*g.L2EntrySize()/8))
				var data []byte
				switch t := g.ClusterType(w); {
				case w.Compressed():
					z, _ := g.DecodeCompressed(w)
					data = at(int64(z.Offset), z.Size)
				case g.ExtendedL2 && g.Aligned(w.Offset()) && w.Offset() != 0:
					_, m := layout.ExtendedEntry(table, k)
					data = at(int64(w.Offset()), g.ClusterSize())
					for s := range 32 {
						if m.Alloc()>>s&1 == 0 {
							clear(data[int64(s)*g.SubclusterSize():][:g.SubclusterSize()])
						}
					}
				case t == layout.TypeNormal && g.Aligned(w.Offset()) && !g.ExtendedL2 && !g.DataFile:
					data = at(int64(w.Offset()), g.ClusterSize())
				}
				if len(data) > 0 && tables[int64(w.Offset())] {
					continue // a table is data too: what repairs it changes the data
				}
				if len(bytes.Trim(data, "\x00")) > 0 {
					fmt.Fprintf(sum, "%s %d %d ", name, i, k)
					sum.Write(data)
				}
			}
		}
	}
	tables = map[int64]bool{}
	for i := range min(int64(h.L1Size), 1<<16) {
		tables[int64(layout.L1Entry(binary.BigEndian.Uint64(at(int64(h.L1TableOffset)+i*8, 8))).Offset())] = true
	}
	walk("active", int64(h.L1TableOffset), int64(h.L1Size))
	pos := int64(h.SnapshotsOffset)
	for i := range min(int64(h.NbSnapshots), 100) {
		s, n, err := layout.DecodeSnapshot(b[min(pos, int64(len(b))):], layout.HostOffset(pos), layout.SnapshotOptions{TruncateExtra: true})
		if err != nil {
			break
		}
		walk(fmt.Sprint("snapshot", i, s.ID, s.Name), int64(s.L1TableOffset), int64(s.L1Size))
		pos += int64(n)
	}
	return fmt.Sprintf("%x", sum.Sum64())
}

// recorded runs a full repair on crashable memory.
func recorded(t *testing.T, image []byte) (*mem.Clock, *mem.File, Result, error) {
	clk := mem.NewClock()
	f := clk.NewFile("image", 0)
	if _, err := f.WriteAt(image, 0); err != nil {
		t.Fatal(err)
	}
	clk.Reset()
	r, err := repairFile(f)
	return clk, f, r, err
}

func repairFile(f *mem.File) (Result, error) {
	d := block.NewDevice(f.Open(mem.Options{}))
	defer d.Close()
	return Run(context.Background(), d, Options{Repair: All, Discard: true, Workers: 1})
}

// cutEverywhere cuts the power at every event of a repair that ends well; a further repair must end well too and every byte that
// could be read must still be there. It returns the number of cuts.
func cutEverywhere(t *testing.T, name string, image []byte, e mem.Enumeration) int {
	t.Helper()
	clk, f, r, err := recorded(t, image)
	if exitCode(r, err) != 0 {
		return 0
	}
	want := guestDigest(image)
	if got := guestDigest(f.Bytes()); got != want {
		t.Errorf("%s: a repair changed what the image reads as", name)
		return 0
	}
	cuts, failed := 0, false
	for k := 0; k <= clk.Now() && !failed; k++ {
		cuts += clk.Each(k, e, func(c *mem.Crash) bool {
			after := c.File(f)
			if got := guestDigest(after.Bytes()); got != want {
				t.Errorf("%s: after %v the image reads otherwise", name, c)
				failed = true
			}
			if r, err := repairFile(after); exitCode(r, err) != 0 {
				t.Errorf("%s: after %v another repair ends with %+v %v", name, c, r, err)
				failed = true
			}
			if got := guestDigest(after.Bytes()); got != want {
				t.Errorf("%s: after %v and another repair the image reads otherwise", name, c)
				failed = true
			}
			return !failed
		})
	}
	return cuts
}

// incomplete gives an image whose v3 snapshot table lacks what version 3 asks for.
func incomplete(t *testing.T) []byte {
	b := makeImage(t, flavour{size: "1M", create: []string{"compat=0.10,cluster_size=4k"}, io: []string{"write -P 1 0 128k"},
		img: [][]string{{"snapshot", "-c", "a"}, {"snapshot", "-c", "b"}}})
	h, err := layout.DecodeFixed(b)
	if err != nil {
		t.Fatal(err)
	}
	b = patched(b, patch{4, uint32(3)}, patch{96, uint32(4)}, patch{100, uint32(104)}, patch{72, uint64(0)}, patch{80, uint64(0)}, patch{88, uint64(0)})
	clear(b[104:512])
	table, _, err := layout.DecodeSnapshotTable(b[h.SnapshotsOffset:], h.SnapshotsOffset, 2, layout.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, s := range table { // without extra data
		e := layout.AppendSnapshot(nil, &s)
		binary.BigEndian.PutUint32(e[36:], 0)
		e = append(e[:40:40], e[64:]...)
		out = append(out, e...)
	}
	copy(b[h.SnapshotsOffset:], out)
	return b
}

func TestASnapshotTableIsCompletedByARepair(t *testing.T) {
	b := incomplete(t)
	r, lines, err := run(t, memImage(t, b), Options{})
	if r.Corruptions != 2 || err != nil || !strings.HasSuffix(lines[0], "snapshot table entry 0 is incomplete") {
		t.Fatalf("%+v %v %q", r, err, lines)
	}
	if o := realCheck(t, writeFile(t, "i", b)); o.exit != 2 || o.num("corruptions") != 2 {
		t.Fatalf("the real tool says %+v", o)
	}
	d := memImage(t, b)
	r, lines, err = run(t, d, Options{Repair: All})
	if !r.Clean() || r.CorruptionsFixed != 2 || err != nil {
		t.Fatalf("%+v %v %q", r, err, lines)
	}
	p := writeFile(t, "i", contents(t, d))
	if o := realCheck(t, p); o.exit != 0 {
		t.Fatalf("the real tool says %+v", o)
	}
	qemu(t, t.TempDir(), "qemu-img", "snapshot", "-a", "b", p)
}

// TestAPowerCutDuringARepairIsRepaired cuts everywhere in the repairs of the measured defects and of mutated images.
func TestAPowerCutDuringARepairIsRepaired(t *testing.T) {
	small := makeImage(t, flavour{size: "256k", create: []string{"cluster_size=512"}, io: []string{"write -P 1 0 40k", "write -P 9 100k 9k"}, img: [][]string{{"snapshot", "-c", "a"}}})
	h, err := layout.DecodeFixed(small)
	if err != nil {
		t.Fatal(err)
	}
	block0 := int64(binary.BigEndian.Uint64(small[h.RefcountTableOffset:]))
	cases := map[string][]byte{
		"snapshot table": incomplete(t),
		"dirty":          patched(small, patch{72, uint64(1)}, patch{block0 + 40, uint64(0)}),
		"lost counts":    patched(small, patch{block0 + 8, uint64(0)}, patch{block0 + 80, uint64(0)}),
		"high counts":    patched(small, patch{block0 + 16, uint64(0x0003000300030003)}),
		"low counts":     patched(small, patch{block0 + 64, uint64(0x0001000100010001)}, patch{block0 + 96, uint64(0x0001000100010001)}),
		"no table":       patched(small, patch{48, uint64(0)}, patch{56, uint32(0)}),
	}
	e := mem.Enumeration{Subsets: 24, Torn: 4}
	total := 0
	for name, b := range cases {
		n := cutEverywhere(t, name, b, e)
		if n == 0 {
			t.Errorf("%s: the repair itself does not end well", name)
		}
		total += n
	}
	mutated := 500
	if testing.Short() {
		mutated = 50
	}
	if os.Getenv("CHECK_MUTATIONS") != "" {
		mutated = mutationCount()
	}
	for seed := range mutated {
		m := newMutator(uint64(seed)+1e6, small)
		for range 1 + rand.New(rand.NewPCG(uint64(seed), 1)).IntN(3) {
			m.step()
		}
		total += cutEverywhere(t, fmt.Sprintf("mutation %d", seed), m.b, mem.Enumeration{Subsets: 8, Torn: 2, Seed: uint64(seed)})
	}
	t.Logf("%d cuts", total)
}
