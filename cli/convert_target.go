package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"byre/block"
	"byre/image"
	"byre/job"
)

// convertTarget is the image that convert writes.
type convertTarget struct {
	v        *conversion
	creation *image.Creation // nil with -n
	path     string          // of the host file; "" if only options can say it
	existed  bool            // there was something at path before
	dataFile string          // an external data file that the creation makes; "" if none or if it was there before
	created  bool            // it has been created
	touched  bool            // writing has begun
	image    *image.Image
}

// prepareTarget checks everything that can be checked before anything is written.
func (v *conversion) prepareTarget() (*convertTarget, error) {
	if err := v.checkBitmaps(); err != nil {
		return nil, err
	}
	t := &convertTarget{v: v, path: hostPath(v.target)}
	if v.o.has("no-create") {
		if v.o.has("target-image-opts") {
			t.path = ""
		}
	} else if err := t.plan(); err != nil {
		return nil, err
	}
	if t.path != "" {
		_, err := os.Lstat(t.path)
		t.existed = err == nil
		for _, im := range v.sources {
			if name, same := job.Reads(im.Device(), t.path); same {
				return nil, fmt.Errorf("the target '%s' is the same file as '%s', which is read", v.target, name)
			}
		}
	}
	return t, nil
}

// checkBitmaps refuses to leave bitmaps behind that are to be copied.
func (v *conversion) checkBitmaps() error {
	if !v.o.has("bitmaps") {
		return nil
	}
	q := v.sources[0].QCOW2()
	if q == nil {
		return fmt.Errorf("--bitmaps: images of format %s hold no bitmaps", v.sources[0].Format())
	}
	info, err := q.Info(v.c.Context)
	if err != nil {
		return err
	}
	if n := len(info.Bitmaps); n > 0 {
		return fmt.Errorf("--bitmaps: the source has %d persistent bitmaps, and this version does not copy them", n)
	}
	return nil
}

// hostPath is the path that a plain name of a file stands for.
func hostPath(name string) string {
	for _, p := range []string{"file:", "host_device:"} {
		name = strings.TrimPrefix(name, p)
	}
	return name
}

// plan prepares the creation of the target.
func (t *convertTarget) plan() (err error) {
	v := t.v
	_, size := v.devices()
	delete(v.create, "size") // the input decides
	t.creation, err = image.NewCreation(v.c.Context, v.target, image.CreateOptions{
		Format: v.outFormat, Size: size, Options: v.create,
		BackingFile: v.o.value("backing", ""), BackingFormat: v.o.value("backing-format", ""),
	}, append(v.o.shared(), image.WithCache(image.CacheUnsafe))...) // what is flushed at the end includes this
	if err != nil {
		return fmt.Errorf("Could not create '%s': %s", v.target, reason(err, v.target))
	}
	if name := v.create["data_file"]; name != "" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(t.path), name)
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			t.dataFile = name
		}
	}
	return nil
}

// cache is how the target is written: as asked for, but flushed at the end instead of with every write.
func (t *convertTarget) cache() image.CacheMode {
	switch m := t.v.o.cacheMode(t.v.o.cache, image.CacheUnsafe); m {
	case image.CacheWritethrough:
		return image.CacheWriteback
	case image.CacheDirectsync:
		return image.CacheNone
	default:
		return m
	}
}

// open makes the target if that is wanted, and opens it.
func (t *convertTarget) open() error {
	v := t.v
	if t.creation != nil {
		if err := t.creation.Run(v.c.Context); err != nil {
			return fmt.Errorf("Could not create '%s': %s", v.target, reason(err, v.target))
		}
		t.created = true
	}
	opts := append(v.o.shared(), image.Writable(), image.WithCache(t.cache()))
	if v.outFormat != "" {
		opts = append(opts, image.WithFormat(v.outFormat))
	}
	if v.o.has("target-image-opts") {
		opts = append(opts, image.WithOptionString())
	}
	im, err := image.Open(v.c.Context, v.target, opts...)
	if err != nil {
		return fmt.Errorf("Could not open '%s': %s", v.target, reason(err, v.target))
	}
	t.image = im
	return nil
}

// abandon makes sure that nobody takes what a failed conversion has left for an image: a target that it made is
// removed, one that was there before is named.
func (t *convertTarget) abandon(err error) error {
	switch {
	case t.created && !t.existed:
		e := os.Remove(t.path)
		if t.dataFile != "" && e == nil {
			e = os.Remove(t.dataFile)
		}
		if e != nil {
			return errors.Join(err, fmt.Errorf("the incomplete target could not be removed: %w", e))
		}
	case t.created || t.touched:
		return fmt.Errorf("%w\n%s: '%s' is incomplete now; what it held before is lost", err, t.v.c.prog, t.v.target)
	}
	return err
}

// parseCreateOptions reads -o arguments. help says that one of them asked for the list.
func parseCreateOptions(given []string) (opts map[string]string, help bool, err error) {
	opts = map[string]string{}
	for _, g := range given {
		if g == "help" || g == "?" || strings.HasPrefix(g, "help,") || strings.HasSuffix(g, ",help") || strings.HasSuffix(g, ",?") {
			return nil, true, nil
		}
		t, err := image.ParseOptionString(g)
		if err != nil {
			return nil, false, fmt.Errorf("-o: %w", err)
		}
		for k, v := range t {
			s, ok := v.(string)
			if !ok {
				return nil, false, fmt.Errorf("-o: option '%s' wants a value", k)
			}
			opts[k] = s
		}
	}
	return opts, false, nil
}

// printCreateOptions lists the creation options of a format.
func (c *call) printCreateOptions(format string) int {
	opts, ok := image.CreateOptionsOf(format)
	if !ok {
		return c.errorf("%v", block.Errorf(block.KindInvalid, "", "", block.NoOffset, "images of format '%s' cannot be created", format))
	}
	fmt.Fprintln(c.Stdout, "Supported options:")
	for _, o := range opts {
		fmt.Fprintf(c.Stdout, "  %-23s- %s\n", o.Name+"="+o.Kind.String(), o.Help)
	}
	return 0
}
