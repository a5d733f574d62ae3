//go:build !unix

package bench

// usageNow cannot tell on this system.
func usageNow() Usage { return Usage{} }
