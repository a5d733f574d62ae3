package block

// ExtentFlags describe an [Extent].
type ExtentFlags uint16

const (
	// Data: the bytes come from stored data (also from a preallocated place that holds zeros).
	Data ExtentFlags = 1 << iota
	// Zero: the bytes are known to read as zeros.
	Zero
	// Allocated: the layer at Depth decides the contents; clear where no layer of the chain does.
	Allocated
	// HasHost: Host and File are set: byte i of the extent lies at Host+i in File, in the clear.
	HasHost
	// CompressedData: the bytes are stored compressed (Data is set, HasHost is not).
	CompressedData
	// EOFExtent: the extent ends at the end of the layer that was asked.
	EOFExtent
)

// Extent is the one answer to "what is here?". Convert, map, compare, block status, zero shortcuts and measure all
// ask it.
type Extent struct {
	Start  int64 // guest offset, bytes
	Length int64 // bytes, > 0
	Flags  ExtentFlags
	Depth  int    // 0 = the layer that was asked, 1 = its backing file, …
	Host   int64  // with HasHost: offset in File
	File   string // with HasHost: name of the file that holds the bytes, as opened
	// FileExtra is false if File is the storage below the layer itself, true for an external data file.
	FileExtra bool
}

// End is the first byte behind the extent.
func (e Extent) End() int64 { return e.Start + e.Length }

// IsZero tells whether the extent is known to read as zeros.
func (e Extent) IsZero() bool { return e.Flags&Zero != 0 }

// Query says how hard Extent should look.
type Query uint8

const (
	// WantZero: look for zeros and exact offsets even if that asks the host file (holes).
	WantZero Query = 1 << iota
	// TopOnly: do not look into backing files: what this layer does not decide has Allocated clear and Depth 0.
	TopOnly
)
