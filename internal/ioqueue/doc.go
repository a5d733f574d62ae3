// Package ioqueue lets many goroutines share one asynchronous kernel interface, each of them seeing a plain blocking
// call. There is no service thread: of the goroutines that wait, one has the lead and enters the kernel for everybody.
// It submits all that is queued, waits, takes the completions, wakes the goroutines they belong to, and when its own
// request has ended it hands the lead to one that still waits.
//
// A request that is alone does not come here; its caller makes the plain system call.
package ioqueue
