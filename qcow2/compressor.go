package qcow2

import (
	"fmt"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"byre/block"
	"byre/qcow2/layout"
)

// deflateWindow is the history that every reader of deflate clusters has (qcow2-format §7.1).
const deflateWindow = 4 << 10

// CompressOptions choose how clusters are compressed. The zero value suits every reader and costs little time.
type CompressOptions struct {
	// Level: deflate 1…9, only together with WideWindow; zstd 1…22, mapped to what the encoder has. 0 = default.
	Level int
	// WideWindow lets deflate look back 32 KiB instead of 4 KiB. Smaller streams, which not every reader was made for.
	WideWindow bool
}

// Compressor turns clusters into streams for one image. It is not safe for concurrent use: take one per goroutine.
type Compressor struct {
	deflate *flate.Writer
	zstd    *zstd.Encoder
	out     sliceWriter
}

// NewCompressor makes a compressor for streams of a compression type (layout.CompressionDeflate or -Zstd).
func NewCompressor(compression uint8, o CompressOptions) (*Compressor, error) {
	c := new(Compressor)
	var err error
	switch {
	case compression == layout.CompressionZstd:
		opts := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true)}
		if o.Level != 0 {
			opts = append(opts, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(o.Level)))
		}
		c.zstd, err = zstd.NewWriter(nil, opts...)
	case o.WideWindow:
		level := o.Level
		if level == 0 {
			level = flate.DefaultCompression
		}
		c.deflate, err = flate.NewWriter(&c.out, level)
	case o.Level != 0:
		err = fmt.Errorf("levels of deflate need the wide window")
	default:
		c.deflate, err = flate.NewWriterWindow(&c.out, deflateWindow)
	}
	if err != nil {
		return nil, &block.Error{Kind: block.KindInvalid, Op: "compress", Offset: block.NoOffset, Err: err}
	}
	return c, nil
}

// sliceWriter appends what is written to a slice.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// Compress appends the stream of one whole cluster to dst and returns it. ok is false, and dst unchanged, if the stream
// would not be shorter than the cluster: then the cluster is to be stored as it is.
func (c *Compressor) Compress(dst, cluster []byte) (stream []byte, ok bool) {
	if c.zstd != nil {
		stream = c.zstd.EncodeAll(cluster, dst)
	} else {
		c.out.b = dst
		c.deflate.Reset(&c.out)
		// Writing to memory cannot fail.
		_, _ = c.deflate.Write(cluster)
		_ = c.deflate.Close()
		stream, c.out.b = c.out.b, nil
	}
	if len(stream)-len(dst) >= len(cluster) {
		return dst, false
	}
	return stream, true
}
