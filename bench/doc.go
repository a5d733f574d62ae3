// Package bench runs one workload on one device and measures it: the classic `bench` of the image tools, and more.
//
// A workload is a numbered sequence of requests; the place of each follows from its number alone, so runs are
// repeatable, any worker may issue any request, and what was written can be verified afterwards. Depth workers each
// have one blocking request in flight; batching is the business of the storage engine below. The loop of a worker
// allocates nothing.
//
// What may enter: workloads, their measurement. What may not: opening images, command lines, comparisons of several
// runs (bench/compare).
package bench
