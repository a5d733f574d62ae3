package uring

// The kernel's interface, as far as it is used here (include/uapi/linux/io_uring.h names the same things).

// Opcode is the operation of a submission entry.
type Opcode uint8

// Operations that this package can prepare.
const (
	OpNop        Opcode = 0
	OpReadv      Opcode = 1
	OpWritev     Opcode = 2
	OpFsync      Opcode = 3
	OpReadFixed  Opcode = 4
	OpWriteFixed Opcode = 5
	OpFallocate  Opcode = 17
	OpRead       Opcode = 22
	OpWrite      Opcode = 23
	opLast       Opcode = 64 // size of the probe table, not an operation
)

const (
	setupCQSize    = 1 << 3
	setupClamp     = 1 << 4
	setupSubmitAll = 1 << 7

	featSingleMmap   = 1 << 0
	featNoDrop       = 1 << 1
	featSubmitStable = 1 << 2

	enterGetEvents = 1 << 0

	registerBuffers = 0
	registerFiles   = 2
	unregisterFiles = 3
	registerProbe   = 8

	offSQRing = 0
	offSQEs   = 0x10000000

	sqeFixedFile = 1 << 0

	fsyncDatasync = 1 << 0

	opSupported = 1 << 0
)

type sqringOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqringOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	resv                                                                   [3]uint32
	sqOff                                                                  sqringOffsets
	cqOff                                                                  cqringOffsets
}

// SQE is one submission entry in memory shared with the kernel. Fill it with one of the Prep methods.
type SQE struct {
	opcode      uint8
	flags       uint8
	ioprio      uint16
	fd          int32
	off         uint64
	addr        uint64
	len         uint32
	opFlags     uint32
	userData    uint64
	bufIndex    uint16
	personality uint16
	spliceFD    int32
	pad         [2]uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type probeOp struct {
	op    uint8
	resv  uint8
	flags uint16
	resv2 uint32
}

type probe struct {
	lastOp uint8
	opsLen uint8
	resv   uint16
	resv2  [3]uint32
	ops    [opLast]probeOp
}
