package block_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"byre/block"
	"byre/storage/mem"
)

// spy notes the requests that reach a driver.
type spy struct {
	*mem.Driver
	log []string
}

func (s *spy) WritevAt(ctx context.Context, iov [][]byte, off int64, f block.Flags) error {
	s.log = append(s.log, fmt.Sprintf("write %d fua=%v", off, f&block.FUA != 0))
	return s.Driver.WritevAt(ctx, iov, off, f)
}

func (s *spy) ZeroAt(ctx context.Context, off, n int64, f block.Flags) error {
	s.log = append(s.log, fmt.Sprintf("zero %d+%d fua=%v unmap=%v", off, n, f&block.FUA != 0, f&block.MayUnmap != 0))
	return s.Driver.ZeroAt(ctx, off, n, f)
}

func (s *spy) DiscardAt(ctx context.Context, off, n int64) error {
	s.log = append(s.log, fmt.Sprintf("discard %d+%d", off, n))
	return s.Driver.DiscardAt(ctx, off, n)
}

func TestThePolicyChangesRequestsOnTheirWayDown(t *testing.T) {
	for _, c := range []struct {
		p    block.Policy
		want string
	}{
		{block.Policy{}, "write 0 fua=false; write 8192 fua=false; zero 4096+4096 fua=false unmap=true; discard 0+4096"},
		{block.Policy{WriteThrough: true}, "write 0 fua=true; write 8192 fua=true; zero 4096+4096 fua=true unmap=true; discard 0+4096"},
		{block.Policy{IgnoreDiscard: true}, "write 0 fua=false; write 8192 fua=false; zero 4096+4096 fua=false unmap=false"},
		{block.Policy{DetectZeroes: block.DetectOn}, "write 0 fua=false; zero 8192+8192 fua=false unmap=false; zero 4096+4096 fua=false unmap=true; discard 0+4096"},
		{block.Policy{DetectZeroes: block.DetectUnmap}, "write 0 fua=false; zero 8192+8192 fua=false unmap=true; zero 4096+4096 fua=false unmap=true; discard 0+4096"},
		{block.Policy{DetectZeroes: block.DetectUnmap, IgnoreDiscard: true, WriteThrough: true},
			"write 0 fua=true; zero 8192+8192 fua=true unmap=false; zero 4096+4096 fua=true unmap=false"},
	} {
		s := &spy{Driver: mem.New(1 << 20)}
		d := block.NewDevice(s)
		d.SetPolicy(c.p)
		ctx := t.Context()
		data := bytes.Repeat([]byte{0}, 4096)
		data[4095] = 1
		for _, err := range []error{
			d.Write(ctx, data, 0, 0),
			d.Writev(ctx, [][]byte{make([]byte, 5000), make([]byte, 3192)}, 8192, 0),
			d.Zero(ctx, 4096, 4096, block.MayUnmap),
			d.Discard(ctx, 0, 4096),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if got := strings.Join(s.log, "; "); got != c.want {
			t.Errorf("%+v: %s\nwant %s", c.p, got, c.want)
		}
	}
}
