package inspect_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"byre/block"
	"byre/internal/testenv"
	"byre/qcow2/inspect"
	"byre/qcow2/layout"
	"byre/storage/mem"
)

// real makes an image with the real tools and returns its bytes.
func real(t *testing.T, options string, size string, cmds ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.qcow2")
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, size)
	if len(cmds) > 0 {
		args := []string{"-f", "qcow2"}
		for _, c := range cmds {
			args = append(args, "-c", c)
		}
		testenv.Run(t, "qemu-io", append(args, path)...)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t testing.TB, b []byte) (*inspect.File, error) {
	f := mem.NewFile("x.qcow2", 0)
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return inspect.Open(t.Context(), block.NewDevice(f.Open(mem.Options{})))
}

func mustOpen(t testing.TB, b []byte) *inspect.File {
	t.Helper()
	f, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func l2Text(t testing.TB, f *inspect.File) string {
	var out []string
	for r, err := range f.L2(t.Context(), f.Active(), 0, 1<<62) {
		if err != nil {
			out = append(out, "error "+err.Error())
			continue
		}
		s := fmt.Sprintf("%d+%d %v", r.Index, r.Count, r.Type)
		if r.Mixed {
			s = fmt.Sprintf("%d+%d mixed %#x", r.Index, r.Count, uint64(r.Bitmap))
		}
		if r.Host != 0 {
			s += " " + r.Host.String()
		}
		if r.Problem != "" {
			s += " (" + r.Problem + ")"
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestTablesOfARealImageAreListed(t *testing.T) {
	f := mustOpen(t, real(t, "compat=1.1", "8M", "write 0 128k", "write -z 1M 128k", "write -c -P 3 2M 64k", "write 4M 64k"))
	if !f.Valid || len(f.Problems) > 0 {
		t.Errorf("problems: %q", f.Problems)
	}
	const want = "0+2 normal 0x50000; 16+2 zero; 32+1 compressed 0x70000; 64+1 normal 0x80000"
	if got := l2Text(t, f); got != want {
		t.Errorf("L2 entries\n%s\nwant\n%s", got, want)
	}
	n := 0
	for r, err := range f.L1(t.Context(), f.Active()) {
		if err != nil || r.L2 != 0x40000 || !r.Copied || len(r.Problems) > 0 {
			t.Errorf("L1: %+v, %v", r, err)
		}
		n++
	}
	counted := int64(0)
	for r, err := range f.Refcounts(t.Context()) {
		if err != nil || r.Value != 1 {
			t.Errorf("refcounts: %+v, %v", r, err)
		}
		counted += r.Count
	}
	if n != 1 || counted != 9 {
		t.Errorf("%d L1 entries, %d counted clusters; want 1 and 9", n, counted)
	}
}

func TestSubclustersAreListed(t *testing.T) {
	f := mustOpen(t, real(t, "extended_l2=on", "1M", "write 4k 2k", "write 64k 64k"))
	const want = "0+1 mixed 0x4 0x50000; 1+1 normal 0x60000"
	if got := l2Text(t, f); got != want {
		t.Errorf("L2 entries\n%s\nwant\n%s", got, want)
	}
}

func TestRangesLimitTheList(t *testing.T) {
	f := mustOpen(t, real(t, "cluster_size=512", "1M", "write 0 256k"))
	total := 0
	for r, err := range f.L2(t.Context(), f.Active(), 100<<10, 200<<10) {
		if err != nil || r.Guest < 100<<10 {
			t.Errorf("%+v, %v", r, err)
		}
		total += r.Count
	}
	if total != 200 {
		t.Errorf("%d clusters of 512 bytes between 100 KiB and 200 KiB", total)
	}
}

func put(b []byte, off int, v uint64) []byte {
	out := append([]byte(nil), b...)
	binary.BigEndian.PutUint64(out[off:], v)
	return out
}

func TestWhatIsWrongIsSaidAndTheRestIsListed(t *testing.T) {
	b := real(t, "compat=1.1", "8M", "write 0 128k")
	for _, c := range []struct {
		name  string
		image []byte
		want  string // in problems, or in the list of L2 entries
	}{
		{"an L2 entry beyond the end", put(b, 0x40000, 0x8000000100000000), "beyond the end"},
		{"an unaligned L2 entry", put(b, 0x40000, 0x8000000000050200), "not aligned"},
		{"reserved bits", put(b, 0x40000, 0x9000000000050000), "reserved bits"},
		{"an L2 table beyond the end", put(b, 0x30000, 0x8000000100000000), "cannot be read"},
		{"an L1 table beyond the end", put(b, 40, 0x100000000), "beyond the end"},
		{"an unknown feature", put(b, 72, 1<<40), "unsupported feature"},
		{"an L1 table in the header", put(b, 40, 0), "lies in the header"},
		{"a virtual size that is too large", put(b, 24, 1<<62), "above the limit"},
		{"a header that ends", b[:100], "inside the header"},
		{"a header that ends early", b[:30], "inside the header"},
		{"an L1 table that ends", b[:0x30000], "cut off"},
		{"an unknown cluster size", put(b, 16, 99), "cluster size"},
		{"an unknown version", put(b, 0, 0x514649fb00000009), "version 9"},
	} {
		f := mustOpen(t, c.image)
		all := strings.Join(f.Problems, "; ")
		all += " | " + l2Text(t, f)
		if !strings.Contains(all, c.want) {
			t.Errorf("%s: %s; want %q in it", c.name, all, c.want)
		}
		f.Safety(t.Context())
	}
	for _, b := range [][]byte{nil, []byte("QFI"), []byte("hello, world")} {
		if _, err := open(t, b); err == nil {
			t.Errorf("%q was taken for an image", b)
		}
	}
}

func TestSafetyNamesEveryReferenceAndOddity(t *testing.T) {
	create := func(h layout.Header) []byte {
		h.Version, h.ClusterBits, h.RefcountOrder, h.Size, h.L1Size = 3, 16, 4, 1<<20, 1
		h.L1TableOffset, h.RefcountTableOffset, h.RefcountTableClusters = 0x30000, 0x10000, 1
		c0, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return append(c0, make([]byte, 0x30000)...)
	}
	for _, c := range []struct {
		h    layout.Header
		want []string
	}{
		{layout.Header{BackingFile: "/etc/passwd"}, []string{"absolute path", "system folder /etc/", "no format recorded"}},
		{layout.Header{BackingFile: "nbd:host:1", Extensions: layout.Extensions{BackingFormat: "raw"}}, []string{"protocol nbd"}},
		{layout.Header{BackingFile: `json:{"driver":"nbd"}`}, []string{"option tree"}},
		{layout.Header{BackingFile: "../../x"}, []string{"leaves the folder"}},
		{layout.Header{BackingFile: "a\x1b[2Jb"}, []string{"control characters"}},
		{layout.Header{Incompatible: layout.IncompatDataFile}, []string{"has to be given"}},
		{layout.Header{Extensions: layout.Extensions{DataFile: "x.dat"}}, []string{"feature bit is not set"}},
		{layout.Header{Incompatible: layout.IncompatDirty | layout.IncompatCorrupt}, []string{"dirty", "corrupt"}},
		{layout.Header{Compatible: 1 << 9, Autoclear: 1 << 33}, []string{"unknown compatible", "unknown autoclear"}},
		{layout.Header{UnknownFields: []byte{1, 2, 3, 4, 5, 6, 7, 8}}, []string{"header of 120 bytes", "fields are not zero"}},
		{layout.Header{Extensions: layout.Extensions{UnknownExtensions: []layout.Extension{{Type: 0x1234, Data: []byte("x")}}}},
			[]string{"unknown header extension 0x1234"}},
		{layout.Header{Autoclear: layout.AutoclearBitmaps}, []string{"no bitmaps"}},
	} {
		f := mustOpen(t, create(c.h))
		s := f.Safety(t.Context())
		text := fmt.Sprint(s.References, s.Oddities)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s\nwant %q in it", text, want)
			}
		}
	}
	clean := mustOpen(t, create(layout.Header{}))
	if s := clean.Safety(t.Context()); len(s.References)+len(s.Oddities) > 0 {
		t.Errorf("a plain image: %+v", s)
	}
	stray := create(layout.Header{})
	copy(stray[0x8000:], "hidden")
	if s := mustOpen(t, stray).Safety(t.Context()); !strings.Contains(fmt.Sprint(s.Oddities), "6 bytes in the header cluster") {
		t.Errorf("stray bytes: %+v", s)
	}
}

func FuzzInspect(f *testing.F) {
	h := layout.Header{Version: 3, ClusterBits: 9, RefcountOrder: 4, Size: 1 << 16, L1Size: 2, L1TableOffset: 512,
		RefcountTableOffset: 1024, RefcountTableClusters: 1, NbSnapshots: 1, SnapshotsOffset: 1536, BackingFile: "base",
		Extensions: layout.Extensions{BackingFormat: "raw"}}
	c0, err := h.Encode()
	if err != nil {
		f.Fatal(err)
	}
	img := append(c0, make([]byte, 4096)...)
	binary.BigEndian.PutUint64(img[512:], 1<<63|2048)
	binary.BigEndian.PutUint64(img[1024:], 2560)
	binary.BigEndian.PutUint64(img[2048:], 1<<63|3072)
	f.Add(img)
	f.Add(c0)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := open(t, b)
		if err != nil {
			return
		}
		n := 0
		for _, err := range x.L1(t.Context(), x.Active()) {
			if n++; err != nil {
				break
			}
		}
		l2Text(t, x)
		for r, err := range x.Refcounts(t.Context()) {
			if err == nil && (r.Count <= 0 || r.Value == 0) {
				t.Fatalf("%+v", r)
			}
		}
		for s, err := range x.Snapshots(t.Context()) {
			if err != nil {
				break
			}
			for range x.L1(t.Context(), s.Table()) {
				break
			}
		}
		x.Safety(t.Context())
		_, _ = x.LUKS(t.Context())
	})
}
