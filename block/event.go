package block

// Event is a named step at which a format tells the storage below what it is about to do, so that a test can inject an
// error there or suspend the request. The names are those that fault-injection configurations already use.
type Event uint8

const (
	EventL1Update Event = iota
	EventL1GrowAllocTable
	EventL1GrowWriteTable
	EventL1GrowActivateTable
	EventL2Load
	EventL2Update
	EventL2UpdateCompressed
	EventL2AllocCOWRead
	EventL2AllocWrite
	EventReadAIO
	EventReadBackingAIO
	EventReadCompressed
	EventWriteAIO
	EventWriteCompressed
	EventVmstateLoad
	EventVmstateSave
	EventCOWRead
	EventCOWWrite
	EventReftableLoad
	EventReftableGrow
	EventReftableUpdate
	EventRefblockLoad
	EventRefblockUpdate
	EventRefblockUpdatePart
	EventRefblockAlloc
	EventRefblockAllocHookup
	EventRefblockAllocWrite
	EventRefblockAllocWriteBlocks
	EventRefblockAllocWriteTable
	EventRefblockAllocSwitchTable
	EventClusterAlloc
	EventClusterAllocBytes
	EventClusterFree
	EventFlushToOS
	EventFlushToDisk
	EventPwritevRMWHead
	EventPwritevRMWAfterHead
	EventPwritevRMWTail
	EventPwritevRMWAfterTail
	EventPwritev
	EventPwritevZero
	EventPwritevDone
	EventEmptyImagePrepare
	EventL1ShrinkWriteTable
	EventL1ShrinkFreeL2Clusters
	EventCorWrite
	EventClusterAllocSpace
	EventNone

	NumEvents = iota
)

var eventNames = [...]string{
	EventL1Update:                 "l1_update",
	EventL1GrowAllocTable:         "l1_grow_alloc_table",
	EventL1GrowWriteTable:         "l1_grow_write_table",
	EventL1GrowActivateTable:      "l1_grow_activate_table",
	EventL2Load:                   "l2_load",
	EventL2Update:                 "l2_update",
	EventL2UpdateCompressed:       "l2_update_compressed",
	EventL2AllocCOWRead:           "l2_alloc_cow_read",
	EventL2AllocWrite:             "l2_alloc_write",
	EventReadAIO:                  "read_aio",
	EventReadBackingAIO:           "read_backing_aio",
	EventReadCompressed:           "read_compressed",
	EventWriteAIO:                 "write_aio",
	EventWriteCompressed:          "write_compressed",
	EventVmstateLoad:              "vmstate_load",
	EventVmstateSave:              "vmstate_save",
	EventCOWRead:                  "cow_read",
	EventCOWWrite:                 "cow_write",
	EventReftableLoad:             "reftable_load",
	EventReftableGrow:             "reftable_grow",
	EventReftableUpdate:           "reftable_update",
	EventRefblockLoad:             "refblock_load",
	EventRefblockUpdate:           "refblock_update",
	EventRefblockUpdatePart:       "refblock_update_part",
	EventRefblockAlloc:            "refblock_alloc",
	EventRefblockAllocHookup:      "refblock_alloc_hookup",
	EventRefblockAllocWrite:       "refblock_alloc_write",
	EventRefblockAllocWriteBlocks: "refblock_alloc_write_blocks",
	EventRefblockAllocWriteTable:  "refblock_alloc_write_table",
	EventRefblockAllocSwitchTable: "refblock_alloc_switch_table",
	EventClusterAlloc:             "cluster_alloc",
	EventClusterAllocBytes:        "cluster_alloc_bytes",
	EventClusterFree:              "cluster_free",
	EventFlushToOS:                "flush_to_os",
	EventFlushToDisk:              "flush_to_disk",
	EventPwritevRMWHead:           "pwritev_rmw_head",
	EventPwritevRMWAfterHead:      "pwritev_rmw_after_head",
	EventPwritevRMWTail:           "pwritev_rmw_tail",
	EventPwritevRMWAfterTail:      "pwritev_rmw_after_tail",
	EventPwritev:                  "pwritev",
	EventPwritevZero:              "pwritev_zero",
	EventPwritevDone:              "pwritev_done",
	EventEmptyImagePrepare:        "empty_image_prepare",
	EventL1ShrinkWriteTable:       "l1_shrink_write_table",
	EventL1ShrinkFreeL2Clusters:   "l1_shrink_free_l2_clusters",
	EventCorWrite:                 "cor_write",
	EventClusterAllocSpace:        "cluster_alloc_space",
	EventNone:                     "none",
}

func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return "unknown event"
}

// ParseEvent finds an event by its name.
func ParseEvent(name string) (Event, bool) {
	for i, n := range eventNames {
		if n == name {
			return Event(i), true
		}
	}
	return 0, false
}
