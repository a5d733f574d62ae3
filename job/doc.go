// Package job holds the long operations over images: convert, compare. Each takes open devices and a context, reports
// progress, and stops soon after the context ends. What to open, how results are printed and which exit code they mean
// is the caller's matter (cli).
//
// All jobs work the same way: a planner walks the extents of what is read, in order, and never reads what is known to
// be zero; it cuts the rest into units of about a MiB; workers take the units and move or compare the data, in any
// order; a sequence puts their ends back into order, for progress and for targets that are to be written in order.
// Memory is the number of workers times a unit.
//
// What may enter: operations over whole devices. What may not: formats, command lines.
package job
