package image

// WarningKind says what a [Warning] is about.
type WarningKind uint8

const (
	// WarnGuessedRaw: an image without a format was probed as raw and opened for writing; its first sector is guarded.
	WarnGuessedRaw WarningKind = iota + 1
	// WarnOther: what Text says.
	WarnOther
)

// Warning is something that is odd but no error.
type Warning struct {
	Kind WarningKind
	Path string
	Text string // of WarnOther
}

func (w Warning) String() string {
	if w.Kind == WarnGuessedRaw {
		return w.Path + ": the format was not given and looks like raw; its first sector is guarded against writes that would change that"
	}
	if w.Path != "" {
		return w.Path + ": " + w.Text
	}
	return w.Text
}
