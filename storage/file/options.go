package file

import (
	"fmt"
	"strings"

	"byre/internal/ofdlock"
)

// Engine says how requests reach the kernel.
type Engine uint8

const (
	EngineAuto    Engine = iota // the quickest that works for this file
	EngineThreads               // one blocking system call per request
	EngineNative                // Linux AIO; needs direct I/O
	EngineIOUring               // io_uring
)

var engineNames = [...]string{"auto", "threads", "native", "io_uring"}

func (e Engine) String() string { return engineNames[e] }

// ParseEngine finds an engine by the name users know it by.
func ParseEngine(s string) (Engine, error) {
	for i, n := range engineNames {
		if s == n {
			return Engine(i), nil
		}
	}
	return 0, fmt.Errorf("unknown I/O engine %q (one of %s)", s, strings.Join(engineNames[1:], ", "))
}

// CacheMode says what lies between a write and the medium; see the package comment.
type CacheMode uint8

const (
	CacheWriteback CacheMode = iota
	CacheNone
	CacheWritethrough
	CacheDirectsync
	CacheUnsafe
)

var cacheNames = [...]string{"writeback", "none", "writethrough", "directsync", "unsafe"}

func (m CacheMode) String() string { return cacheNames[m] }

// ParseCacheMode finds a cache mode by the name users know it by ("off" is none).
func ParseCacheMode(s string) (CacheMode, error) {
	if s == "off" {
		return CacheNone, nil
	}
	for i, n := range cacheNames {
		if s == n {
			return CacheMode(i), nil
		}
	}
	return 0, fmt.Errorf("unknown cache mode %q (one of %s)", s, strings.Join(cacheNames[:], ", "))
}

// Direct: the page cache is bypassed.
func (m CacheMode) Direct() bool { return m == CacheNone || m == CacheDirectsync }

// Writethrough: every write is durable when it returns.
func (m CacheMode) Writethrough() bool { return m == CacheWritethrough || m == CacheDirectsync }

// NoFlush: flushes do nothing.
func (m CacheMode) NoFlush() bool { return m == CacheUnsafe }

// Below is the mode for the file under a format which itself makes every write durable where m asks for it.
func (m CacheMode) Below() CacheMode {
	switch m {
	case CacheWritethrough:
		return CacheWriteback
	case CacheDirectsync:
		return CacheNone
	}
	return m
}

// Perm is a set of permissions on a file, as the lock protocol knows them.
type Perm = ofdlock.Perm

// Permissions.
const (
	PermConsistentRead = ofdlock.ConsistentRead
	PermWrite          = ofdlock.Write
	PermWriteUnchanged = ofdlock.WriteUnchanged
	PermResize         = ofdlock.Resize
)

// Locks is what an opener uses and what it does not let others use.
type Locks = ofdlock.Set

// Ready-made sets.
var (
	// LocksReadWrite: one writer, no other. For a format opened for writing.
	LocksReadWrite = Locks{Used: PermConsistentRead | PermWrite | PermResize, Unshared: PermWrite | PermResize}
	// LocksReadOnly: readers that nobody may write under. For a format opened read-only.
	LocksReadOnly = Locks{Used: PermConsistentRead, Unshared: PermWrite | PermResize}
	// LocksShared: read, whoever else writes, unless they forbid it. For raw images opened read-only and for
	// force-share.
	LocksShared = Locks{Used: PermConsistentRead}
)

// Options say how to open.
type Options struct {
	ReadOnly bool
	Cache    CacheMode
	Engine   Engine

	// Locks to hold. The zero value means LocksReadWrite, or LocksShared if ReadOnly.
	Locks Locks
	// NoLock takes no locks at all. Without it a file system that has no locks is tolerated, a conflict is not.
	NoLock bool

	// ExtentSizeHint, if > 0, asks the file system to allocate in units of that many bytes (XFS). Ignored where it
	// is not known; only for files without allocated space, so in practice by Create.
	ExtentSizeHint int64
	// GrowStep is the least step of GrowTo in bytes; 0 means 64 MiB.
	GrowStep int64
	// NoGrowAhead makes GrowTo extend the file by what is asked for and no more.
	NoGrowAhead bool
}

func (o *Options) locks() Locks {
	switch {
	case o.Locks != Locks{}:
		return o.Locks
	case o.ReadOnly:
		return LocksShared
	}
	return LocksReadWrite
}
