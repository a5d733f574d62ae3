//go:build !linux

package cli

import (
	"fmt"
	"os"
	"testing"
)

func fileState(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x %v", b, st.ModTime())
}
