package block

import "context"

// CopyRange has the storage below take [off, off+n) from storage src by itself; see RangeCopier. KindUnsupported if it
// cannot.
func (d *Device) CopyRange(ctx context.Context, off int64, src Driver, srcOff, n int64, share bool) error {
	c, ok := d.drv.(RangeCopier)
	if !ok {
		return d.err(KindUnsupported, "copy", off, "the storage cannot copy by itself")
	}
	return d.special(ctx, "copy", off, n, func() error { return c.CopyRange(ctx, off, src, srcOff, n, share) })
}

// NewCompressor makes a compressor for WriteStreams; KindUnsupported if the format stores nothing compressed.
func (d *Device) NewCompressor() (Compressor, error) {
	s, ok := d.drv.(StreamWriter)
	if !ok {
		return nil, d.err(KindUnsupported, "compress", NoOffset, "the format stores nothing compressed")
	}
	return s.NewCompressor()
}

// WriteStreams stores consecutive clusters from off on as they were compressed; see StreamWriter.
func (d *Device) WriteStreams(ctx context.Context, off int64, streams [][]byte) error {
	s, ok := d.drv.(StreamWriter)
	if !ok {
		return d.err(KindUnsupported, "write", off, "the format stores nothing compressed")
	}
	n := min(int64(len(streams))*d.geo.Load().ClusterSize, max(d.Size()-off, 0))
	return d.special(ctx, "write", off, n, func() error { return s.WriteStreams(ctx, off, streams) })
}

// special is a write that only some drivers have, under the rules for all writes.
func (d *Device) special(ctx context.Context, name string, off, n int64, do func() error) error {
	if err := d.check(name, off, n, true); err != nil || n == 0 {
		return err
	}
	r := d.request()
	defer r.release()
	if err := r.enter(ctx, off, off+n); err != nil {
		return err
	}
	err := d.check(name, off, n, true) // it may have waited
	if err == nil {
		err = do()
		d.flush.note()
	}
	r.leave()
	if p := d.policy.Load(); err == nil && p != nil && p.flags(0)&FUA != 0 {
		err = d.Flush(ctx)
	}
	return err
}
