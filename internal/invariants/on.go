//go:build invariants

package invariants

// Enabled tells whether expensive checks run.
const Enabled = true
