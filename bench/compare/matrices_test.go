package compare

import (
	"os/exec"
	"strings"
	"testing"

	"byre/internal/testenv"
)

func TestEveryReadyMadeMatrixParsesAndIsABashScript(t *testing.T) {
	testenv.Tool(t, "bash")
	bin := &Switch{Name: "bin", Axis: Column, Alts: []Alternative{{"byre", "/x/byre"}, {"other", "/y/qemu-img"}}}
	dir := &Switch{Name: "dir", Axis: Row, Alts: []Alternative{{"", "/scratch"}}}
	list := Matrices()
	if len(list) != 8 {
		t.Errorf("%d matrices", len(list))
	}
	for _, m := range list {
		tpl, err := Parse(m.Template, bin, dir)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if m.Title == "" || strings.HasPrefix(m.Title, "#") {
			t.Errorf("%s has no title", m.Name)
		}
		names, scripts := tpl.Commands()
		for _, i := range []int{0, len(scripts) / 2, len(scripts) - 1} {
			script := scripts[i]
			if out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", script).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s\n%s", m.Name, names[i], err, out, script)
			}
		}
	}
}
