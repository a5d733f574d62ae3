package image_test

import (
	"os"
	"testing"

	"byre/image"
	"byre/internal/testenv"
)

func TestGrowingAheadCanBeTurnedOff(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, mode := range []string{"on", "off"} {
		testenv.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", mode+".qcow2", "64M")
		im := mustOpen(t, "driver=qcow2,file.driver=file,file.filename="+mode+".qcow2,file.grow-ahead="+mode, image.WithOptionString(), image.Writable())
		if _, err := im.WriteAt(make([]byte, 4096), 0); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(mode + ".qcow2")
		if err != nil {
			t.Fatal(err)
		}
		if ahead := st.Size() > 16<<20; ahead != (mode == "on") {
			t.Errorf("grow-ahead=%s: the file of one cluster is %d bytes long while open", mode, st.Size())
		}
	}
	if _, err := image.Open(t.Context(), "driver=qcow2,file.filename=on.qcow2,file.grow-ahead=maybe", image.WithOptionString()); err == nil {
		t.Error("grow-ahead=maybe was accepted")
	}
}
