package mem

import (
	"math"
	"sync"
)

// File is contents in memory, sparse, at most math.MaxInt64 bytes long. Drivers are opened on it. All methods are safe
// for any number of goroutines.
type File struct {
	name  string
	id    int    // index among the files of the clock
	clock *Clock // nil: nothing is recorded
	own   sync.RWMutex
	lock  *sync.RWMutex // guards mu: own, or that of the clock, so that events have one order

	mu state
}

// state is what a power cut can leave different.
type state struct {
	tree tree
	size int64
}

// NewFile makes a file of size zero bytes that records nothing.
func NewFile(name string, size int64) *File {
	return newFile(name, state{size: max(size, 0)})
}

func newFile(name string, s state) *File {
	f := &File{name: name, mu: s}
	f.lock = &f.own
	return f
}

// Name is what errors call the file.
func (f *File) Name() string { return f.name }

// Size is the present length in bytes.
func (f *File) Size() int64 {
	f.lock.RLock()
	defer f.lock.RUnlock()
	return f.mu.size
}

// Clone gives an independent file with the same contents, which records nothing. It costs the same for any size.
func (f *File) Clone() *File {
	f.lock.Lock()
	defer f.lock.Unlock()
	return newFile(f.name, f.mu.clone())
}

// Bytes copies the whole contents out. For small files.
func (f *File) Bytes() []byte {
	f.lock.RLock()
	defer f.lock.RUnlock()
	b := make([]byte, f.mu.size)
	f.mu.tree.read(b, 0)
	return b
}

// ReadAt fills p from off; bytes behind the end read as zeros.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	f.lock.RLock()
	f.mu.tree.read(p, uint64(off))
	f.lock.RUnlock()
	return len(p), nil
}

// WriteAt writes p at off and extends the file as needed. On a file of a clock it is an event like a driver's write.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > math.MaxInt64-int64(len(p)) {
		return 0, errNegative
	}
	f.write([][]byte{p}, off, int64(len(p)), math.MaxInt64, false)
	return len(p), nil
}

// Truncate sets the length; growth reads as zeros.
func (f *File) Truncate(size int64) error {
	if size < 0 {
		return errNegative
	}
	f.resize(size)
	return nil
}

func (s *state) clone() state {
	c := *s
	c.tree = s.tree.clone()
	return c
}

func (s *state) write(p []byte, off int64) {
	s.tree.write(p, uint64(off))
	s.reach(off + int64(len(p)))
}

func (s *state) writeShared(p []byte, off int64) {
	s.tree.writeShared(p, uint64(off))
	s.reach(off + int64(len(p)))
}

// reach notes that bytes up to end were written.
func (s *state) reach(end int64) { s.size = max(s.size, end) }

func (s *state) zero(off, end int64) {
	s.tree.zero(uint64(off), uint64(end))
	s.reach(end)
}

func (s *state) punch(off, end int64) { s.tree.zero(uint64(off), uint64(end)) }

func (s *state) resize(size int64) {
	if size < s.size {
		s.tree.zero(uint64(size), 1<<63)
	}
	s.size = size
}

// write stores iov, n bytes in all, at off; bytes at and behind limit are dropped.
func (f *File) write(iov [][]byte, off, n, limit int64, fua bool) {
	if n = min(n, limit-off); n <= 0 {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.clock == nil {
		for _, p := range iov {
			p = p[:min(int64(len(p)), n)]
			f.mu.write(p, off)
			off, n = off+int64(len(p)), n-int64(len(p))
		}
		return
	}
	data := make([]byte, 0, n)
	for _, p := range iov {
		data = append(data, p[:min(int64(len(p)), n-int64(len(data)))]...)
	}
	f.mu.writeShared(data, off)
	f.clock.recordLocked(Event{File: f, Kind: Write, Off: off, Len: n, FUA: fua, data: data})
}

func (f *File) zero(off, n, limit int64, fua bool) {
	if n = min(n, limit-off); n <= 0 {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.mu.zero(off, off+n)
	if f.clock != nil {
		f.clock.recordLocked(Event{File: f, Kind: Zero, Off: off, Len: n, FUA: fua})
	}
}

func (f *File) punch(off, n int64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if n = min(n, f.mu.size-off); n <= 0 {
		return
	}
	f.mu.punch(off, off+n)
	if f.clock != nil {
		f.clock.recordLocked(Event{File: f, Kind: Punch, Off: off, Len: n})
	}
}

func (f *File) resize(size int64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.resizeLocked(size)
}

func (f *File) resizeLocked(size int64) {
	if size == f.mu.size {
		return
	}
	f.mu.resize(size)
	if f.clock != nil {
		f.clock.recordLocked(Event{File: f, Kind: Resize, Len: size})
	}
}

func (f *File) flush() {
	if f.clock == nil {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.clock.recordLocked(Event{File: f, Kind: Flush, durable: f.mu.clone()})
}
