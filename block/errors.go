package block

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the stable part of an error: what a caller may act on. A format adds detail, not kinds.
type Kind uint8

const (
	KindIO          Kind = iota + 1 // the storage below failed
	KindCorrupt                     // the image contradicts itself or its format
	KindUnsupported                 // valid, but a feature that is not handled here, or not in this way
	KindOutOfBounds                 // beyond the end, or not representable
	KindNoSpace                     // the storage is full
	KindLocked                      // somebody else holds the image
	KindRefused                     // an implicit reference that the gate did not allow
	KindInvalid                     // an argument or call that can never be right
	KindBusy                        // NoWait, and it would have had to wait
)

var kindText = [...]string{"", "I/O error", "corrupt image", "unsupported feature", "out of bounds", "no space left",
	"image is in use", "reference refused", "invalid argument", "busy"}

func (k Kind) String() string {
	if int(k) < len(kindText) {
		return kindText[k]
	}
	return "unknown error"
}

// Sentinels for errors.Is: errors.Is(err, block.ErrCorrupt) holds for every *Error of that kind.
var (
	ErrIO          = errors.New("I/O error")
	ErrCorrupt     = errors.New("corrupt image")
	ErrUnsupported = errors.New("unsupported feature")
	ErrOutOfBounds = errors.New("out of bounds")
	ErrNoSpace     = errors.New("no space left")
	ErrLocked      = errors.New("image is in use")
	ErrRefused     = errors.New("reference refused")
	ErrInvalid     = errors.New("invalid argument")
	ErrBusy        = errors.New("busy")
)

var kindSentinel = [...]error{nil, ErrIO, ErrCorrupt, ErrUnsupported, ErrOutOfBounds, ErrNoSpace, ErrLocked,
	ErrRefused, ErrInvalid, ErrBusy}

// NoOffset is the Offset of an error that has none.
const NoOffset = -1

// Error is the error of every layer: a kind, what was being done, to which file, where, and why.
type Error struct {
	Kind   Kind
	Op     string // "read", "open", "write L2 table"…
	Path   string
	Offset int64  // bytes in Path, or NoOffset
	Msg    string // what was wrong, in words
	Err    error  // cause, may be nil
}

// Error reads "PATH: OP at offset 0x… : MSG: CAUSE", leaving out what is not set.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		fmt.Fprintf(&b, "%s: ", e.Path)
	}
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Offset >= 0 {
			fmt.Fprintf(&b, " at offset %#x", e.Offset)
		}
		b.WriteString(": ")
	} else if e.Offset >= 0 {
		fmt.Fprintf(&b, "at offset %#x: ", e.Offset)
	}
	switch {
	case e.Msg != "" && e.Err != nil:
		b.WriteString(e.Msg)
		if t := e.Err.Error(); t != "" {
			b.WriteString(": " + t)
		}
	case e.Msg != "":
		b.WriteString(e.Msg)
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	default:
		b.WriteString(e.Kind.String())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes the sentinels work.
func (e *Error) Is(target error) bool {
	return int(e.Kind) < len(kindSentinel) && e.Kind != 0 && target == kindSentinel[e.Kind]
}

// Errorf makes an *Error. The last argument may be wrapped with %w.
func Errorf(k Kind, op, path string, off int64, format string, args ...any) *Error {
	msg := fmt.Errorf(format, args...)
	return &Error{Kind: k, Op: op, Path: path, Offset: off, Msg: msg.Error(), Err: hidden(errors.Unwrap(msg))}
}

// hidden keeps a cause reachable for errors.Is/As whose text the message already holds.
func hidden(err error) error {
	if err == nil {
		return nil
	}
	return &hiddenCause{err}
}

type hiddenCause struct{ err error }

func (h *hiddenCause) Error() string { return "" }
func (h *hiddenCause) Unwrap() error { return h.err }

// KindOf finds the kind of the outermost *Error in err's chain; KindIO for foreign errors, 0 for nil.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindIO
}
