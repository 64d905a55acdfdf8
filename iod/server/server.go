// Package server is an I/O server: it checks capabilities, lends cache buffers to transfers and
// moves the data between them and the clients' memory. One request runs on one goroutine from
// decoding to reply and allocates nothing.
//
// The manager schedules requests: it looks into the cache first, so that a request that needs no
// disk does not wait for one. Higher service levels go first, clients of one level share by bytes,
// and no client can take all of the memory or of the disk's queue.
//
// Modes are coherent with each other: a direct request sees what was written through the cache, and
// later requests through the cache see what was written directly.
//
// It knows nothing of names or layouts, and opens no store and no network: they are in its Config,
// or passed to msg.
//
// Read server.go first (dispatch), then read.go and write.go (life of a request), direct.go (past
// the cache), manager.go (scheduling, by internal/gate), admit.go (capabilities), space.go,
// states.go.
package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// Config is what a server is made of. Required are ID, Key, Store and Cache.
type Config struct {
	ID      uint32             // of this server in the cluster
	StoreID uint64             // of its store, for Status
	Life    uint32             // of this start, if the store is gone with the process; else 0
	Key     capability.Keys    // this server's own; they may change, see capability.Keyring
	Store   stripe.Engine      // the caller closes it, after the server
	Cache   *unifier.Cache     // owner of all data memory, on top of Store
	Limits  Limits             // zero: defaults
	Direct  relay.Options      // of direct requests; the server sets disk, room and place
	More    func() []iod.Count // further counters, for Status; must not block

	// WriteBack says that the cache acknowledges volatile writes before the store has them: then
	// clients see every start of the server, and send again what may be lost.
	WriteBack bool

	Clock  func() time.Time
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Key == nil {
		c.Key = capability.Key{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	if c.Direct.ChunkBytes == 0 {
		c.Direct.ChunkBytes = 128 << 10
	}
	if c.Direct.WindowBytes == 0 {
		c.Direct.WindowBytes = 1 << 20
	}
	return c
}

func (c Config) validate() error {
	if c.ID == 0 || c.Store == nil || c.Cache == nil {
		return errs.Newf(errs.Invalid, "iod/server.New", "", "id, store and cache are required")
	}
	return c.Limits.validate()
}

// Server is a msg.Handler. Safe for concurrent use.
type Server struct {
	cfg     Config
	start   time.Time
	boot    uint64 // of this start
	keys    *capability.Verifier
	manage  *manager
	mover   mover
	fences  fences
	writers writers
	works   workPool
	count   counters
	clocks  clocks
	seen    *activity.Recorder
	maxFile atomic.Uint64 // see MaxFile
}

// New makes a server. Start it with msg.Node.Serve.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// A read holds its units until its reply has left. What all reads together hold must leave room
	// for the drafts of writes and for fetching units, or requests would deadlock.
	lend := cfg.Cache.ReadShare()
	if lend < iod.TransferMax+2*int64(cfg.Cache.UnitBytes()) {
		return nil, errs.Newf(errs.Invalid, "iod/server.New", "",
			"cache too small: %d bytes to lend, one request may need %d; give it more memory",
			lend, iod.TransferMax)
	}
	s := &Server{cfg: cfg, start: cfg.Clock(), boot: rand.Uint64(), seen: newRecorder(),
		keys: capability.NewVerifier(cfg.Key)}
	s.writers.least = cfg.Store.MinEpoch
	s.cfg.Store.NewLife() // what an earlier server on this store had acknowledged may be lost
	if err := s.findMaxFile(); err != nil {
		return nil, err
	}
	s.manage = newManager(cfg.Limits, cfg.Cache.Shares())
	return s, nil
}

// QuickAt is for msg.ServeOptions: small reads, which copy a little out of the cache unless they
// have to wait for the disk. Several that have come together are answered together.
func QuickAt(op uint16, level msg.Level) bool { return iod.Op(op) == iod.OpRead && level > 0 }

// Serve carries out one request.
func (s *Server) Serve(ctx context.Context, c *msg.Call) {
	op := iod.Op(c.Header().Op)
	s.count.begin(op)
	w := s.works.get(s)
	w.op = op
	w.time.begin(s.seen.Base())
	w.time.live = s.seen.Begin(int(op), w.time.since)
	err := s.serve(ctx, op, c, w)
	if err == errSent {
		return
	}
	if err != nil {
		s.note(op, c, err)
		_ = c.Fail(err) // the connection's death has ended the call already
	}
	s.end(w, err)
}

// errSent says that a request's data is on its way, and that the request ends when it has left.
var errSent = errs.New(errs.Again, "iod.Serve", "the data is being sent", nil)

// end gives back what a request holds.
func (s *Server) end(w *work, err error) {
	if w.loan != nil {
		w.loan.Release()
		w.loan = nil
	}
	if w.room != nil {
		w.room.Leave(&w.memory)
		w.room = nil
	}
	s.clocks.end(w.op, &w.time)
	w.time.end(w, err)
	s.works.put(w)
	s.count.end(err)
}

// serve replies when it succeeds; Serve replies to errors.
func (s *Server) serve(ctx context.Context, op iod.Op, c *msg.Call, w *work) error {
	if op == iod.OpStatus {
		return s.status(c)
	}
	if err := w.req.Decode(op, c.Header().Stamp, c.Body()); err != nil {
		return err
	}
	t := &w.req.Target
	t.Stamp.Life, w.mark = w.req.Args.Again, iod.Mark{}
	if err := s.admit(ctx, op, t); err != nil {
		return err
	}
	s.noteFile(op, t.Object.File)
	w.who = gate.Client{Kind: bySession, ID: t.Stamp.Session}
	if w.who.ID == 0 {
		w.who = gate.Client{Kind: byPeer, ID: c.Peer().Identity}
	}
	w.time.live.Of(t.Stamp.Session, t.Object.File)
	switch op {
	case iod.OpRead:
		return s.read(ctx, c, w)
	case iod.OpWrite, iod.OpPunch:
		return s.once(ctx, c, w, op)
	case iod.OpSync, iod.OpTruncate, iod.OpRemove, iod.OpFence:
		return s.change(ctx, c, w, op)
	}
	c.Waits() // the store may have to read
	switch op {
	case iod.OpReserve:
		return s.reserve(ctx, c, w)
	case iod.OpMap:
		return s.mapping(ctx, c, w)
	case iod.OpStat:
		return s.stat(ctx, c, w)
	case iod.OpList:
		return s.list(ctx, c, w)
	default:
		return errs.Newf(errs.Unsupported, "iod.Serve", "", "request %d", op)
	}
}

// once carries out a change. A numbered one does not run at the same time as another of its slot.
func (s *Server) once(ctx context.Context, c *msg.Call, w *work, op iod.Op) error {
	st := w.req.Target.Stamp
	if err := s.manage.slots.take("iod.Serve", st); err != nil {
		s.count.busySlots.Add(1)
		return err
	}
	w.slot = true
	defer s.freeSlot(w)
	w.mark = s.mark() // taken before: if the change is lost later the verifier has changed
	if op == iod.OpPunch {
		return s.change(ctx, c, w, op)
	}
	return s.write(ctx, c, w)
}

// freeSlot frees the slot that once took. It comes before the reply, after which the client may
// send the next request.
func (s *Server) freeSlot(w *work) {
	if w.slot {
		w.slot = false
		s.manage.slots.give(w.req.Target.Stamp)
	}
}

// note logs failures of this side, not of the client.
func (s *Server) note(op iod.Op, c *msg.Call, err error) {
	switch errs.KindOf(err) {
	case errs.IO, errs.Corrupt, errs.NoSpace, errs.Forged, errs.Protocol:
		s.cfg.Logger.Warn("request failed", "op", op, "request", c.Header().RequestID, "err", err)
	}
}

// marked ends a call whose reply is a Mark.
func (s *Server) marked(c *msg.Call, w *work, err error) error {
	if err != nil {
		return err
	}
	s.freeSlot(w)
	mark := w.mark
	if mark == (iod.Mark{}) {
		mark = s.mark()
	}
	iod.AppendMark(&w.reply, mark)
	return ignoreDead(c.Reply(w.reply.B, 0))
}

// mark returns the verifier and life of the server's volatile state. Where the store has every
// acknowledged write they are the store's; where the cache has some the verifier changes with the
// process, and when writes were lost. The life is read first: one that is older than the verifier
// does no harm.
func (s *Server) mark() iod.Mark {
	m := iod.Mark{Life: s.cfg.Store.Life()}
	if !s.cfg.WriteBack {
		m.Verifier = s.cfg.Store.Verifier()
		return m
	}
	const odd = 0x9e3779b97f4a7c15 // different counts of losses give different verifiers
	m.Verifier = s.boot + odd*s.cfg.Cache.Losses()
	return m
}

// ignoreDead drops the error of a reply on a dead connection: the call has ended with it.
func ignoreDead(error) error { return nil }

func (s *Server) status(c *msg.Call) error {
	space, err := s.cfg.Store.Space()
	if err != nil {
		return err
	}
	st := iod.Status{
		ID: s.cfg.ID, StoreID: s.cfg.StoreID, Verifier: s.mark().Verifier, Space: space,
		UptimeMs: uint64(s.cfg.Clock().Sub(s.start).Milliseconds()),
		Counts:   s.Counts(),
	}
	var e wire.Enc
	iod.AppendStatus(&e, &st)
	return ignoreDead(c.Reply(e.B, 0))
}
