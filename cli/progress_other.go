//go:build !unix

package cli

// onUserSignal: there is no such signal here.
func onUserSignal(f func()) (stop func()) { return func() {} }
