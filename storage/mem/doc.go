// Package mem is storage in memory, made for tests: sparse, cheap to clone, and *crashable*.
//
// A [File] holds contents and outlives the drivers that are opened on it ([File.Open]); [New] gives a driver on a fresh
// file in one call. A file is a persistent tree of 4 KiB pages: [File.Clone] costs a few nanoseconds whatever the size,
// pages are copied when one of the clones writes.
//
// # Power cuts
//
// Files made by [Clock.NewFile] record every write, zero, punch, size change and flush as an [Event] on the clock, which
// any number of files share. A cut at k means that the power fails after the first k events: [Clock.CrashAt] gives the
// files as a later boot would find them. Of an event it is certain that it survives if it carries FUA, or if a flush of
// the same file follows it before the cut; for every other event a [Chooser] decides its [Fate]: kept, dropped, torn at
// 512-byte sectors, or (where it extends the file) only the new size. Kept events apply in their order.
//
//	clk := mem.NewClock()
//	img := clk.NewFile("image", 0)
//	dev := block.NewDevice(img.Open(mem.Options{}))
//	… create the image, then clk.Reset(): what is there now is durable, history starts here
//	… run the history; note clk.Now() when a guest flush returns
//	for k := 0; k <= clk.Now(); k++ {
//		clk.Each(k, mem.Enumeration{Subsets: 64, Torn: 2}, func(c *mem.Crash) bool {
//			after := c.File(img)         // a *File of its own: open it, check it, write to it
//			if bad { t.Errorf("%v", c) } // prints cut and fates; c.Replay() gives the Go expression
//			return true
//		})
//	}
//
// A cut costs the volatile events that are kept plus a few hundred nanoseconds: flushes are checkpoints, nothing is
// replayed from the start. Crash states that Each visits at different cuts of one clock differ in the newest event
// unless that is a flush, so no state is visited twice. A crash is independent of its clock and of other crashes; several
// may be examined at once.
package mem
