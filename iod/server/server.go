// Package server is an I/O server: it checks capabilities, lends cache buffers to transfers and
// moves the data between them and the clients' memory. One request runs on one goroutine from
// decoding to reply; the bytes of all requests together stay inside the cache's memory bound
// because each request reserves its share as a whole before it takes a buffer.
//
// It knows nothing of names or layouts, opens no store and no network: whoever starts it hands them
// in.
//
// Read server.go first (dispatch), then data.go (life of a read and a write at the server).
package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/budget"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// Config is what a server is made of. All fields but More, Clock and Logger are required.
type Config struct {
	ID      uint32             // of this server in the cluster
	StoreID uint64             // of its store, for Status
	Key     capability.Key     // this server's own, see capability.Key.ServerKey
	Store   stripe.Engine      // stays the caller's to close, after the server is down
	Cache   *unifier.Cache     // owner of all data memory, on top of Store
	More    func() []iod.Count // numbers of what it runs on, for Status; must not wait
	Clock   func() time.Time
	Logger  *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.ID == 0 || c.Store == nil || c.Cache == nil {
		return errs.Newf(errs.Invalid, "iod/server.New", "", "id, store and cache are required")
	}
	return nil
}

// Server is a msg.Handler. Safe for concurrent use.
type Server struct {
	cfg   Config
	start time.Time
	reads *budget.Budget // bytes of cache units lent to reads under way
	keys  *capability.Verifier
	works workPool
	count counters
}

// New makes a server. Start it with msg.Node.Serve.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// A read holds its units until its reply has left. What all reads together hold must leave room
	// for the drafts of writes and for fetching units, or the cache would wait for itself.
	lend := cfg.Cache.ReadShare()
	if lend < iod.TransferMax+2*int64(cfg.Cache.UnitBytes()) {
		return nil, errs.Newf(errs.Invalid, "iod/server.New", "",
			"cache too small: %d bytes to lend, one request may need %d; give it more memory",
			lend, iod.TransferMax)
	}
	return &Server{cfg: cfg, start: cfg.Clock(), reads: budget.New(lend),
		keys: capability.NewVerifier(cfg.Key)}, nil
}

// Serve carries out one request.
func (s *Server) Serve(ctx context.Context, c *msg.Call) {
	op := iod.Op(c.Header().Op)
	done := s.count.begin(op)
	err := s.serve(ctx, op, c)
	done(err)
	if err != nil {
		s.note(op, c, err)
		_ = c.Fail(err) // the connection's death has ended the call already
	}
}

// serve replies by itself when it succeeds and leaves the failing to Serve.
func (s *Server) serve(ctx context.Context, op iod.Op, c *msg.Call) error {
	if op == iod.OpStatus {
		return s.status(c)
	}
	w := s.works.get()
	defer s.works.put(w)
	if err := w.req.Decode(op, c.Header().Stamp, c.Body()); err != nil {
		return err
	}
	t, a := &w.req.Target, &w.req.Args
	if err := s.admit(op, t); err != nil {
		return err
	}
	switch op {
	case iod.OpRead:
		return s.read(ctx, c, w)
	case iod.OpWrite:
		return s.write(ctx, c, w)
	case iod.OpSync:
		return s.marked(c, w, s.cfg.Store.Sync(ctx, t.Object))
	case iod.OpPunch:
		return s.marked(c, w, s.punch(ctx, t, a))
	case iod.OpMap:
		return s.mapping(ctx, c, w)
	case iod.OpStat:
		return s.stat(ctx, c, w)
	case iod.OpTruncate:
		return s.marked(c, w, s.truncate(ctx, t, a))
	case iod.OpRemove:
		return s.marked(c, w, s.remove(ctx, t))
	case iod.OpFence:
		return s.marked(c, w, s.cfg.Store.SetMinGeneration(ctx, t.Object.File, t.Object.Gen))
	default:
		return errs.Newf(errs.Unsupported, "iod.Serve", "", "request %d", op)
	}
}

// note logs what an operator should know: failures of this side, not of the client's making.
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
	iod.AppendMark(&w.reply, iod.Mark{Verifier: s.cfg.Store.Verifier()})
	return ignoreDead(c.Reply(w.reply.B, 0))
}

// ignoreDead drops the error of a reply that found no connection: the call has ended with it, and
// there is nobody left to tell.
func ignoreDead(error) error { return nil }

func (s *Server) status(c *msg.Call) error {
	space, err := s.cfg.Store.Space()
	if err != nil {
		return err
	}
	st := iod.Status{
		ID: s.cfg.ID, StoreID: s.cfg.StoreID, Verifier: s.cfg.Store.Verifier(), Space: space,
		UptimeMs: uint64(s.cfg.Clock().Sub(s.start).Milliseconds()),
		Counts:   s.Counts(),
	}
	var e wire.Enc
	iod.AppendStatus(&e, &st)
	return ignoreDead(c.Reply(e.B, 0))
}
