package image

import (
	"maps"
	"slices"
	"strings"

	"byre/qcow2"
)

// qcow2Options takes the run-time options of the format.
func (o *opener) qcow2Options(t Tree, r role) (opt qcow2.Options, err error) {
	opt = qcow2.Options{ReadOnly: !r.writable, CheckMode: o.cfg.check}
	if err := cacheOptions(t, &opt); err != nil {
		return opt, err
	}
	return opt, o.writeOptions(t, &opt.Write, r)
}

// cacheOptions: the caches of L2 tables and refcount blocks share one budget here, so their sizes add up.
func cacheOptions(t Tree, opt *qcow2.Options) error {
	var l2, refcount int64
	for _, s := range []struct {
		key string
		dst *int64
	}{{"cache-size", &opt.CacheSize}, {"l2-cache-size", &l2}, {"refcount-cache-size", &refcount}, {"l2-cache-entry-size", &opt.L2SliceSize}} {
		n, err := t.takeSize(s.key, 0)
		if err != nil {
			return err
		}
		*s.dst = n
	}
	parts := l2 + refcount
	switch {
	case parts < 0:
		return invalidf("the cache sizes are too large")
	case opt.CacheSize > 0 && parts > opt.CacheSize:
		return invalidf("l2-cache-size and refcount-cache-size are more than cache-size")
	case opt.CacheSize == 0:
		opt.CacheSize = parts
	}
	if s := opt.L2SliceSize; s != 0 && (s < 512 || s > 2<<20 || s&(s-1) != 0) {
		return invalidf("l2-cache-entry-size must be a power of two from 512 to the cluster size")
	}
	// The budget gives memory back under pressure by itself; the interval is taken and checked.
	_, err := t.takeSize("cache-clean-interval", 0)
	return err
}

// writeOptions are the choices of an image that is written.
func (o *opener) writeOptions(t Tree, w *qcow2.WriteOptions, r role) error {
	if _, given := t["lazy-refcounts"]; given {
		lazy, err := t.takeBool("lazy-refcounts", false)
		if err != nil {
			return err
		}
		w.LazyRefcounts = &lazy
	}
	var keep, other bool
	for _, b := range []struct {
		key string
		dst *bool
		def bool
	}{{"pass-discard-request", &w.Discard, !r.noDiscard}, {"pass-discard-snapshot", &keep, true}, {"pass-discard-other", &other, false},
		{"discard-no-unref", &w.DiscardNoUnref, false}} {
		v, err := t.takeBool(b.key, b.def)
		if err != nil {
			return err
		}
		*b.dst = v
	}
	w.KeepSnapshotSpace, w.PunchOther = !keep, other
	if err := o.policies(t, w); err != nil {
		return err
	}
	return overlapOptions(t, w)
}

// policies takes the rules that have names; the options of Open stand in where the layer has none.
func (o *opener) policies(t Tree, w *qcow2.WriteOptions) error {
	for _, p := range []struct {
		key, def, names string
		set             func(s string) bool
	}{
		{"dependency", o.cfg.dependency, "strict, relaxed, joined", func(s string) (ok bool) {
			w.Dependency, ok = qcow2.ParseDependency(s)
			return ok
		}},
		{"zero-policy", o.cfg.zeroPolicy, "auto, range, write", func(s string) (ok bool) {
			w.ZeroPolicy, ok = qcow2.ParseZeroPolicy(s)
			return ok
		}},
	} {
		s, err := t.takeString(p.key)
		if err != nil {
			return err
		}
		if s == "" {
			s = p.def
		}
		if s != "" && !p.set(s) {
			return invalidf("%s %q is not one of %s", p.key, s, p.names)
		}
	}
	return nil
}

// overlapParts are the structures that overlap checks know, from the cheapest to check on.
var overlapParts = []struct {
	key   string
	level qcow2.OverlapCheck // the lowest that has it
}{
	{"main-header", qcow2.OverlapConstant}, {"active-l1", qcow2.OverlapConstant}, {"refcount-table", qcow2.OverlapConstant},
	{"snapshot-table", qcow2.OverlapConstant}, {"bitmap-directory", qcow2.OverlapConstant}, {"active-l2", qcow2.OverlapCached},
	{"refcount-block", qcow2.OverlapCached}, {"inactive-l1", qcow2.OverlapCached}, {"inactive-l2", qcow2.OverlapAll},
}

// overlapOptions takes the level of overlap checks. The level is a template; switches for single structures can only ask
// for more: the level is raised to the one that has them.
func overlapOptions(t Tree, w *qcow2.WriteOptions) error {
	level := "cached"
	if s, err := t.takeString("overlap-check"); err != nil {
		return err
	} else if s != "" {
		level = s
	}
	sub := t.take("overlap-check")
	if s, err := sub.takeString("template"); err != nil {
		return err
	} else if s != "" {
		level = s
	}
	check, ok := qcow2.ParseOverlapCheck(level)
	if !ok {
		return invalidf("option \"overlap-check\": %q is not one of none, constant, cached, all", level)
	}
	rank := map[qcow2.OverlapCheck]int{qcow2.OverlapNone: 0, qcow2.OverlapConstant: 1, qcow2.OverlapCached: 2, qcow2.OverlapAll: 3}
	for _, p := range overlapParts {
		on, err := sub.takeBool(p.key, false)
		if err != nil {
			return err
		}
		if on && rank[p.level] > rank[check] {
			check = p.level
		}
	}
	if len(sub) > 0 {
		return invalidf("option \"overlap-check\" knows no %s", strings.Join(slices.Sorted(maps.Keys(sub)), ", "))
	}
	w.Overlap = check
	return nil
}
