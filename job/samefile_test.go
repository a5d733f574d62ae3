package job

import (
	"os"
	"path/filepath"
	"testing"

	"byre/image"
	"byre/internal/testenv"
)

func TestReadsFindsTheFileUnderAnyName(t *testing.T) {
	dir := t.TempDir()
	p := func(name string) string { return filepath.Join(dir, name) }
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "raw", p("base"), "1M")
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", p("base"), "-F", "raw", p("mid"))
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", p("mid"), "-F", "qcow2", p("top"))
	testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file="+p("data"), p("ext"), "1M")
	for _, err := range []error{os.Link(p("base"), p("hard")), os.Symlink("mid", p("soft")), os.WriteFile(p("other"), nil, 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		image, path, want string
	}{
		{"top", "top", "top"}, {"top", "hard", "base"}, {"top", "soft", "mid"}, {"top", "other", ""}, {"top", "missing", ""},
		{"ext", "data", "data"}, {"ext", "base", ""}, {"base", "hard", "base"}, {"mid", "top", ""},
	} {
		im, err := image.Open(t.Context(), p(c.image), image.WithGate(image.AllowReferences))
		if err != nil {
			t.Fatal(err)
		}
		name, found := Reads(im.Device(), p(c.path))
		im.Close()
		if found != (c.want != "") || found && name != p(c.want) {
			t.Errorf("does %s read %s? %q, %v", c.image, c.path, name, found)
		}
	}
}
