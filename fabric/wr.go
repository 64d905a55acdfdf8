package fabric

// Op is what a work request does.
type Op uint8

// The operations. Remote access is started by this side and needs no action of the peer's
// application.
const (
	OpSend     Op = iota + 1 // message into the peer's next posted receive
	OpWrite                  // gather local pieces, write them to Remote, contiguously
	OpWriteImm               // OpWrite, then consume a receive at the peer and give it Imm
	OpRead                   // read Remote, scatter it over the local pieces in order
	OpRecv                   // only in completions
)

// Flags of a work request.
type Flags uint8

// The flags.
const (
	// FlagSignaled asks for a completion. Without it a successful request completes silently,
	// and its memory is free when a later signalled request of the endpoint completes (for a
	// Read: one that carries FlagFence too, since Reads complete in any order). Failures always
	// complete.
	FlagSignaled Flags = 1 << iota

	// FlagInline lets Post copy the (at most Caps.MaxInline) bytes: the memory is free when it
	// returns.
	FlagInline

	// FlagSolicited wakes a peer that sleeps in CQ.Wait for solicited events only; a hint
	// otherwise.
	FlagSolicited

	// FlagFence holds the request back until all earlier Reads of this endpoint have completed.
	FlagFence

	// FlagEarly lets a Write complete as soon as its memory is free, which may be before the peer has
	// the bytes. If the peer refuses them after that, no error is reported: use it where a message
	// that follows tells the peer what it should have. A hint.
	FlagEarly

	// FlagMore says that another Post of the endpoint follows at once: the request, and those before
	// it, need not start before that, so that several can leave together. Whoever sets it calls Post
	// again in any case, with an empty chain if there is nothing else. A hint.
	FlagMore

	// FlagLater says that nobody waits for the completion of a Write, or of a Send behind one: it may
	// be told late, when the peer has something else to say, or rests. A hint.
	FlagLater

	flagsAll = FlagLater<<1 - 1
)

// Sge is one piece of local memory. Buf lies inside Reg.Bytes(); with Caps.AnyMemory Reg may be
// nil.
type Sge struct {
	Reg Region
	Buf []byte
}

// WR is one work request.
//
// Ordering, on one endpoint: requests start in the order posted. Sends are delivered, and Writes
// are placed, in that order: when a message is received, the data of all Writes posted before it
// is in place and visible. A Read is not ordered against what was posted after it, unless that
// carries FlagFence; its data is in place when it completes. Two Writes to the same memory
// through different grants are in order only if a message lies between them. Completions of one
// endpoint's requests come in the order posted, Reads excepted. Between endpoints there is no
// order.
//
// A Send or WriteImm for which the peer has no receive posted any more ends the connection with
// errs.Protocol at both ends: flow control is up to the user (credits). Access that the key does
// not allow (unknown, revoked, wrong right, out of range, another endpoint's) moves nothing and
// fails at the initiator with errs.Perm; for a Write the error arrives in its completion; the
// connection goes on, unless Caps.RefusalEnds. A transfer of zero bytes touches nothing and needs
// no valid key. A refused WriteImm consumes no receive.
type WR struct {
	Op      Op
	Flags   Flags
	Context uint64 // returned in the completion
	Local   []Sge
	Remote  Remote // OpWrite, OpWriteImm, OpRead; Remote.Len must equal the local length
	Imm     uint32 // OpSend carries it too
}

// Recv is memory for one incoming message, in a single piece. A message that is longer than Buf
// ends the connection with errs.Protocol at both ends.
type Recv struct {
	Context uint64
	Reg     Region
	Buf     []byte
}

// Completion tells the end of one work request or receive. On failure Len and Imm mean nothing.
type Completion struct {
	Op      Op // OpRecv for a receive
	Context uint64
	EP      Endpoint
	Len     int    // bytes received (OpRecv by a send) or moved
	Imm     uint32 // OpRecv only
	WithImm bool   // OpRecv: consumed by a WriteImm, no bytes in the buffer
	Err     error  // nil, or an *errs.Error
}
