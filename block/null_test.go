package block

import "context"

// null is a driver that costs nothing.
type null struct{ geo Geometry }

func (n null) Geometry() Geometry                                            { return n.geo }
func (null) Size() int64                                                     { return 1 << 50 }
func (null) ReadvAt(context.Context, [][]byte, int64) error                  { return nil }
func (null) WritevAt(context.Context, [][]byte, int64, Flags) error          { return nil }
func (null) ZeroAt(context.Context, int64, int64, Flags) error               { return nil }
func (null) DiscardAt(context.Context, int64, int64) error                   { return nil }
func (null) Flush(context.Context) error                                     { return nil }
func (null) Extent(context.Context, int64, int64, Query) (e Extent, _ error) { return e, nil }
func (null) Resize(context.Context, int64, ResizeOptions) error              { return nil }
func (null) Close() error                                                    { return nil }
