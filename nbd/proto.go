package nbd

// The numbers of the protocol, as the public protocol document names them. All fields on the wire
// are big-endian.
const (
	magicGreeting    uint64 = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption      uint64 = 0x49484156454f5054 // "IHAVEOPT"
	magicOptionReply uint64 = 0x0003e889045565a9
	magicRequest     uint32 = 0x25609513
	magicSimple      uint32 = 0x67446698
	magicStructured  uint32 = 0x668e33ef
	magicExtRequest  uint32 = 0x21e41c71
	magicExtReply    uint32 = 0x6e8a278c
)

// Flags of the greeting (server) and its answer (client); the same bits in both directions.
const (
	flagFixedNewstyle = 1 << 0
	flagNoZeroes      = 1 << 1
)

// Options of the handshake.
const (
	optExportName      uint32 = 1
	optAbort           uint32 = 2
	optList            uint32 = 3
	optStartTLS        uint32 = 5
	optInfo            uint32 = 6
	optGo              uint32 = 7
	optStructuredReply uint32 = 8
	optListMeta        uint32 = 9
	optSetMeta         uint32 = 10
	optExtHeaders      uint32 = 11
)

// Replies to options. Errors have the top bit set and may carry a message.
const (
	repAck         uint32 = 1
	repServer      uint32 = 2
	repInfo        uint32 = 3
	repMetaContext uint32 = 4
	repErrUnsup    uint32 = 1<<31 + 1
	repErrPolicy   uint32 = 1<<31 + 2
	repErrInvalid  uint32 = 1<<31 + 3
	repErrPlatform uint32 = 1<<31 + 4
	repErrTLSReqd  uint32 = 1<<31 + 5
	repErrUnknown  uint32 = 1<<31 + 6
	repErrShutdown uint32 = 1<<31 + 7
	repErrTooBig   uint32 = 1<<31 + 9
	repErrExtReqd  uint32 = 1<<31 + 10
)

// Information types of INFO and GO.
const (
	infoExport      uint16 = 0
	infoName        uint16 = 1
	infoDescription uint16 = 2
	infoBlockSize   uint16 = 3
)

// Transmission flags: what an export can do.
const (
	sendHasFlags    uint16 = 1 << 0
	sendReadOnly    uint16 = 1 << 1
	sendFlush       uint16 = 1 << 2
	sendFUA         uint16 = 1 << 3
	sendTrim        uint16 = 1 << 5
	sendWriteZeroes uint16 = 1 << 6
	sendDF          uint16 = 1 << 7
	sendMultiConn   uint16 = 1 << 8
	sendCache       uint16 = 1 << 10
	sendFastZero    uint16 = 1 << 11
	sendStatusLoad  uint16 = 1 << 12 // a block status may carry a payload that selects contexts
)

// Commands.
const (
	cmdRead        uint16 = 0
	cmdWrite       uint16 = 1
	cmdDisc        uint16 = 2
	cmdFlush       uint16 = 3
	cmdTrim        uint16 = 4
	cmdCache       uint16 = 5
	cmdWriteZeroes uint16 = 6
	cmdBlockStatus uint16 = 7
	cmdCount       uint16 = 8
)

// Command flags.
const (
	cmdFlagFUA      uint16 = 1 << 0
	cmdFlagNoHole   uint16 = 1 << 1
	cmdFlagDF       uint16 = 1 << 2
	cmdFlagReqOne   uint16 = 1 << 3
	cmdFlagFastZero uint16 = 1 << 4
	cmdFlagPayload  uint16 = 1 << 5 // extended headers: the length is that of a payload
)

// Structured reply chunks.
const (
	chunkDone        uint16 = 1 << 0 // the only flag
	chunkNone        uint16 = 0
	chunkOffsetData  uint16 = 1
	chunkOffsetHole  uint16 = 2
	chunkBlockStatus uint16 = 5
	chunkStatusExt   uint16 = 6 // block status with extended headers
	chunkError       uint16 = 1<<15 + 1
	chunkErrorOffset uint16 = 1<<15 + 2
)

// Errors of the transmission phase. They are the protocol's own numbers, whatever the platform's
// are.
const (
	nbdOK       uint32 = 0
	nbdPERM     uint32 = 1
	nbdIO       uint32 = 5
	nbdINVAL    uint32 = 22
	nbdNOSPC    uint32 = 28
	nbdOVERFLOW uint32 = 75
	nbdNOTSUP   uint32 = 95
	nbdSHUTDOWN uint32 = 108
)

// The metadata context that every export has, and the bits of its descriptors. Those that an Entry
// names have the numbers behind it.
const (
	metaBase          = "base:allocation"
	metaBaseID uint32 = 1
	stateHole  uint32 = 1 << 0
	stateZero  uint32 = 1 << 1
)

// Limits on what a peer may send. Each is the protocol's own bound, or far above what clients send.
const (
	stringMax     = 4096    // bytes of any string, by the protocol
	optionDataMax = 1 << 16 // bytes of option data that are looked at; more is skipped and refused
	optionsMax    = 1 << 10 // options of one handshake; the busiest client sends about ten
	messageMax    = 256     // bytes of an error message that we send
	contextsMax   = 32      // metadata contexts of an export
	payloadSkip   = 1 << 32 // a longer payload that nobody wants is not worth being skipped
)
