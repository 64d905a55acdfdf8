// Package fabric is the contract of the network under sluice. It is shaped like RDMA verbs, not
// like sockets: memory is registered, rights on it are granted for one use and revoked after it,
// receives are posted before messages arrive, data moves by one-sided writes and reads, and
// everything ends in a completion queue. Only package peer opens providers; the packages above it
// see Caps.
//
// It does no flow control (package msg does), no retrying and no naming (package peer does). Below
// are the providers (tcp, verbs, shm, sim), what they share (provider, progress) and hooks that
// wrap any of them (hook); fabrictest defines, as tests, what a provider must do.
//
// Read fabric.go first (domains, regions, endpoints), then hello.go (who the peer is), wr.go (work
// requests, ordering) and cq.go.
package fabric

import (
	"context"
	"net"

	"github.com/sluice-storage/sluice/errs"
)

// Rights say what a peer may do with granted memory. Local use needs no right.
type Rights uint8

// The rights. A grant carries the least that serves one request.
const (
	RemoteRead  Rights = 1 << iota // the peer may read the memory (Op Read)
	RemoteWrite                    // the peer may write the memory (Op Write, WriteImm)
)

// Caps are a domain's properties and limits. They do not change while it is open.
type Caps struct {
	// Provider is the provider's name as people see it: "tcp", "sim".
	Provider string

	// AnyMemory: ordinary Go memory may be used in a Sge without a Region. Where it is false every
	// piece needs one.
	AnyMemory bool

	// RegistersAny: Register takes a program's own memory, Go heap or mapped, and not arenas (package
	// mem) only. A device uses the pages until Region.Close, so that the program must keep the memory
	// allocated until then; it may fork meanwhile.
	RegistersAny bool

	// MaxSge is how many pieces one work request may gather or scatter.
	MaxSge int

	// MaxMessage is the largest Send in bytes; MaxTransfer the largest Write or Read.
	MaxMessage  int
	MaxTransfer int

	// MaxInline is the largest message that Post copies before it returns when FlagInline is set.
	MaxInline int

	// QueueDepth is the largest SendDepth and RecvDepth of an endpoint.
	QueueDepth int

	// ReadDepth is how many Reads one endpoint may have outstanding; more wait in the send queue.
	ReadDepth int

	// RefusalEnds: access that a key does not allow ends the connection, because a device does
	// that. The request that tried completes with errs.Perm, what else is pending at that end
	// with errs.Disconnected. Where it is false the connection goes on.
	RefusalEnds bool

	// SameHost: endpoints connect processes of one host only.
	SameHost bool

	// AsksToken: listeners of this domain demand a token of each dialler, see Tokens.
	AsksToken bool

	// PostMoves: Post itself moves the data of Writes and Reads wherever it can, so that their
	// completions mostly are in the queue when it returns: a waiter should poll once before it sleeps.
	PostMoves bool

	// AnyMemoryCopied: memory outside of arenas that were made for the provider works, but is
	// copied once more on its way. Where it is false all memory that works moves equally well.
	AnyMemoryCopied bool

	// PackBelow, in bytes: where many pieces are moved, copying them together first is faster if
	// their mean length is below this. 0: never.
	PackBelow int
}

// Domain is an open provider: the owner of regions, queues and endpoints. Safe for concurrent use.
type Domain interface {
	Caps() Caps

	// Register makes mem known to the provider for local use and for grants. mem stays the caller's
	// and must stay mapped until Region.Close. Registration alone gives no remote access.
	Register(mem []byte) (Region, error)

	// NewCQ makes a completion queue. The sum of the send and receive depths of all endpoints on it
	// must not exceed opts.Depth: an endpoint that would exceed it is refused with errs.Invalid. So a
	// queue never overflows. A closed endpoint counts until its last completion has been polled.
	NewCQ(opts CQOptions) (CQ, error)

	// Connector opens and accepts endpoints. (A value of its own to keep both interfaces small.)
	Connector() Connector

	// Close ends every endpoint and listener of the domain and waits for its goroutines. Pending
	// work requests complete with errs.Closed; queues stay readable until they are closed
	// themselves.
	Close() error
}

// Refuser is a Domain that counts the peers that its listeners did not let in.
type Refuser interface {
	Refusals() uint64
}

// Connector makes connections. Safe for concurrent use.
type Connector interface {
	// Devices returns those that the domain uses, in their present state.
	Devices() ([]Device, error)

	// Listen starts to accept at addr ("127.0.0.1:0" for tcp, any name for sim).
	Listen(addr string) (Listener, error)

	// Dial connects to a listener at addr. cfg applies to this side. It blocks until the hellos are
	// exchanged or ctx ends. A peer of another major version is refused with errs.Version; a
	// listener that refuses this side tells errs.Perm, errs.Again or errs.Version, and
	// errs.Disconnected for any other reason.
	Dial(ctx context.Context, addr string, cfg EndpointConfig) (Endpoint, error)
}

// Listener accepts endpoints until Close, which makes a blocked Accept return errs.Closed.
type Listener interface {
	// Accept waits for a peer's hello and completes the connection with this side's cfg. cfg is called
	// when the peer is known; its error, which must not be errs.Closed, refuses the peer. An error of
	// errs.Closed ends the listener; any other error concerns one peer only and the caller goes on
	// accepting.
	Accept(ctx context.Context, cfg func(peer Peer) (EndpointConfig, error)) (Endpoint, error)
	Addr() net.Addr
	Close() error
}

// EndpointConfig is what a side decides about its end of a connection.
type EndpointConfig struct {
	SendCQ, RecvCQ       CQ // where completions go; may be the same queue
	SendDepth, RecvDepth int
	Hello                Hello // Version, MaxMessage and RecvDepth are filled in when zero
}

// Endpoint is one end of a reliable, ordered connection. Safe for concurrent use. No method but
// Close waits for the peer.
type Endpoint interface {
	// Post queues a chain of work requests, all or none: errs.Again when the send queue lacks room,
	// errs.Invalid for misuse, errs.Disconnected or errs.Closed when the endpoint is dead. wrs and the
	// slices in it are the caller's again when Post returns; the memory that they point at belongs to
	// the operation until its completion (or that of a later signalled request, see wr.go). A request
	// holds its place in the send queue until its completion has been polled, or, when it succeeds
	// silently, until a later signalled request's completion at the latest. A chain longer than
	// SendDepth is always errs.Again. An empty chain starts what FlagMore has held back. See wr.go for
	// ordering.
	Post(wrs []WR) error

	// PostRecv queues memory for incoming messages, used in order, one message each. Before its first
	// call messages wait at the provider, so that a peer may send as soon as it is connected; after it
	// a message without a receive ends the connection (see WR), so the first call posts as many
	// receives as the hello promised. The memory belongs to the endpoint until its completion, the
	// place in the queue until that is polled. All or none: errs.Again when the receive queue lacks
	// room.
	PostRecv(recvs []Recv) error

	// Peer is who is at the other side, and how that is known.
	Peer() Peer

	// Name names the two ends for logs, e.g. "tcp 127.0.0.1:4001->127.0.0.1:9400".
	Name() string

	// Close ends the connection. Every pending work request and receive completes, with
	// errs.Closed here and errs.Disconnected at the peer. When it returns no memory of this side
	// is touched any more. Closing twice is allowed.
	Close() error
}

// Borrower is an Endpoint whose peer may lend it memory. While it Borrows for Writes of n bytes,
// what the peer writes from that memory arrives by one copy, wherever it is to be:
// Caps.AnyMemoryCopied does not hold for it.
type Borrower interface{ Borrows(n int64) bool }

// Region is registered memory. Safe for concurrent use.
type Region interface {
	// Bytes is the memory itself.
	Bytes() []byte

	// Grant opens length bytes at off to the peer of one endpoint, for the given rights, until Revoke.
	// The Remote can be sent to that peer in a message. No other peer can use it: the key is bound to
	// ep, unless the provider's options say otherwise.
	Grant(ep Endpoint, off, length int, rights Rights) (Remote, error)

	// Revoke ends a grant. When it returns no access by it is under way and none will succeed later; a
	// peer that tries gets errs.Perm, and the connection goes on, unless Caps.RefusalEnds. Revoking
	// twice is allowed.
	Revoke(r Remote)

	// Close revokes all grants and forgets the memory. The memory stays the caller's.
	Close() error
}

// Remote names memory of a peer: what Grant returned there. Addr + i addresses byte i of the grant.
//
//	on the wire: 0        8        16       24
//	             |key     |addr    |len     |   big-endian
type Remote struct {
	Key  uint64
	Addr uint64
	Len  uint64
}

// Slice narrows a Remote to length bytes at off. It panics when that leaves the range.
func (r Remote) Slice(off, length uint64) Remote {
	if off > r.Len || length > r.Len-off {
		panic("broken invariant: fabric.Remote sliced beyond its range")
	}
	return Remote{Key: r.Key, Addr: r.Addr + off, Len: length}
}

// ErrKind is the kind of a completion's error; errs.OK for success.
func (c *Completion) ErrKind() errs.Kind { return errs.KindOf(c.Err) }
