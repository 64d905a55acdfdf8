// Package shm is the fabric provider between processes of one host. Two processes share a segment
// of memory with two rings in it. Messages go through the rings; a server's Writes and Reads go
// straight into and out of the client's memory, in one copy that the initiator makes.
//
//	client (dials)                                        server (listens)
//	  Post --copy--> ring 0 in the segment --copy--> posted receive, granted memory
//	  posted receive, granted memory <--copy-- ring 1 in the segment <--copy-- Post
//	  arena memory <-------------------- one copy ---------------------- Post of a Write
//	  arena memory --------------------- one copy ---------------------> Post of a Read
//	  granted memory <--- one copy, by the client --- lent memory, named in ring 1 by Post of a Write
//
// It has no flow control (package msg does) and does not reach beyond the host.
//
// # Who maps whom
//
// The client makes the segment and passes it with its hello. Servers map client memory: the
// segment, and arenas (see Arenas). An arena is passed once per connection, when the first grant in
// it is made. A client maps what a server lends it (lend.go), and may only read it. Everything else
// (what a client writes to or reads from a server, and other memory of a server's that is written
// to grants in no arena) goes through the rings; this package copies it in the process that owns
// the memory. The kernel tells each side who the peer is (SO_PEERCRED); Options say which users are
// trusted. The socket of the hello stays open. When it closes, the peer has died or ended the
// connection; each side closes it last, so a closed socket also means that the peer has stopped
// touching memory.
//
// Copies: a Send two (into the ring, into the receive); a Write or Read by a client two; a Write
// or Read by a server one where the client's memory is in an arena, else two, or one if it is a
// Write from lent memory.
//
// What completions mean: a Send is complete when it is in the ring, that is when its memory is
// free. A Write is complete when it is placed. They come in the order posted, Reads excepted.
//
// # What a peer can do
//
// Whatever is read from shared memory is copied before it is checked, and indices, lengths and
// offsets are checked against what was granted: a peer can break its own connection and nothing
// else. Memory of a peer is mapped only if it is sealed against shrinking and has all its pages, so
// that touching it does not fault. If it faults nevertheless (its owner can punch holes, and a host
// under strict overcommit may have no page to fill them) the connection ends and the process goes
// on.
//
// What shared memory cannot enforce, between processes that trust each other:
//
//   - A client that memory is lent to can read all of it, from the beginning to the end of the
//     connection and for as long as it keeps the mapping. Whom it is lent to Options.Lent says.
//   - A malicious server can read and write a whole arena, from the first grant in it to the end of
//     the connection, whatever the grant says. Put nothing into arenas that the server may not see.
//     Rights, ranges and Revoke are honoured by this package in the server.
//   - Revoke waits until no copy is under way. A server that is stopped (SIGSTOP) in the middle of
//     one is given Options.StallTimeout; then the connection is closed and Revoke returns, and what
//     is left of one chunk (256 KiB) may still be moved when that server goes on.
//   - A client can change what it sends while it is being received. The receiver gets the old or
//     the new bytes: each is copied once, before the application looks at it.
//   - A client that punches holes makes the server's account pay for the pages, up to what is
//     mapped, which Options bound.
//   - Uids are those of this user namespace. An abstract name can be taken by any process of the
//     host: a client looks at the listener's uid before it shows anything.
//
// # Who makes progress
//
// No goroutine in particular. A poster moves what can be moved. A waiter polls the rings of its
// endpoints, briefly, and then sleeps until a peer wakes it: on a futex in the segment (at most
// Options.Sleepers threads at once) or until a note comes through the socket. While nobody waits
// the goroutine that reads the socket serves the endpoint.
//
// Lock order: endpoint.rxMu, endpoint.mapMu, a grant's, arena.mu, endpoint.life, endpoint.lendMu,
// endpoint.mu, that of the receive queue, the completion queue's (package progress).
//
// Read this file first, then segment.go, frame.go and slot.go (what is shared, drawn in bytes),
// hello.go (what goes through the socket), ep.go (life and death), tx.go and rx.go (the rings),
// rma.go (direct access), lend.go (lent memory), cq.go and wake.go (sleeping).
package shm

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// Options of a domain. The zero value is good for processes of one user.
type Options struct {
	// Arenas is the memory that peers may access directly. Default nil: none; everything goes through
	// the rings.
	Arenas *Arenas

	// Lent is memory (NewLent) that listeners of this domain lend to peers who are root or this
	// process's own user: they can read all of it, and copy what is written to them from there. Nobody
	// else is lent anything. Default nil: nothing is.
	Lent *Arenas

	// ServerUIDs are users, besides root and this process's own, whose listeners may be dialled: they
	// may map this side's arenas. Default none.
	ServerUIDs []uint32

	// ClientUIDs are users, besides root and this process's own, who may dial listeners of this
	// domain. AnyClient lets every user dial: then Tokens should decide. Default none and false.
	ClientUIDs []uint32
	AnyClient  bool

	// Tokens, if not nil, makes listeners ask for a token, see fabric.Tokens. Default nil.
	Tokens *fabric.Tokens

	// MaxMessage, in bytes, is the largest Send. Default 1 MiB, at most 1 GiB.
	MaxMessage int

	// MaxTransfer, in bytes, is the largest Write or Read. Default and at most 1 GiB.
	MaxTransfer int

	// QueueDepth, in requests, is the largest SendDepth and RecvDepth. Default 4096, at most 16384.
	QueueDepth int

	// Ring, in bytes, is the size of each ring of a connection that is dialled from here: a power of
	// two from 16 KiB to 16 MiB. Default 256 KiB. A listener takes any.
	Ring int

	// Grants is how many grants of one dialled connection can be used directly at once; further ones
	// are used through the ring. Default 1024, at most 32768.
	Grants int

	// PeerArenas and PeerBytes bound what is mapped of one peer. Accesses to further arenas go
	// through the ring. Default 64 arenas and 64 GiB.
	PeerArenas int
	PeerBytes  int64

	// Sleepers is how many waiters may sleep on a futex at once, each of which holds a thread; the
	// others are woken through the socket. Default 8; negative: none.
	Sleepers int

	// HelloTimeout bounds how long a listener waits for a peer's hello. Default 5 s.
	HelloTimeout time.Duration

	// StallTimeout bounds how long Revoke and Close wait for a peer that stopped in the middle of
	// a copy; then that connection is closed. Default 10 s.
	StallTimeout time.Duration

	mutual    bool // tests: listeners export too, so that both directions are direct
	arenaOnly bool // tests: only arena memory may be used, so that suites use it
}

// Fixed limits. Both ends of every connection have the same ones.
const (
	maxSge        = 32
	maxInline     = 512
	maxQueueDepth = 16384
	maxTransfer   = 1 << 30
	ringMin       = 16 << 10
	ringMax       = 16 << 20
	grantsMax     = 32 << 10

	// packBelow was measured (mover.Tune) into a client's arena, on a host of two cores.
	packBelow = 2 << 10
)

func (o Options) withDefaults() Options {
	o.MaxMessage = cmp.Or(o.MaxMessage, 1<<20)
	o.MaxTransfer = cmp.Or(o.MaxTransfer, maxTransfer)
	o.QueueDepth = cmp.Or(o.QueueDepth, 4096)
	o.Ring = cmp.Or(o.Ring, 256<<10)
	o.Grants = cmp.Or(o.Grants, 1024)
	o.PeerArenas = cmp.Or(o.PeerArenas, 64)
	o.PeerBytes = cmp.Or(o.PeerBytes, 64<<30)
	o.Sleepers = cmp.Or(o.Sleepers, 8)
	o.HelloTimeout = cmp.Or(o.HelloTimeout, 5*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 10*time.Second)
	return o
}

func (o Options) validate() error {
	why := ""
	switch {
	case o.MaxMessage < 1 || o.MaxMessage > maxTransfer:
		why = "MaxMessage is out of range"
	case o.MaxTransfer < 1 || o.MaxTransfer > maxTransfer:
		why = "MaxTransfer is out of range"
	case o.QueueDepth < 1 || o.QueueDepth > maxQueueDepth:
		why = "QueueDepth is out of range"
	case o.Ring < ringMin || o.Ring > ringMax || o.Ring&(o.Ring-1) != 0:
		why = "Ring is out of range or no power of two"
	case o.Grants < 1 || o.Grants > grantsMax:
		why = "Grants is out of range"
	case o.PeerArenas < 0 || o.PeerBytes < 0 || o.HelloTimeout < 0 || o.StallTimeout < 0:
		why = "negative limit or time"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "shm.Open", "", "%s", why)
	}
	return nil
}

// domain owns the endpoints, listeners and grants of one Open.
type domain struct {
	provider.Domain
	opts     Options
	grants   provider.Grants[*endpoint]
	watchdog *progress.Watchdog[*progress.Queue]
	sleepers sleepers

	spinners progress.Spinners
	names    atomic.Uint64
}

// Open makes a domain.
func Open(opts Options) (fabric.Domain, error) { return open(opts) }

func open(opts Options) (*domain, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	d := &domain{opts: opts}
	d.Domain.Open(fabric.Caps{
		Provider: "shm", AnyMemory: !opts.arenaOnly, RegistersAny: !opts.arenaOnly,
		PackBelow: packBelow, MaxSge: maxSge,
		MaxMessage: opts.MaxMessage, MaxTransfer: opts.MaxTransfer, MaxInline: maxInline,
		QueueDepth: opts.QueueDepth, ReadDepth: provider.ReadDepth,
		SameHost: true, AsksToken: opts.Tokens != nil, PostMoves: true, AnyMemoryCopied: true,
	})
	d.grants.Withdraw = (*endpoint).closeSlot
	d.grants.Open()
	d.sleepers.open(opts.Sleepers)
	d.watchdog = progress.NewWatchdog[*progress.Queue]()
	d.Go(func() { d.watchdog.Run(d.Context()) })
	return d, nil
}

func (d *domain) Connector() fabric.Connector { return connector{d} }

func (d *domain) Register(mem []byte) (fabric.Region, error) {
	if err := d.Check("Register"); err != nil {
		return nil, err
	}
	r := &region{}
	d.grants.Register(&r.Region, &d.Domain, mem)
	if d.opts.Arenas != nil {
		r.arena, r.base = d.opts.Arenas.find(mem)
	}
	return r, nil
}

func (d *domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	if err := d.CheckQueue(opts); err != nil {
		return nil, err
	}
	return newCQ(d, opts), nil
}
