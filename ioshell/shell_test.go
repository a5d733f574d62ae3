package ioshell

import (
	"testing"
	"time"
)

func TestSizesPrintAsTheClassicToolPrintsThem(t *testing.T) {
	for v, want := range map[float64]string{0: "0 bytes", 32: "32 bytes", 176.689621: "176.689621 bytes", 4096: "4 KiB",
		1.0625 * (1 << 20): "1.062 MiB", 2.25 * (1 << 20): "2.250 MiB", 1 << 60: "1 EiB", 896 << 10: "896 KiB"} {
		if got := sizeString(v); got != want {
			t.Errorf("sizeString(%v) = %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "00.00 sec", 1510 * time.Millisecond: "01.51 sec", 83 * time.Second: "0:01:23.00"} {
		if got := timeString(d, false); got != want {
			t.Errorf("timeString(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestSizesParseAsTheClassicToolParsesThem(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4k": 4096, "1.5K": 1536, "0x10": 16, "3M": 3 << 20, "7b": 7, "1e": 1 << 60} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "1k5", "-1", "1.5.5k", "0xg", ".5k", "k"} {
		if got, err := parseSize(in); err != errNumber {
			t.Errorf("parseSize(%q) = %d, %v; want a number error", in, got, err)
		}
	}
	for _, in := range []string{"8E", "0xffffffffffffffff"} {
		if _, err := parseSize(in); err != errTooLarge {
			t.Errorf("parseSize(%q): %v, want too large", in, err)
		}
	}
}
