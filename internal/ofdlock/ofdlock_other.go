//go:build !linux

package ofdlock

// Acquire reports ErrUnsupported: only Linux has locks that follow the protocol.
func Acquire(fd int, old, want Set) error { return ErrUnsupported }

// Test reports ErrUnsupported.
func Test(fd int, want Set) error { return ErrUnsupported }

// Take reports ErrUnsupported.
func Take(fd int, s Set) error { return ErrUnsupported }

// Release reports ErrUnsupported.
func Release(fd int, s Set) error { return ErrUnsupported }
