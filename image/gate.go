package image

import (
	"context"
	"fmt"
	"strings"

	"byre/block"
)

// RefKind says what an implicit reference is for.
type RefKind uint8

const (
	RefBacking  RefKind = iota + 1 // the backing file that a header names
	RefDataFile                    // the external data file that a header names
)

func (k RefKind) String() string {
	switch k {
	case RefBacking:
		return "backing file"
	case RefDataFile:
		return "data file"
	}
	return "reference"
}

// Reference is one thing that an image, not its user, asks to open.
type Reference struct {
	Kind     RefKind
	From     string // the file that holds the reference, as it was opened
	Name     string // as stored
	Resolved string // Name relative to the folder of From; what will be opened
	Format   string // as stored; empty: would be probed
}

func (r Reference) String() string {
	s := fmt.Sprintf("%s %q", r.Kind, r.Name)
	if r.Resolved != r.Name {
		s += fmt.Sprintf(" (%s)", r.Resolved)
	}
	if r.Format != "" {
		s += " of format " + r.Format
	}
	return s
}

// Gate decides each implicit open. Allow returns nil to let it happen; any error stops the opening of the image and
// is reported together with every other reference that was refused at the same layer. It may be called from the
// goroutine that opens only, and sees a reference before anything of it was touched.
type Gate interface {
	Allow(ctx context.Context, r Reference) error
}

// GateFunc makes a function a Gate.
type GateFunc func(ctx context.Context, r Reference) error

// Allow calls f.
func (f GateFunc) Allow(ctx context.Context, r Reference) error { return f(ctx, r) }

// DenyReferences is the default: nothing is opened that the caller did not name.
var DenyReferences Gate = GateFunc(func(context.Context, Reference) error { return block.ErrRefused })

// AllowReferences opens whatever images refer to, as the command line tools do.
var AllowReferences Gate = GateFunc(func(context.Context, Reference) error { return nil })

// askGate asks for all references of a layer at once, so that the error can list everything that is wanted.
func askGate(ctx context.Context, g Gate, path string, refs []Reference) error {
	var denied []string
	var cause error
	for _, r := range refs {
		if err := g.Allow(ctx, r); err != nil {
			if cause == nil || cause == block.ErrRefused {
				cause = err
			}
			denied = append(denied, r.String())
		}
	}
	if denied == nil {
		return nil
	}
	msg := "the image refers to " + strings.Join(denied, " and ") + ", which was not allowed"
	if cause == block.ErrRefused {
		cause = nil
	}
	return &block.Error{Kind: block.KindRefused, Op: "open", Path: path, Offset: block.NoOffset, Msg: msg, Err: cause}
}
