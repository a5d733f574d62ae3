package image

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// jsonName makes the "json:" name that opens a layer, in the spelling of the real tools: `json:{"driver": "raw", …}`.
func jsonName(n *node) string {
	var b strings.Builder
	b.WriteString("json:")
	writeNode(&b, n)
	return b.String()
}

// keyOrder is the order in which the real tools list keys, in names and in listings. It follows from no rule that a
// reader could see, so it is a table.
var keyOrder = []string{"ivgen-alg", "compat", "icount", "flags", "vm-clock-nsec", "detached-header", "name",
	"opt-write-zero", "set-state", "active", "locking", "hash-alg", "iters", "read-zeroes", "compression-type",
	"inject-error", "lazy-refcounts", "date-sec", "bitmaps", "cipher-alg", "refcount-bits", "uuid", "max-write-zero",
	"offset", "extent-size-hint", "image", "data-file", "ivgen-hash-alg", "backing", "max-transfer", "children",
	"backing-filename-format", "date-nsec", "driver", "granularity", "snapshots", "key-offset", "config",
	"virtual-size", "filename", "cluster-size", "size", "format", "encrypt", "actual-size", "data-file-raw",
	"format-specific", "full-backing-filename", "opt-discard", "cipher-mode", "stripes", "slots", "payload-offset",
	"vm-clock-sec", "aio", "encrypted", "type", "latency-ns", "master-key-iters", "file", "backing-filename",
	"corrupt", "id", "vm-state-size", "info", "max-discard", "dirty-flag", "extended-l2", "data", "align"}

var keyRank = func() map[string]int {
	m := make(map[string]int, len(keyOrder))
	for i, k := range keyOrder {
		m[k] = i
	}
	return m
}()

// CompareKeys orders the keys of listings as the real tools do; keys that they do not have come last, by name.
func CompareKeys(a, b string) int {
	ia, oka := keyRank[a]
	ib, okb := keyRank[b]
	switch {
	case oka && okb:
		return ia - ib
	case oka:
		return -1
	case okb:
		return 1
	}
	return strings.Compare(a, b)
}

func writeNode(b *strings.Builder, n *node) {
	fields := map[string]func(){}
	for k, v := range n.opts {
		fields[k] = func() { writeValue(b, v) }
	}
	fields["driver"] = func() { writeValue(b, n.driver) }
	for _, c := range n.children {
		if c.name != "data-file" {
			fields[c.name] = func() { writeNode(b, c.node) }
		}
	}
	if n.backingOverridden {
		fields["backing"] = func() {
			if n.backing == nil {
				b.WriteString("null")
				return
			}
			writeNode(b, n.backing)
		}
	}
	b.WriteByte('{')
	for i, k := range slices.SortedFunc(maps.Keys(fields), CompareKeys) {
		if i > 0 {
			b.WriteString(", ")
		}
		writeValue(b, k)
		b.WriteString(": ")
		fields[k]()
	}
	b.WriteByte('}')
}

func writeValue(b *strings.Builder, v any) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		b.WriteString("null")
		return
	}
	b.Write(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}
