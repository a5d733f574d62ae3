package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"

	"byre/image"
)

// writeJSON prints a value in the layout of the real tools: four spaces a level, every element on a line of its own,
// keys in the order given, no line end behind it.
func writeJSON(w *bufio.Writer, v any, level int) {
	inner := strings.Repeat("    ", level+1)
	outer := inner[4:]
	switch v := v.(type) {
	case image.Fields:
		w.WriteString("{\n")
		for k, f := range v {
			w.WriteString(inner)
			w.Write(scalar(f.Name))
			w.WriteString(": ")
			writeJSON(w, f.Value, level+1)
			w.WriteString(comma(k, len(v)))
		}
		w.WriteString(outer + "}")
	case []any:
		w.WriteString("[\n")
		for k, e := range v {
			w.WriteString(inner)
			writeJSON(w, e, level+1)
			w.WriteString(comma(k, len(v)))
		}
		w.WriteString(outer + "]")
	default:
		w.Write(scalar(v))
	}
}

func comma(i, n int) string {
	if i < n-1 {
		return ",\n"
	}
	return "\n"
}

// scalar is a string, number or truth in JSON.
func scalar(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
