package image

import (
	"byre/block"
	"byre/storage/file"
)

// CacheMode says how the host's page cache is used and what a completed write promises, with the names that the
// classic tools gave the modes.
type CacheMode = file.CacheMode

// The cache modes.
const (
	CacheWriteback    = file.CacheWriteback    // page cache; writes are durable after a flush
	CacheNone         = file.CacheNone         // no page cache (O_DIRECT); durable after a flush
	CacheWritethrough = file.CacheWritethrough // page cache; every write is durable when it completes
	CacheDirectsync   = file.CacheDirectsync   // no page cache; every write is durable when it completes
	CacheUnsafe       = file.CacheUnsafe       // page cache; flushes do nothing
)

// ParseCacheMode finds a mode by name; "off" is another name of "none".
func ParseCacheMode(s string) (CacheMode, error) { return file.ParseCacheMode(s) }

// Option modifies Open.
type Option func(*config)

// config is what the options say. It goes down to every layer of the stack.
type config struct {
	format       string
	optionString bool
	writable     bool
	cache        CacheMode
	aio          string
	forceShare   bool
	gate         Gate
	noBacking    bool
	noData       bool
	snapshot     string
	hasSnapshot  bool
	overrides    Tree
	warn         func(Warning)
	zeroPolicy   string // of qcow2 layers without the option
	dependency   string
	secrets      func(id string) ([]byte, error)
	cacheBytes   int64
	check        bool // only the file is opened, for OpenForCheck
	noLock       bool
}

func newConfig(opts []Option) *config {
	c := &config{gate: DenyReferences, warn: func(Warning) {}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// WithFormat names the format instead of probing it.
func WithFormat(format string) Option { return func(c *config) { c.format = format } }

// WithOptionString says that the name given to Open is an option string, "driver=…,file.filename=…".
func WithOptionString() Option { return func(c *config) { c.optionString = true } }

// Writable opens for writing too. The default is read-only, which never changes a byte of any file.
func Writable() Option { return func(c *config) { c.writable = true } }

// WithCache chooses the cache mode; the default is CacheWriteback.
func WithCache(m CacheMode) Option { return func(c *config) { c.cache = m } }

// WithAIO chooses the I/O engine of host files: "threads", "native", "io_uring"; "" is the quickest that works.
func WithAIO(engine string) Option { return func(c *config) { c.aio = engine } }

// WithForceShare reads an image that somebody else may be writing: no lock is refused, and what is read may be torn.
// It is for read-only opens.
func WithForceShare() Option { return func(c *config) { c.forceShare = true } }

// WithoutLocks takes and asks for no locks at all (locking=off).
func WithoutLocks() Option { return func(c *config) { c.noLock = true } }

// WithGate chooses who decides about references; the default is [DenyReferences].
func WithGate(g Gate) Option { return func(c *config) { c.gate = g } }

// WithoutBacking opens the top layer alone; what it does not hold reads as zeros.
func WithoutBacking() Option { return func(c *config) { c.noBacking = true } }

// MetadataOnly opens for looking at headers, tables and listings: backing and data files stay closed and no guest data
// can be read.
func MetadataOnly() Option { return func(c *config) { c.noBacking, c.noData = true, true } }

// WithSnapshot shows an internal snapshot, found by id or else by name, read-only and with its own size.
func WithSnapshot(idOrName string) Option {
	return func(c *config) { c.snapshot, c.hasSnapshot = idOrName, true }
}

// WithOption sets an option of the stack as the option tree names it: "l2-cache-size", "file.locking",
// "backing.driver". A nil value is null: WithOption("backing", nil) opens without a backing file.
func WithOption(key string, value any) Option {
	return func(c *config) {
		if c.overrides == nil {
			c.overrides = Tree{}
		}
		c.overrides[key] = value
	}
}

// WithWarnings hears about what is odd but no error.
func WithWarnings(f func(w Warning)) Option { return func(c *config) { c.warn = f } }

// WithZeroPolicy says how qcow2 layers get zeros into new clusters: "auto", "range" or "write".
func WithZeroPolicy(policy string) Option { return func(c *config) { c.zeroPolicy = policy } }

// WithDependency says which writes of qcow2 layers wait for each other: "strict", "relaxed" or "joined".
func WithDependency(rule string) Option { return func(c *config) { c.dependency = rule } }

// WithSecrets finds passphrases by the id that options name them by.
func WithSecrets(f func(id string) ([]byte, error)) Option { return func(c *config) { c.secrets = f } }

// WithMetadataBudget bounds the memory that the metadata caches of all layers of the stack share, in bytes.
func WithMetadataBudget(bytes int64) Option { return func(c *config) { c.cacheBytes = bytes } }

// errOpen makes the error of an open.
func errOpen(k block.Kind, path, format string, args ...any) error {
	return block.Errorf(k, "open", path, block.NoOffset, format, args...)
}
