package image

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// ProbeSize is how many bytes of the front of a file decide its format: one sector, which is also what the guard of
// images that were probed as raw watches. Bytes behind it must not matter.
const ProbeSize = 512

// Probe names the format of an image by its first bytes (up to [ProbeSize]; fewer at the end of a short file) and, for
// the one format without a signature in front, by its name. Whatever no signature claims is "raw". The answer may be a
// format that this package cannot open.
func Probe(front []byte, name string) string {
	front = front[:min(len(front), ProbeSize)]
	for _, p := range probes {
		if p.match(front) {
			return p.format
		}
	}
	if strings.HasSuffix(name, ".dmg") {
		return "dmg"
	}
	return "raw"
}

var probes = []struct {
	format string
	match  func(b []byte) bool
}{
	{"qcow2", func(b []byte) bool { return prefix(b, "QFI\xfb") && len(b) >= 8 && be32(b, 4) >= 2 }},
	{"qcow", func(b []byte) bool { return prefix(b, "QFI\xfb") && len(b) >= 8 && be32(b, 4) == 1 }},
	{"qed", func(b []byte) bool { return prefix(b, "QED\x00") }},
	{"vhdx", func(b []byte) bool { return prefix(b, "vhdxfile") }},
	{"vdi", func(b []byte) bool { return len(b) >= 0x44 && binary.LittleEndian.Uint32(b[0x40:]) == 0xbeda107f }},
	{"vmdk", isVMDK},
	{"vpc", func(b []byte) bool { return prefix(b, "conectix") }},
	{"luks", func(b []byte) bool {
		return prefix(b, "LUKS\xba\xbe") && len(b) >= 8 && binary.BigEndian.Uint16(b[6:]) == 1
	}},
	{"parallels", func(b []byte) bool {
		return (prefix(b, "WithoutFreeSpace") || prefix(b, "WithouFreSpacExt")) && len(b) >= 20 &&
			binary.LittleEndian.Uint32(b[16:]) == 2
	}},
	{"bochs", func(b []byte) bool {
		return prefix(b, "Bochs Virtual HD Image\x00") && len(b) >= 68 && prefix(b[32:], "Redolog\x00") &&
			prefix(b[48:], "Growing\x00")
	}},
	{"cloop", func(b []byte) bool { return prefix(b, "#!/bin/sh\n#V2.0 Format\n") }},
}

func prefix(b []byte, s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }

func be32(b []byte, off int) uint32 { return binary.BigEndian.Uint32(b[off:]) }

// isVMDK: a sparse extent has a signature; a descriptor is a text file that names its version after comments.
func isVMDK(b []byte) bool {
	if prefix(b, "KDMV") || prefix(b, "COWD") {
		return true
	}
	for line := range bytes.Lines(b) {
		text := strings.TrimRight(string(line), " \r\n")
		switch {
		case text == "" || text[0] == '#' || text[0] == ' ':
			continue
		case text == "version=1" || text == "version=2" || text == "version=3":
			return true
		}
		return false
	}
	return false
}
