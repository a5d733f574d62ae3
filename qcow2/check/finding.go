package check

import "fmt"

// Class says what a finding means for the image.
type Class uint8

const (
	// Corruption: the metadata contradicts itself; data is, or will be, damaged.
	Corruption Class = iota
	// Leak: space that nothing refers to. Harmless.
	Leak
	// Failure: a part could not be judged; counted in Result.Errors.
	Failure
	// Note: says what is being done; counted nowhere.
	Note
)

func (c Class) String() string { return [...]string{"corruption", "leak", "check error", "note"}[c&3] }

// Kind names a rule that does not hold.
type Kind uint8

// The rules. Which fields of a Finding are set stands beside each.
const (
	RefcountMismatch    Kind = iota + 1 // Cluster, Stored, Referenced
	RefcountOverflow                    // Offset: more references than the refcount width can count
	BeyondEOF                           // Offset, Length: a reference to a place behind the end of the file
	CutByEOF                            // Offset, Length, Text: a structure that the end of the file cuts off
	Overlap                             // Cluster, Text: a structure that must stand alone shares a cluster
	CopiedL2Table                       // Index (of the L1 entry), Entry, Stored
	CopiedData                          // Entry, Stored
	L1Reserved                          // Entry
	L1Empty                             // Index, Entry: flags without a table
	L2Reserved                          // Entry
	L2TableUnaligned                    // Offset
	DataUnaligned                       // Offset
	PreallocUnaligned                   // Offset
	CompressedCopied                    // Offset
	CompressedDataFile                  // Index, Entry
	CompressedBitmap                    // Index, Entry
	SubclusterConflict                  // Offset
	SubclusterNoCluster                 // nothing
	ZeroFlagV2                          // Entry: version 2 has no such flag
	DataFileOffset                      // Offset, Entry: not the guest's offset
	SnapshotsDataFile                   // Index: how many
	SnapshotL1Unaligned                 // Offset, Name
	SnapshotL1TooLarge                  // Length, Name
	SnapshotTable                       // Text
	SnapshotIncomplete                  // Index
	RefTableReserved                    // Index
	RefBlockUnaligned                   // Index
	RefBlockOutside                     // Index
	RefBlockShared                      // Index, Referenced
	Bitmaps                             // Text
	Encryption                          // Text
	ReadError                           // Text
	RepairFailed                        // Text
	RebuildNeeded                       // nothing
	Rebuilding                          // nothing
)

// Finding is one thing found, or one thing done about it. It is valid during the call that hands it over.
type Finding struct {
	Class Class
	Kind  Kind
	// Fixing: the run is repairing this now.
	Fixing bool

	Offset     int64  // in the image file
	Length     int64  // bytes
	Cluster    int64  // number of the host cluster
	Index      int64  // of the entry in its table
	Entry      uint64 // as stored
	Stored     uint64 // refcount in the image
	Referenced uint64 // references found
	Name       string // "ID (NAME)" of a snapshot, control characters replaced
	Text       string // a whole line, for kinds that have only that
}

// String is the line that the real tool prints about it, in the same words, because scripts read them.
func (f *Finding) String() string {
	verb := "ERROR"
	if f.Fixing {
		verb = "Repairing"
	}
	switch f.Kind {
	case RefcountMismatch:
		if f.Class == Leak && !f.Fixing {
			verb = "Leaked"
		}
		return fmt.Sprintf("%s cluster %d refcount=%d reference=%d", verb, f.Cluster, f.Stored, f.Referenced)
	case RefcountOverflow:
		return fmt.Sprintf("ERROR: overflow cluster offset=0x%x", f.Offset)
	case BeyondEOF:
		return fmt.Sprintf("ERROR: counting reference for region exceeding the end of the file by one cluster or more: "+
			"offset 0x%x size 0x%x", f.Offset, f.Length)
	case CutByEOF:
		return fmt.Sprintf("%s: the %s at offset 0x%x is cut off by the end of the file", verb, f.Text, f.Offset)
	case Overlap:
		return fmt.Sprintf("%s cluster %d holds the %s and is referenced again (reference=%d)", verb, f.Cluster, f.Text, f.Referenced)
	case CopiedL2Table:
		return fmt.Sprintf("%s OFLAG_COPIED L2 cluster: l1_index=%d l1_entry=%x refcount=%d", verb, f.Index, f.Entry, f.Stored)
	case CopiedData:
		return fmt.Sprintf("%s OFLAG_COPIED data cluster: l2_entry=%x refcount=%d", verb, f.Entry, f.Stored)
	}
	return f.entryLine(verb)
}

// entryLine is String for what single entries of tables say.
func (f *Finding) entryLine(verb string) string {
	switch f.Kind {
	case L1Reserved:
		return fmt.Sprintf("ERROR found L1 entry with reserved bits set: %x", f.Entry)
	case L1Empty:
		return fmt.Sprintf("%s L1 entry %d has flags but no L2 table: %x", verb, f.Index, f.Entry)
	case L2Reserved:
		return fmt.Sprintf("ERROR found l2 entry with reserved bits set: %x", f.Entry)
	case L2TableUnaligned:
		return fmt.Sprintf("ERROR l2_offset=%x: Table is not cluster aligned; L1 entry corrupted", f.Offset)
	case DataUnaligned:
		return fmt.Sprintf("ERROR offset=%x: Data cluster is not properly aligned; L2 entry corrupted.", f.Offset)
	case PreallocUnaligned:
		return fmt.Sprintf("%s offset=%x: Preallocated cluster is not properly aligned; L2 entry corrupted.", verb, f.Offset)
	case CompressedCopied:
		return fmt.Sprintf("ERROR: coffset=0x%x: copied flag must never be set for compressed clusters", f.Offset)
	case CompressedDataFile:
		return fmt.Sprintf("ERROR compressed cluster %d with data file, entry=0x%x", f.Index, f.Entry)
	case CompressedBitmap:
		return fmt.Sprintf("ERROR compressed cluster %d with non-zero subcluster allocation bitmap, entry=0x%x", f.Index, f.Entry)
	case SubclusterConflict:
		return fmt.Sprintf("ERROR offset=%x: Allocated cluster has corrupted subcluster allocation bitmap", f.Offset)
	case SubclusterNoCluster:
		return "ERROR: Unallocated cluster has non-zero subcluster allocation map"
	case ZeroFlagV2:
		return fmt.Sprintf("ERROR l2 entry of a version 2 image has the zero flag: %x", f.Entry)
	case DataFileOffset:
		return fmt.Sprintf("ERROR cluster at guest offset 0x%x has another offset in the data file: entry=0x%x", f.Offset, f.Entry)
	}
	return f.tableLine(verb)
}

// tableLine is String for whole tables.
func (f *Finding) tableLine(verb string) string {
	switch f.Kind {
	case SnapshotsDataFile:
		return fmt.Sprintf("ERROR %d snapshots in image with data file", f.Index)
	case SnapshotL1Unaligned:
		return fmt.Sprintf("ERROR snapshot %s l1_offset=0x%x: L1 table is not cluster aligned; snapshot table entry corrupted", f.Name, f.Offset)
	case SnapshotL1TooLarge:
		return fmt.Sprintf("ERROR snapshot %s l1_size=0x%x: L1 table is too large; snapshot table entry corrupted", f.Name, f.Length)
	case SnapshotIncomplete:
		return fmt.Sprintf("%s snapshot table entry %d is incomplete", verb, f.Index)
	case RefTableReserved:
		return fmt.Sprintf("ERROR refcount table entry %d has reserved bits set", f.Index)
	case RefBlockUnaligned:
		return fmt.Sprintf("ERROR refcount block %d is not cluster aligned; refcount table entry corrupted", f.Index)
	case RefBlockOutside:
		return fmt.Sprintf("ERROR refcount block %d is outside image", f.Index)
	case RefBlockShared:
		return fmt.Sprintf("ERROR refcount block %d refcount=%d", f.Index, f.Referenced)
	case RebuildNeeded:
		return "ERROR need to rebuild refcount structures"
	case Rebuilding:
		return "Rebuilding refcount structure"
	}
	return f.Text
}

// printable replaces control characters, so that a name cannot drive a terminal.
func printable(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = '?'
		}
	}
	return string(b)
}
