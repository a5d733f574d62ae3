package image

import (
	"errors"
	"testing"

	"byre/block"
)

func TestNamesStandForStorage(t *testing.T) {
	for _, c := range []struct {
		in, want string
		kind     block.Kind
	}{
		{in: "a.img", want: "driver=file;filename=a.img"},
		{in: "/x/y:z.img", want: "driver=file;filename=/x/y:z.img"},
		{in: "./y:z.img", want: "driver=file;filename=./y:z.img"},
		{in: "file:a:b.img", want: "driver=file;filename=a:b.img"},
		{in: "file:///x", want: "driver=file;filename=/x"},
		{in: "host_device:/dev/loop0", want: "driver=host_device;filename=/dev/loop0"},
		{in: `json:{"driver":"raw","file.filename":"x"}`, want: "driver=raw;file.filename=x"},
		{in: "blkdebug:c.cfg:file:a.img", want: "config=c.cfg;driver=blkdebug;image.driver=file;image.filename=a.img"},
		{in: "blkdebug::a.img", want: "driver=blkdebug;image.driver=file;image.filename=a.img"},
		{in: "blkdebug:a.img", kind: block.KindInvalid},
		{in: "null-co://", want: "driver=null-co"},
		{in: "nosuch:x", kind: block.KindInvalid},
		{in: ":x", want: "driver=file;filename=:x"},
		{in: "nbd:unix:/x", kind: block.KindUnsupported},
		{in: "https://example.org/a.img", kind: block.KindUnsupported},
	} {
		got, err := nameTree(c.in, true)
		if block.KindOf(err) != c.kind || err == nil && show(got) != c.want {
			t.Errorf("%q: %s, %v; want %s, %v", c.in, show(got), err, c.want, c.kind)
		}
	}
	if got, err := nameTree("json:{}", false); err != nil || show(got) != "driver=file;filename=json:{}" {
		t.Errorf("a name that must be a plain path was parsed: %v, %v", got, err)
	}
}

func TestReferencesAreRelativeToTheFileThatHoldsThem(t *testing.T) {
	for _, c := range []struct{ base, name, want string }{
		{"top.qcow2", "base.raw", "base.raw"},
		{"d/top.qcow2", "base.raw", "d/base.raw"},
		{"./d/../top.qcow2", "x/base.raw", "./d/../x/base.raw"},
		{"/a/top.qcow2", "../base.raw", "/a/../base.raw"},
		{"/a/top.qcow2", "/b/base.raw", "/b/base.raw"},
		{"/a/top.qcow2", "nbd:localhost:1", "nbd:localhost:1"},
		{"/a/top.qcow2", "json:{}", "json:{}"},
		{"file:top.qcow2", "base.raw", "file:base.raw"},
		{"d/top.qcow2", "with/colon:x", "d/with/colon:x"},
	} {
		if got := combine(c.base, c.name); got != c.want {
			t.Errorf("%q in %q: %q, want %q", c.name, c.base, got, c.want)
		}
	}
}

func TestProbingNamesEveryFormat(t *testing.T) {
	pad := func(s string, n int, at int, more string) []byte {
		b := make([]byte, n)
		copy(b, s)
		copy(b[at:], more)
		return b
	}
	bochs := pad("Bochs Virtual HD Image", 512, 32, "Redolog")
	copy(bochs[48:], "Growing")
	for _, c := range []struct {
		front []byte
		name  string
		want  string
	}{
		{pad("QFI\xfb\x00\x00\x00\x03", 512, 511, ""), "", "qcow2"},
		{pad("QFI\xfb\x00\x00\x00\x02", 8, 8, ""), "", "qcow2"},
		{pad("QFI\xfb\x00\x00\x00\x01", 512, 511, ""), "", "qcow"},
		{pad("QFI\xfb\x00\x00\x00\x00", 512, 511, ""), "", "raw"},
		{[]byte("QFI\xfb"), "", "raw"},
		{pad("QED\x00", 512, 511, ""), "", "qed"},
		{pad("vhdxfile", 512, 511, ""), "", "vhdx"},
		{pad("<<< Oracle VM VirtualBox Disk Image >>>", 512, 0x40, "\x7f\x10\xda\xbe"), "", "vdi"},
		{pad("KDMV", 512, 511, ""), "", "vmdk"},
		{pad("COWD", 512, 511, ""), "", "vmdk"},
		{[]byte("# Disk DescriptorFile\nversion=1\nCID=1\n"), "", "vmdk"},
		{[]byte("# Disk DescriptorFile\r\n\r\nversion=3\r\n"), "", "vmdk"},
		{[]byte("# a shell script\necho version=1\n"), "", "raw"},
		{pad("conectix", 512, 511, ""), "", "vpc"},
		{pad("LUKS\xba\xbe\x00\x01", 512, 511, ""), "", "luks"},
		{pad("LUKS\xba\xbe\x00\x02", 512, 511, ""), "", "raw"},
		{pad("WithoutFreeSpace", 512, 16, "\x02\x00\x00\x00"), "", "parallels"},
		{pad("WithouFreSpacExt", 512, 16, "\x02\x00\x00\x00"), "", "parallels"},
		{bochs, "", "bochs"},
		{[]byte("#!/bin/sh\n#V2.0 Format\nmodprobe cloop"), "", "cloop"},
		{make([]byte, 512), "x.dmg", "dmg"},
		{make([]byte, 512), "x.img", "raw"},
		{nil, "", "raw"},
	} {
		if got := Probe(c.front, c.name); got != c.want {
			t.Errorf("%.24q %q: %s, want %s", c.front, c.name, got, c.want)
		}
	}
}

func TestTheGateListsEverythingThatWasWanted(t *testing.T) {
	refs := []Reference{
		{Kind: RefBacking, Name: "base.raw", Resolved: "/d/base.raw", Format: "raw"},
		{Kind: RefDataFile, Name: "/data", Resolved: "/data"},
	}
	err := askGate(t.Context(), DenyReferences, "top.qcow2", refs)
	const want = `top.qcow2: open: the image refers to backing file "base.raw" (/d/base.raw) of format raw and ` +
		`data file "/data", which was not allowed`
	if !errors.Is(err, block.ErrRefused) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := askGate(t.Context(), AllowReferences, "top.qcow2", refs); err != nil {
		t.Error(err)
	}
}
