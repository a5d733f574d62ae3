package job

import (
	"context"
	"math"
	"sort"

	"byre/block"
)

// concat is several devices one behind the other.
type concat struct {
	devs   []*block.Device
	starts []int64 // where each begins
	size   int64
}

func newConcat(devs []*block.Device) (*concat, error) {
	c := &concat{devs: devs}
	for _, d := range devs {
		n := d.Size()
		if n > math.MaxInt64-c.size {
			return nil, block.Errorf(block.KindOutOfBounds, "concatenate", d.Path(), block.NoOffset, "the images together are too large")
		}
		c.starts = append(c.starts, c.size)
		c.size += n
	}
	return c, nil
}

// at finds the device of off, which must lie below size, and off in it.
func (c *concat) at(off int64) (*block.Device, int64) {
	i := sort.Search(len(c.starts), func(i int) bool { return c.starts[i] > off }) - 1
	return c.devs[i], off - c.starts[i]
}

// read fills p from off.
func (c *concat) read(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		dev, in := c.at(off)
		n := min(int64(len(p)), dev.Size()-in)
		if err := dev.Read(ctx, p[:n], in); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// extent asks the device at off. The answer's Start is off; dev is who gave it.
func (c *concat) extent(ctx context.Context, off, n int64, q block.Query) (e block.Extent, dev *block.Device, err error) {
	dev, in := c.at(off)
	e, err = dev.Extent(ctx, in, min(n, dev.Size()-in), q)
	e.Start = off
	return e, dev, err
}
