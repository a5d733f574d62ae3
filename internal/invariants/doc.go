// Package invariants switches assertions that are too expensive for every build: "go test -tags invariants" turns them
// on. Guard them with a plain if, so that they vanish otherwise:
//
//	if invariants.Enabled {
//		invariants.Check(a <= b, "a=%d is beyond b=%d", a, b)
//	}
package invariants

import "fmt"

// Check panics with the message if ok is false.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
