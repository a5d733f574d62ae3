package ioshell

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"byre/block"
)

// request is one I/O of the language, parsed.
type request struct {
	op     string // what errors call it: "read", "aio_write"…
	off    int64
	lens   []int64
	total  int64
	flags  block.Flags
	zero   bool
	vm     bool // machine state
	check  bool // compare what was read with fill
	fill   byte
	from   int64 // compare from here…
	length int64 // …for so many bytes; -1 = to the end
	dump   bool
	quiet  bool
	csv    bool
	buf    []byte
	start  time.Time
}

// buffers cuts buf into one piece for each length.
func (r *request) buffers() [][]byte {
	iov, rest := make([][]byte, 0, len(r.lens)), r.buf
	for _, n := range r.lens {
		iov = append(iov, rest[:n:n])
		rest = rest[n:]
	}
	return iov
}

// span parses "off len".
func (s *Shell) span(r *request, args []string) (err error) {
	if r.off, err = s.number(args[0]); err != nil {
		return err
	}
	r.total, err = s.length(args[1])
	r.lens = []int64{r.total}
	return err
}

// spans parses "off len [len…]".
func (s *Shell) spans(r *request, args []string) (err error) {
	if r.off, err = s.number(args[0]); err != nil {
		return err
	}
	for _, a := range args[1:] {
		n, err := s.number(a)
		if err != nil {
			return err
		}
		if r.total += n; n > maxLength || r.total > maxLength {
			s.printf("Argument '%s' exceeds maximum size %d\n", a, int64(maxLength))
			return errFailed
		}
		r.lens = append(r.lens, n)
	}
	return nil
}

// fillBuffer makes the buffer of a write: the pattern, or a file's contents over and over.
func (s *Shell) fillBuffer(r *request, source string, useSource bool) error {
	r.buf = s.cfg.Alloc(int(r.total))
	if useSource {
		data, err := os.ReadFile(source)
		if err != nil {
			fmt.Fprintf(s.cfg.Err, "%s: %s\n", source, errorString(err))
			return errFailed
		}
		if len(data) == 0 {
			fmt.Fprintf(s.cfg.Err, "%s: file is empty\n", source)
			return errFailed
		}
		for n := 0; n < len(r.buf); {
			n += copy(r.buf[n:], data)
		}
		return nil
	}
	for i := range r.buf {
		r.buf[i] = r.fill
	}
	return nil
}

// issue sends the request and waits for it.
func (s *Shell) issue(ctx context.Context, img *Image, r *request, write bool) error {
	dev := img.Dev
	switch {
	case r.vm:
		return vmState(ctx, dev, r, write)
	case r.total == 0:
		return nil
	case r.zero:
		return s.through(ctx, img, dev.Zero(ctx, r.off, r.total, r.flags))
	case write:
		return s.through(ctx, img, dev.Writev(ctx, r.buffers(), r.off, r.flags))
	}
	return dev.Readv(ctx, r.buffers(), r.off)
}

// through flushes after a successful write of an image that is open write-through.
func (s *Shell) through(ctx context.Context, img *Image, err error) error {
	if err == nil && img.Writethrough {
		err = img.Dev.Flush(ctx)
	}
	return err
}

func vmState(ctx context.Context, dev *block.Device, r *request, write bool) error {
	vm, ok := dev.Driver().(VMState)
	switch {
	case !ok:
		return block.Errorf(block.KindUnsupported, "access VM state", dev.Path(), block.NoOffset, "no VM state in this format")
	case write:
		return vm.WriteVMState(ctx, r.buf, r.off)
	}
	return vm.ReadVMState(ctx, r.buf, r.off)
}

// verify compares what was read with the pattern and says where it differs.
func (s *Shell) verify(r *request) error {
	part := r.buf[r.from:]
	if r.length >= 0 {
		part = part[:r.length]
	}
	if len(part) == bytes.Count(part, []byte{r.fill}) {
		return nil
	}
	s.printf("Pattern verification failed at offset %d, %d bytes\n", r.off+r.from, len(part))
	return errFailed
}

// report prints the result lines of a request that succeeded.
func (s *Shell) report(r *request, what string) {
	d := time.Since(r.start)
	if r.quiet {
		return
	}
	if r.dump {
		s.printf("%s", dump(r.buf, r.off))
	}
	seconds := max(d.Seconds(), 1e-9)
	rate, ops := float64(r.total)/seconds, 1/seconds
	if r.csv {
		s.printf("%d,%d,%s,%.3f,%.3f\n", r.total, 1, timeString(d, true), rate, ops)
		return
	}
	s.printf("%s %d/%d bytes at offset %d\n%s, %d ops; %s (%s/sec and %.4f ops/sec)\n", what, r.total, r.total, r.off,
		sizeString(float64(r.total)), 1, timeString(d, false), sizeString(rate), ops)
}

// dump shows bytes in lines of 16, in hexadecimal and as text.
func dump(p []byte, off int64) string {
	var b strings.Builder
	for i := 0; i < len(p); i += 16 {
		line := p[i:min(i+16, len(p))]
		fmt.Fprintf(&b, "%08x:  ", off+int64(i))
		for _, c := range line {
			fmt.Fprintf(&b, "%02x ", c)
		}
		b.WriteByte(' ')
		for _, c := range line {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
				b.WriteByte(c)
			} else {
				b.WriteByte('.')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
