package image

import (
	"context"
	"strconv"

	"byre/block"
	"byre/qcow2/layout"
)

// MeasureOptions describe a new image whose file size is wanted.
type MeasureOptions struct {
	Format  string            // "qcow2" or "raw"
	Size    int64             // virtual size in bytes; of no meaning with a source
	Options map[string]string // as for Create
	// Source, if not nil, is what will be copied into the new image.
	Source *Image
}

// Measurement is how long the file of a new image becomes, in bytes.
type Measurement struct {
	Required       int64 // with the contents of the source
	FullyAllocated int64 // when every cluster has data
	// Bitmaps is what copies of the source's persistent bitmaps take; of meaning with HasBitmaps, when source and target can have
	// bitmaps.
	Bitmaps    int64
	HasBitmaps bool
}

// Measure tells how large the file of a new image will be (qcow2-format §14.1). Nothing is read but the extents of the source.
func Measure(ctx context.Context, o MeasureOptions) (m Measurement, err error) {
	if _, ok := createFormats[o.Format]; !ok {
		if _, known := drivers[o.Format]; known {
			return m, unsupportedCreate(o.Format)
		}
		return m, unknownDriver(o.Format, "")
	}
	values, err := checkOptions(o.Format, o.Options)
	if err != nil {
		return m, err
	}
	if o.Source != nil {
		o.Size = o.Source.Size()
	}
	if o.Size < 0 {
		return m, invalidf("a new image needs a size")
	}
	if o.Format == "raw" {
		size := (o.Size + layout.SectorSize - 1) &^ (layout.SectorSize - 1)
		return Measurement{Required: size, FullyAllocated: size}, nil
	}
	return measureQCOW2(ctx, o, values)
}

func measureQCOW2(ctx context.Context, o MeasureOptions, values map[string]string) (m Measurement, err error) {
	in := layout.MeasureInput{VirtualSize: o.Size}
	if in.LUKS, err = measureLUKS(values); err != nil {
		return m, err
	}
	hasBacking := values["backing_file"] != ""
	c := &Creation{size: o.Size, values: map[string]string{}}
	for k, v := range values {
		switch k {
		case "encryption", "encrypt.format", "backing_file", "backing_fmt", "data_file", "data_file_raw":
			// of no influence on the geometry
		default:
			c.values[k] = v
		}
	}
	q, err := c.qcow2Options()
	if err != nil {
		return m, err
	}
	g, err := q.LayoutGeometry()
	if err != nil {
		return m, err
	}
	in.FullData = q.Prealloc == block.PreallocFalloc || q.Prealloc == block.PreallocFull || hasBacking && o.Source != nil
	if o.Source != nil && !in.FullData {
		if in.Data, err = measureData(ctx, o.Source, g.ClusterSize()); err != nil {
			return m, err
		}
	}
	if m.Required, m.FullyAllocated, err = g.Measure(in); err != nil {
		return m, invalidf("%w", err)
	}
	return m, m.bitmaps(ctx, o.Source, g)
}

// measureData sums the clusters that the data of an image touches.
func measureData(ctx context.Context, im *Image, cluster int64) (sum int64, err error) {
	end := int64(0) // of the last cluster that counts
	for e, err := range im.Extents(ctx, 0, im.Size(), block.WantZero) {
		if err != nil {
			return 0, err
		}
		if e.IsZero() || e.Flags&block.Data == 0 {
			continue
		}
		from, to := max(end, e.Start/cluster*cluster), (e.End()+cluster-1)/cluster*cluster
		if to > from {
			sum, end = sum+to-from, to
		}
	}
	return sum, nil
}

// measureLUKS is the length of the encryption header that options ask for.
func measureLUKS(values map[string]string) (int64, error) {
	switch f := values["encrypt.format"]; f {
	case "", "aes":
		return 0, nil
	case "luks":
		if values["encrypt.key-secret"] == "" {
			return 0, invalidf("encrypt.key-secret is missing")
		}
	default:
		return 0, invalidf("unknown encryption format %q", f)
	}
	bits := 256
	if alg := values["encrypt.cipher-alg"]; alg != "" {
		i := len(alg) - 3
		n, err := strconv.Atoi(alg[max(i, 0):])
		if err != nil || i < 0 {
			return 0, invalidf("unknown cipher %q", alg)
		}
		bits = n
	}
	key := int64(bits / 8)
	if mode := values["encrypt.cipher-mode"]; mode == "" || mode == "xts" {
		key *= 2
	}
	// Eight key slots, each of whole blocks of eight sectors, behind a header of as many (qcow2-format §6.3).
	region := (key*4000 + layout.SectorSize - 1) / layout.SectorSize
	region = (region + 7) &^ 7
	return (8 + 8*region) * layout.SectorSize, nil
}

// bitmaps fills in what bitmaps take, if both images can have some.
func (m *Measurement) bitmaps(ctx context.Context, src *Image, g layout.Geometry) error {
	if src == nil || src.QCOW2() == nil || g.Version < 3 || src.QCOW2().LayoutGeometry().Version < 3 {
		return nil
	}
	info, err := src.QCOW2().Info(ctx)
	if err != nil {
		return err
	}
	m.HasBitmaps = true
	var list []layout.MeasureBitmap
	for _, b := range info.Bitmaps {
		list = append(list, layout.MeasureBitmap{NameLen: len(b.Name), GranularityBits: b.GranularityBits})
	}
	m.Bitmaps = g.MeasureBitmaps(src.Size(), list)
	return nil
}
