package ioshell

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"syscall"
	"time"

	"byre/block"
)

var (
	errNumber   = errors.New("non-numeric argument, or extraneous/unrecognized suffix")
	errTooLarge = errors.New("argument too large")
)

// parseSize reads a byte count: decimal with an optional fraction and a suffix of b k m g t p e, or hexadecimal.
func parseSize(arg string) (int64, error) {
	if rest, ok := strings.CutPrefix(strings.ToLower(arg), "0x"); ok {
		return parseHex(rest)
	}
	digits, shift := arg, uint(0)
	if n := len(arg); n > 1 {
		if i := strings.IndexByte("bkmgtpe", arg[n-1]|0x20); i >= 0 {
			digits, shift = arg[:n-1], uint(i)*10
		}
	}
	if digits == "" || strings.Trim(digits, "0123456789.") != "" || digits[0] == '.' || strings.Count(digits, ".") > 1 {
		return 0, errNumber
	}
	v, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, errNumber
	}
	v.Mul(v, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift)))
	n := new(big.Int).Quo(v.Num(), v.Denom())
	if !n.IsInt64() {
		return 0, errTooLarge
	}
	return n.Int64(), nil
}

func parseHex(digits string) (int64, error) {
	v, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && v > math.MaxInt64:
		return 0, errTooLarge
	case err != nil:
		return 0, errNumber
	}
	return int64(v), nil
}

// number parses arg and says what is wrong with it.
func (s *Shell) number(arg string) (int64, error) {
	n, err := parseSize(arg)
	if err != nil {
		s.printf("Parsing error: %v -- %s\n", err, arg)
		return 0, errFailed
	}
	return n, nil
}

// maxLength is the longest request of the language: what an int can count, in whole sectors.
const maxLength = math.MaxInt32 &^ 511

// length parses the length of a request.
func (s *Shell) length(arg string) (int64, error) {
	n, err := s.number(arg)
	if err == nil && n > maxLength {
		s.printf("length cannot exceed %d, given %s\n", maxLength, arg)
		err = errFailed
	}
	return n, err
}

// pattern parses a fill byte, in C notation (010 and 0x8 are 8).
func (s *Shell) pattern(arg string) (byte, error) {
	v, err := strconv.ParseInt(strings.ReplaceAll(arg, "_", "x"), 0, 64)
	if err != nil || v < 0 || v > 0xff {
		s.printf("%s is not a valid pattern byte\n", arg)
		return 0, errFailed
	}
	return byte(v), nil
}

// sizeString prints a count of bytes with the largest unit that leaves at least one of them; three decimals unless
// they are zeros.
func sizeString(v float64) string {
	units := [...]string{" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"}
	i := 0
	for i < len(units)-1 && v >= 1024 {
		v /= 1024
		i++
	}
	text := strconv.FormatFloat(v, 'f', 3, 64)
	if i == 0 {
		text = strconv.FormatFloat(v, 'f', 6, 64)
	}
	if whole, _, found := strings.Cut(text, ".000"); found {
		text = whole
	}
	return text + units[i]
}

// timeString prints a duration: seconds, or h:mm:ss where it is long or the form must not vary.
func timeString(d time.Duration, fixed bool) string {
	hundredths := d.Microseconds() / 10000 % 100
	total := int64(d / time.Second)
	if total < 60 && !fixed {
		return fmt.Sprintf("%02d.%02d sec", total, hundredths)
	}
	return fmt.Sprintf("%d:%02d:%02d.%02d", total/3600, total/60%60, total%60, hundredths)
}

// errorString gives the words of an error as the C library has them, because scripts compare the whole line.
func errorString(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return capital(no.Error())
	}
	switch block.KindOf(err) {
	case block.KindUnsupported:
		return "Operation not supported"
	case block.KindNoSpace:
		return "No space left on device"
	case block.KindInvalid:
		return "Invalid argument"
	case block.KindBusy, block.KindLocked:
		return "Device or resource busy"
	case block.KindRefused:
		return "Operation not permitted"
	}
	return "Input/output error"
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
