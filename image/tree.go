package image

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"byre/block"
)

// Tree holds the options of a stack of layers, flat: nested objects and lists are dotted keys ("file.filename",
// "inject-error.0.event"). Values are string, bool, json.Number or nil (null).
type Tree map[string]any

// ParseOptionString reads "key=value,key=value". A comma in a value is written twice. A key without a value is "on".
func ParseOptionString(s string) (Tree, error) {
	t := Tree{}
	for s != "" {
		var item string
		item, s = cutOption(s)
		key, value, has := strings.Cut(item, "=")
		if key == "" {
			return nil, invalidf("option without a name in %q", item)
		}
		if !has {
			value = "on"
		}
		if _, twice := t[key]; twice && t[key] != value {
			return nil, invalidf("option %q is given twice with different values", key)
		}
		t[key] = value
	}
	return t, t.checkShape()
}

// cutOption takes the first item of a list with doubled commas.
func cutOption(s string) (item, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != ',' {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == ',' {
			b.WriteByte(',')
			i++
			continue
		}
		return b.String(), s[i+1:]
	}
	return b.String(), ""
}

// ParseJSON reads the object of a "json:" name.
func ParseJSON(s string) (Tree, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, invalidf("options in JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalidf("options in JSON: something follows the object")
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, invalidf("options in JSON: not an object")
	}
	t := Tree{}
	if err := t.flatten("", obj); err != nil {
		return nil, err
	}
	return t, t.checkShape()
}

func (t Tree) flatten(prefix string, v any) error {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if err := t.flatten(joinKey(prefix, k), e); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := t.flatten(joinKey(prefix, strconv.Itoa(i)), e); err != nil {
				return err
			}
		}
	default:
		if _, twice := t[prefix]; twice {
			return invalidf("option %q is given twice", prefix)
		}
		t[prefix] = v
	}
	return nil
}

func joinKey(prefix, k string) string {
	if prefix == "" {
		return k
	}
	return prefix + "." + k
}

// checkShape refuses keys that are a value and an object at once ("file=x,file.filename=y").
func (t Tree) checkShape() error {
	keys := slices.Sorted(maps.Keys(t))
	for _, k := range keys {
		// Keys between k and k+"." may sort in between, so look the child up by position.
		i := sort.SearchStrings(keys, k+".")
		if i < len(keys) && strings.HasPrefix(keys[i], k+".") {
			return invalidf("option %q is both a value and an object (%q)", k, keys[i])
		}
	}
	return nil
}

// take removes the object at key and returns it; it is empty if there is none.
func (t Tree) take(key string) Tree {
	sub := Tree{}
	for k, v := range t {
		if rest, ok := strings.CutPrefix(k, key+"."); ok {
			sub[rest] = v
			delete(t, k)
		}
	}
	return sub
}

// takeValue removes the plain value at key.
func (t Tree) takeValue(key string) (v any, ok bool) {
	v, ok = t[key]
	delete(t, key)
	return v, ok
}

// takeString removes a value that must be a string.
func (t Tree) takeString(key string) (string, error) {
	v, ok := t.takeValue(key)
	if !ok {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", invalidf("option %q wants a string, not %v", key, v)
	}
	return s, nil
}

// takeBool removes a value that must be a truth: true, "on", "yes"…; def if absent.
func (t Tree) takeBool(key string, def bool) (bool, error) {
	v, ok := t.takeValue(key)
	if !ok {
		return def, nil
	}
	switch v {
	case true, "on", "yes", "true", "y":
		return true, nil
	case false, "off", "no", "false", "n":
		return false, nil
	}
	return false, invalidf("option %q wants on or off, not %v", key, v)
}

// takeSize removes a value that must be a size in bytes; suffixes as in [ParseSize]; def if absent.
func (t Tree) takeSize(key string, def int64) (int64, error) {
	v, ok := t.takeValue(key)
	if !ok {
		return def, nil
	}
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	n, err := ParseSize(text)
	if err != nil {
		return 0, invalidf("option %q wants a size: %w", key, err)
	}
	return n, nil
}

// takeEnum removes a value that must be one of a set; def if absent.
func (t Tree) takeEnum(key, def string, allowed ...string) (string, error) {
	v, ok := t.takeValue(key)
	if !ok {
		return def, nil
	}
	s, _ := v.(string)
	switch v {
	case true:
		s = "on"
	case false:
		s = "off"
	}
	if !slices.Contains(allowed, s) {
		return "", invalidf("option %q: %v is not one of %s", key, v, strings.Join(allowed, ", "))
	}
	return s, nil
}

// rest reports options that nobody took.
func (t Tree) rest(driver string) error {
	if len(t) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(t))
	return invalidf("driver %s has no option %q", driver, keys[0])
}

// ParseSize reads a size in bytes with an optional suffix (b, k, M, G, T, P, E; powers of 1024) and fraction.
func ParseSize(s string) (int64, error) {
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		v, err := strconv.ParseInt(s[2:], 16, 64)
		if err != nil || s[2] == '-' || s[2] == '+' {
			return 0, fmt.Errorf("%q is not a size (hexadecimal numbers take no suffix)", s)
		}
		return v, nil
	}
	num, shift := s, 0
	if n := len(s); n > 0 && s[n-1] >= 'A' {
		i := strings.IndexByte("bkmgtpe", s[n-1]|0x20)
		if i < 0 {
			return 0, fmt.Errorf("%q is not a size", s)
		}
		num, shift = s[:n-1], 10*i
	}
	whole, frac, hasFrac := strings.Cut(num, ".")
	v, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || v > (1<<63-1)>>shift {
		return 0, fmt.Errorf("%q is not a size, or too large", s)
	}
	bytes := int64(v) << shift
	if hasFrac {
		f, err := strconv.ParseFloat("0."+frac, 64)
		if err != nil || shift == 0 || strings.ContainsAny(frac, "eEpPxX_+-") {
			return 0, fmt.Errorf("%q is not a size", s)
		}
		add := int64(f * float64(int64(1)<<shift))
		if bytes > 1<<63-1-add {
			return 0, fmt.Errorf("%q is too large", s)
		}
		bytes += add
	}
	return bytes, nil
}

func invalidf(format string, args ...any) error {
	return block.Errorf(block.KindInvalid, "", "", block.NoOffset, format, args...)
}
