// Package mover moves noncontiguous data: n pieces of local memory to, or from, m segments of one
// peer's memory, over one endpoint. The bytes of the pieces form a stream, in the order listed, and
// so do those of the segments; the two streams are equally long and are matched byte by byte.
//
//	local   |---a---|      |--b--|    |-----c-----|          three pieces
//	              \   \___/     /  \        \
//	remote      |-----1-----|    |---2---|   |--3--|         three segments
//
//	gather: Write(a, b' -> 1)  Write(b", c' -> 2)  Write(c" -> 3)  notice    one chain, not packed
//	pack:   copy a, b, c together   Write(abc -> slot)  notice   the peer copies it to 1, 2, 3
//
// Gathering is one one-sided work request per remote segment, whose local pieces are those parts
// that fall into the segment. All of them are posted together, as one chain; only the last one
// is signalled, and it (or a message behind it) is the notice for the peer. Packing is one copy at
// each side and a single write. Which one is better depends on the provider and on the shape: see
// Table and Tune. The other direction, Get, scatters: one Read per segment, straight into place.
//
// Ownership: from Start until the move is over (Done) the local pieces belong to the move, however
// it ends. A move is not over while this side's device, or the peer, can still touch them; so a
// canceled move waits for what is under way. To end it at once, close the endpoint. Plans belong to
// their user and can be reused: moving a plan again allocates nothing.
//
// Blocking: nothing blocks but Await, Drive, Move and Tune. The user polls the queue and passes
// completions to Completed. Concurrency: a Mover is safe for concurrent use, a Plan is used by one
// goroutine at a time (except Cancel), and completions of one endpoint are passed in the order in
// which its queue returned them.
//
// It does no flow control: each notice consumes a receive of the peer, and the user must know that
// there is one. It does not exchange grants, does not tell the peer in advance what is moved, and
// does not retry.
//
// Read mover.go first, then plan.go (which bytes go where), run.go (posting and completing),
// pack.go and notice.go with unpack.go (packing and the receiver's half), table.go and tune.go
// and chooser.go (choosing).
package mover

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// Staging lends registered buffers that data is packed into. *mem.User is one.
type Staging interface {
	// TryTake appends buffers that hold at least n bytes together, or returns false.
	TryTake(n int, dst []*mem.Buf) ([]*mem.Buf, bool)
}

// Options of a Mover.
type Options struct {
	// Domain is that of Endpoint, whose limits hold. Both must be set, and stay the caller's.
	Domain   fabric.Domain
	Endpoint fabric.Endpoint

	// SendDepth, in requests, is how many places of the endpoint's send queue moves may hold. Longer
	// chains go out in parts. Must be positive, and at most the endpoint's.
	SendDepth int

	// Mark is the upper 16 bits of the Context of every request of this mover: it distinguishes its
	// completions from those of others on the same endpoint. Default 0.
	Mark uint16

	// Moves is how many moves may be under way at once. Default 256, at most 4096.
	Moves int

	// MaxPieces is how many local pieces, and how many remote segments, one plan may have. Default
	// and at most seg.MaxPieces.
	MaxPieces int

	// Staging is where data is packed. Its memory is attached to Domain. Default nil: no packing.
	Staging Staging

	// Notices is where messages to the peer (Notice.Message) are written, a buffer each. Its memory
	// is attached to Domain. Default nil: notices by immediate only.
	Notices *mem.Pool

	// Table says when packing pays. Default: Defaults of the provider.
	Table *Table
}

// Bits of a request's Context: |mark 16 |generation 16 |move 12 |request 20 |.
const (
	requestBits = 20
	moveBits    = 12
	markShift   = 48
)

func (o Options) withDefaults() Options {
	if o.Moves == 0 {
		o.Moves = 256
	}
	if o.MaxPieces == 0 {
		o.MaxPieces = seg.MaxPieces
	}
	if o.Table == nil && o.Domain != nil {
		t := Defaults(o.Domain.Caps())
		o.Table = &t
	}
	return o
}

func (o Options) validate() error {
	why := ""
	switch {
	case o.Domain == nil || o.Endpoint == nil:
		why = "a domain and an endpoint are needed"
	case o.SendDepth < 1 || o.SendDepth > o.Domain.Caps().QueueDepth:
		why = "SendDepth is out of range"
	case o.Moves < 1 || o.Moves > 1<<moveBits:
		why = "Moves is out of range"
	case o.MaxPieces < 1 || o.MaxPieces > seg.MaxPieces:
		why = "MaxPieces is out of range"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "mover.New", "", "%s", why)
	}
	return o.Table.validate()
}

// Mover moves data over one endpoint. Safe for concurrent use.
type Mover struct {
	opts   Options
	caps   fabric.Caps
	peer   fabric.Hello
	counts counts

	// stalled is set while a chain waits because others fill the send queue. It changes under mu.
	stalled atomic.Bool

	// mu orders the posts of all moves; Endpoint.Post, which does not block, is called under it. It
	// guards the runs of plans too.
	mu     sync.Mutex
	closed bool
	free   int     // places in the send queue
	moves  []entry // by their number
	spare  []int   // numbers that are not in use
	first  *Plan   // plans with requests to be posted, in the order of their Start
	last   *Plan
	over   *Plan // finished plans, to be reported when mu is free
}

// entry is a move's number and its plan.
type entry struct {
	plan       *Plan
	generation uint16
}

// New makes a mover for one endpoint. It starts no goroutines and needs no Close unless its
// endpoint's queue is closed early.
func New(opts Options) (*Mover, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := &Mover{
		opts: opts, caps: opts.Domain.Caps(), peer: opts.Endpoint.Peer().Hello,
		free: opts.SendDepth, moves: make([]entry, opts.Moves), spare: make([]int, opts.Moves),
	}
	for i := range m.spare {
		m.spare[i] = opts.Moves - 1 - i
	}
	return m, nil
}

// Close closes the endpoint, because only then nothing touches memory any more, and ends all moves
// with errs.Closed. It is needed where the queue is closed before all completions were polled;
// otherwise the completions of a closed endpoint end its moves. Closing twice is allowed.
func (m *Mover) Close() error {
	err := m.opts.Endpoint.Close()
	m.mu.Lock()
	m.closed = true
	for i := range m.moves {
		if p := m.moves[i].plan; p != nil {
			p.stopLocked(errs.Newf(errs.Closed, "mover.Close", m.name(), "the mover was closed"))
			p.run.open = 0
			m.finishIfIdleLocked(p)
		}
	}
	m.unlockAndTell()
	return errs.Wrap("mover.Close", m.name(), err)
}

func (m *Mover) name() string { return m.opts.Endpoint.Name() }

// Stats are the counters of a mover.
type Stats struct {
	Moves     uint64 // started
	Bytes     uint64 // of them
	Packed    uint64 // moves that were packed
	NoStaging uint64 // moves that would have been packed if there had been a buffer
	Requests  uint64 // posted
	Chains    uint64 // calls of Post that took them
}

type counts struct{ moves, bytes, packed, noStaging, requests, chains atomic.Uint64 }

// Stats returns the counters.
func (m *Mover) Stats() Stats {
	c := &m.counts
	return Stats{
		Moves: c.moves.Load(), Bytes: c.bytes.Load(), Packed: c.packed.Load(),
		NoStaging: c.noStaging.Load(), Requests: c.requests.Load(), Chains: c.chains.Load(),
	}
}
