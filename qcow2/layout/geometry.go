package layout

import "fmt"

// Geometry is what the arithmetic of an image depends on. It is small and
// passed by value. The methods presume a valid geometry: ClusterBits 9…21 (14…21
// with extended L2 entries), RefcountOrder 0…6; Validate checks that.
type Geometry struct {
	ClusterBits   uint8
	RefcountOrder uint8
	Version       uint8 // 2 or 3
	ExtendedL2    bool
	DataFile      bool // guest clusters live in an external data file
}

// Validate checks the preconditions of all methods.
func (g Geometry) Validate() error {
	switch {
	case g.Version != 2 && g.Version != 3:
		return fmt.Errorf("version %d is not 2 or 3", g.Version)
	case g.ClusterBits < MinClusterBits || g.ClusterBits > MaxClusterBits:
		return fmt.Errorf("cluster size 2^%d is outside 2^%d…2^%d", g.ClusterBits, MinClusterBits, MaxClusterBits)
	case g.ExtendedL2 && g.SubclusterSize() < SectorSize:
		return fmt.Errorf("extended L2 entries need clusters of at least %d bytes", SectorSize*Subclusters)
	case g.RefcountOrder > MaxRefcountOrder:
		return fmt.Errorf("refcount order %d is above %d", g.RefcountOrder, MaxRefcountOrder)
	case g.Version == 2 && (g.RefcountOrder != DefaultRefcounts || g.ExtendedL2 || g.DataFile):
		return fmt.Errorf("version 2 has 16 bit refcounts, no extended L2 entries and no data file")
	}
	return nil
}

// ClusterSize in bytes.
func (g Geometry) ClusterSize() int64 { return 1 << g.ClusterBits }

// SubclusterSize in bytes; equals ClusterSize without extended L2 entries.
func (g Geometry) SubclusterSize() int64 {
	if g.ExtendedL2 {
		return g.ClusterSize() / Subclusters
	}
	return g.ClusterSize()
}

// SubclustersPerCluster is 32 with extended L2 entries, else 1.
func (g Geometry) SubclustersPerCluster() int {
	if g.ExtendedL2 {
		return Subclusters
	}
	return 1
}

// L2EntrySize in bytes: 16 with extended L2 entries, else 8.
func (g Geometry) L2EntrySize() int { return 1 << g.l2EntryBits() }

func (g Geometry) l2EntryBits() uint8 {
	if g.ExtendedL2 {
		return 4
	}
	return 3
}

// L2Entries is the number of entries of an L2 table.
func (g Geometry) L2Entries() int { return 1 << (g.ClusterBits - g.l2EntryBits()) }

// L2Coverage is the number of guest bytes that one L2 table maps.
func (g Geometry) L2Coverage() int64 { return 1 << (2*g.ClusterBits - g.l2EntryBits()) }

// L1Index of a guest offset ≥ 0.
func (g Geometry) L1Index(o GuestOffset) int64 {
	return int64(o) >> (2*g.ClusterBits - g.l2EntryBits())
}

// L2Index of a guest offset ≥ 0: the index of the entry in its L2 table.
func (g Geometry) L2Index(o GuestOffset) int {
	return int(int64(o)>>g.ClusterBits) & (g.L2Entries() - 1)
}

// Subcluster is the index of the subcluster of o in its cluster; 0 without extended L2 entries.
func (g Geometry) Subcluster(o GuestOffset) int {
	if !g.ExtendedL2 {
		return 0
	}
	return int(int64(o)>>(g.ClusterBits-5)) & (Subclusters - 1)
}

// L1Needed is the number of L1 entries that map size bytes (size ≥ 0).
func (g Geometry) L1Needed(size int64) int64 {
	n := size / g.L2Coverage()
	if size%g.L2Coverage() != 0 {
		n++
	}
	return n
}

// VMStateBase is the guest offset at which the VM state of a disk of size
// bytes starts (qcow2-format §4.2). size must not exceed MaxDiskSize.
func (g Geometry) VMStateBase(size int64) GuestOffset {
	return GuestOffset(g.L1Needed(size) * g.L2Coverage())
}

// MaxDiskSize is the largest virtual size that an L1 table of 32 MiB maps.
func (g Geometry) MaxDiskSize() int64 { return MaxL1Entries * g.L2Coverage() }

// RefcountBits is the width of a refcount.
func (g Geometry) RefcountBits() int { return 1 << g.RefcountOrder }

// MaxRefcount is the largest value of a refcount.
func (g Geometry) MaxRefcount() uint64 {
	if g.RefcountOrder == 6 {
		return 1<<64 - 1
	}
	return 1<<g.RefcountBits() - 1
}

// RefcountsPerBlock is the number of clusters that one refcount block counts.
func (g Geometry) RefcountsPerBlock() int { return 1 << (g.ClusterBits + 3 - g.RefcountOrder) }

// RefcountTableIndex is the index of the refcount table entry for a host cluster (number, not offset).
func (g Geometry) RefcountTableIndex(cluster int64) int64 {
	return cluster >> (g.ClusterBits + 3 - g.RefcountOrder)
}

// RefcountBlockIndex is the index of the counter of a host cluster in its block.
func (g Geometry) RefcountBlockIndex(cluster int64) int {
	return int(cluster & int64(g.RefcountsPerBlock()-1))
}

// MaxRefcountTableClusters is the legal maximum of refcount_table_clusters.
func (g Geometry) MaxRefcountTableClusters() int64 { return MaxRefTableBytes >> g.ClusterBits }

// MaxHostSize is the number of host bytes that the largest legal refcount
// table covers, capped at 2^63-1.
func (g Geometry) MaxHostSize() int64 {
	shift := 20 + uint(g.ClusterBits) + uint(g.ClusterBits) + 3 - uint(g.RefcountOrder)
	if shift >= 63 {
		return 1<<63 - 1
	}
	return 1 << shift
}

// MaxDataOffset is the exclusive bound of the offsets of L1, L2 and data clusters.
func (g Geometry) MaxDataOffset() HostOffset { return MaxTableOffset }

// MaxCompressedOffset is the exclusive bound of the byte offsets that a compressed descriptor can hold.
func (g Geometry) MaxCompressedOffset() HostOffset {
	return HostOffset(1) << min(56, g.compressedShift())
}

// compressedShift is x of qcow2-format §3.6: the bit where the sector count starts.
func (g Geometry) compressedShift() uint8 { return 70 - g.ClusterBits }

// Cluster is the number of the host cluster that holds o (o ≥ 0).
func (g Geometry) Cluster(o HostOffset) int64 { return int64(o) >> g.ClusterBits }

// ClusterOffset is the offset of a host cluster.
func (g Geometry) ClusterOffset(cluster int64) HostOffset {
	return HostOffset(cluster << g.ClusterBits)
}

// Aligned reports whether o lies on a cluster boundary.
func (g Geometry) Aligned(o HostOffset) bool { return int64(o)&(g.ClusterSize()-1) == 0 }

// InCluster is the offset of o within its guest cluster.
func (g Geometry) InCluster(o GuestOffset) int64 { return int64(o) & (g.ClusterSize() - 1) }

// FloorCluster rounds n ≥ 0 down to a multiple of the cluster size.
func (g Geometry) FloorCluster(n int64) int64 { return n &^ (g.ClusterSize() - 1) }

// CeilCluster rounds n ≥ 0 up to a multiple of the cluster size; ok is false if that overflows.
func (g Geometry) CeilCluster(n int64) (r int64, ok bool) {
	r, ok = addInt64(n, g.ClusterSize()-1)
	return r &^ (g.ClusterSize() - 1), ok
}

// Clusters is the number of clusters that hold n ≥ 0 bytes.
func (g Geometry) Clusters(n int64) int64 {
	return n>>g.ClusterBits + b2i(n&(g.ClusterSize()-1) != 0)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// addInt64 adds two non-negative numbers; ok is false on overflow.
func addInt64(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, a >= 0 && b >= 0 && sum >= 0
}

// RangeEnd returns off+length for a range read from an image; ok is false if
// either is negative or the sum does not fit.
func RangeEnd(off HostOffset, length int64) (end HostOffset, ok bool) {
	e, ok := addInt64(int64(off), length)
	return HostOffset(e), ok
}
