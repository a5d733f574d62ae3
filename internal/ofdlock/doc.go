// Package ofdlock is the locking protocol by which programs that open disk images keep out of each other's way
// (qcow2-format §13.1): open-file-description read locks on single bytes of the image. Byte 100+n held says "I use
// permission n", byte 200+n held says "I do not let others use permission n". Whoever wants in takes its own bytes
// first and then asks whether a write lock on the opposite byte would conflict; if so, somebody is in the way.
//
// Locks belong to the open file description: they vanish when the last descriptor of it is closed, and a second open
// of the same file in the same process is a stranger.
package ofdlock

import (
	"errors"
	"fmt"
	"strings"
)

// Perm is a set of permissions.
type Perm uint8

// The permissions of the protocol, by bit number.
const (
	ConsistentRead Perm = 1 << iota // reads see what a single writer wrote
	Write                           // changes the contents
	WriteUnchanged                  // writes, but only what is there already
	Resize                          // changes the length
	numPerms       = 4

	usedBase     = 100
	unsharedBase = 200
)

// String lists the permissions in words.
func (p Perm) String() string {
	var s []string
	for i, n := range [numPerms]string{"consistent read", "write", "write unchanged", "resize"} {
		if p&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	return strings.Join(s, ", ")
}

// Set is what one opener holds: permissions that it uses, and permissions that it does not share.
type Set struct {
	Used, Unshared Perm
}

// ErrUnsupported says that the file's system (or this platform) has no such locks.
var ErrUnsupported = errors.New("open file description locks are not supported")

// Conflict is the error of an Acquire that found somebody in the way.
type Conflict struct {
	Perm   Perm // the one permission in dispute
	Theirs bool // true: they use it and we would not share it; false: we would use it and they do not share it
	PID    int  // the process that holds the lock, 0 if it cannot be found
	Name   string
}

// Error says which permission is in dispute, and with whom.
func (c *Conflict) Error() string {
	who := "another process"
	if c.PID != 0 {
		who = fmt.Sprintf("process %d", c.PID)
		if c.Name != "" {
			who += " (" + c.Name + ")"
		}
	}
	if c.Theirs {
		return fmt.Sprintf("%s is using it with %q permission", who, c.Perm)
	}
	return fmt.Sprintf("%s does not share %q permission", who, c.Perm)
}
