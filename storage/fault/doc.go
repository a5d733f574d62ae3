// Package fault is a driver for tests that stands between a format and its storage. It hears the named steps of the
// format ([block.Event]) and fails or holds requests as told:
//
//   - a [Rule] arms an error at an event (or from the start: block.EventNone): requests of the chosen I/O types, at the
//     chosen place, fail with an errno, once or for good;
//   - a [Transition] moves the driver from state to state at an event, so that rules can depend on what happened before;
//   - [Driver.Break] suspends the next request that reaches an event until [Driver.Resume] names its tag;
//   - [Limits] replaces alignments and maximal lengths, to see how the layers above cope;
//   - [Config.Hook] sees every request and may fail it, for tests that count.
//
// Rules come from code, from options such as inject-error.0.event=l2_load ([ParseOptions]) or from a configuration file
// ([ParseFile]); users know the driver as blkdebug.
package fault
