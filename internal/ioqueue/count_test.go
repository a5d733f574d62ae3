//go:build linux

package ioqueue

import "sync/atomic"

// counting counts what a queue asks of its kernel.
type counting struct {
	Kernel
	submits, enters, waits, reaps, reaped atomic.Int64
}

func (c *counting) Submit() error { c.submits.Add(1); return c.Kernel.Submit() }
func (c *counting) Enter() error  { c.enters.Add(1); return c.Kernel.Enter() }
func (c *counting) Wait() error   { c.waits.Add(1); return c.Kernel.Wait() }
func (c *counting) Reap(out []Completion) int {
	n := c.Kernel.Reap(out)
	c.reaps.Add(1)
	c.reaped.Add(int64(n))
	return n
}
