// Package server puts a meta.Service on the network: it decodes requests of package msg, asks the
// service and encodes answers, and counts what it does.
//
// It keeps no state of the file system and decides nothing: sessions, permissions and repetitions
// are the service's, and rights of clients are package guard's, which every request of a client
// passes. Whoever else can connect can name any user: who may connect is decided by the transport.
//
// Read server.go first, then dispatch.go for the operations.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/guard"
	"github.com/sluice-storage/sluice/meta/internal/bulk"
	"github.com/sluice-storage/sluice/msg"
)

// Options of a Server.
type Options struct {
	// Node is what serves the requests. Required.
	Node *msg.Node

	// Log is told of answers that could not be delivered, and of clients that are refused. Default:
	// nobody.
	Log *slog.Logger

	// RightsFresh is for how long the rights of a client are believed before they are looked up again.
	// Default 1 s.
	RightsFresh time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	if o.Node == nil {
		return errs.Newf(errs.Invalid, "server.New", "", "Node is required")
	}
	return nil
}

// Server is a msg.Handler around a service.
type Server struct {
	service meta.Service
	sentry  meta.Sentry // nil: everybody is let in
	guard   *guard.Guard
	opt     Options
	seen    *activity.Recorder
	mapped  mapped // nil: the service has no map
}

// mapped is a service that knows the cluster's map. Every answer tells its version.
type mapped interface{ MapVersion() uint64 }

var _ msg.Handler = (*Server)(nil)

// New makes a handler for msg.Node.Serve. The service stays the caller's.
func New(service meta.Service, opt Options) (*Server, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Server{service: service, opt: opt, seen: newRecorder(),
		guard: guard.New(service, guard.Options{Fresh: opt.RightsFresh, Log: opt.Log})}
	s.sentry, _ = service.(meta.Sentry)
	s.mapped, _ = service.(mapped)
	return s, nil
}

// Quick is for msg.ServeOptions: operations that read a few records, and nothing else unless they
// have to wait for others.
func Quick(op uint16) bool {
	switch meta.Op(op) {
	case meta.OpLookup, meta.OpGetAttr, meta.OpFind, meta.OpReadLink, meta.OpGetXattr,
		meta.OpListXattr, meta.OpReadSmall, meta.OpKeepAlive, meta.OpTime:
		return true
	}
	return false
}

// task is a request and its answer. They are large, and most of them empty: tasks are used again.
type task struct {
	args    meta.Args
	result  meta.Result
	content []byte // of the answer, behind the byte that says where it is
	watch   watch
}

var tasks = sync.Pool{New: func() any { return new(task) }}

// keepBytes is how large an answer may be whose buffer is kept.
const keepBytes = 16 << 10

func (t *task) release() {
	t.args, t.result = meta.Args{}, meta.Result{}
	if cap(t.content) > keepBytes {
		t.content = nil
	}
	tasks.Put(t)
}

// Serve implements msg.Handler.
func (s *Server) Serve(ctx context.Context, c *msg.Call) {
	op := meta.Op(c.Header().Op)
	t := tasks.Get().(*task)
	defer t.release()
	t.watch.begin(ctx, s, op, c)
	err := s.work(ctx, op, c, t)
	t.watch.end(t, err)
	if s.mapped != nil {
		c.SetMap(s.mapped.MapVersion())
	}
	switch {
	case err == nil:
		s.reply(ctx, op, c, t.content)
	case errs.KindOf(err) == errs.Canceled:
		// Either the client gave up and does not listen, or this server ends and the client should
		// come back: it did not cancel anything.
		s.delivered(op, c.Fail(errs.New(errs.Shutdown, "meta.Serve", op.String(), err)))
	default:
		s.delivered(op, c.Fail(err))
	}
}

// work does what a request asks for and encodes the answer.
func (s *Server) work(ctx context.Context, op meta.Op, c *msg.Call, t *task) error {
	body, out, err := s.request(ctx, c)
	defer out.Free()
	if err != nil {
		return err
	}
	if err := t.args.Decode(op, body); err != nil {
		return err
	}
	if ctx, err = s.admit(ctx, c.Peer(), &t.args); err != nil {
		return err
	}
	t.watch.live.Of(cmp.Or(t.args.Caller.Session, t.args.Session), object(&t.args))
	if op == meta.OpAwaitLocks || op == meta.OpAwaitVolume {
		c.Park() // it waits for what other requests do
	}
	room := max(int(c.InLen()), c.MaxReply()-1)
	if err := s.guarded(ctx, op, &t.args, room, &t.result); err != nil {
		return err
	}
	t.content = t.content[:0]
	if op == meta.OpScan { // large: it need not grow bit by bit
		t.content = slices.Grow(t.content, 1+t.result.Scanned.Size())
	}
	t.content = t.result.Append(op, append(t.content, bulk.InBody))
	return nil
}

// guarded is dispatch for whoever it is: what clients ask for, and are told, is held against their
// rights. For all others that costs nothing.
func (s *Server) guarded(ctx context.Context, op meta.Op, a *meta.Args, room int,
	r *meta.Result) error {

	if a.Caller.Peer.Kind != identity.Client {
		return s.dispatch(ctx, op, a, room, r)
	}
	pass, err := s.guard.Begin(ctx, op, a)
	if err == nil {
		err = pass.End(ctx, r, s.dispatch(ctx, op, a, room, r))
	}
	return err
}

// Refused tells how often clients were refused what their rights do not allow, and why.
func (s *Server) Refused() []guard.Count { return s.guard.Counts() }

// request finds the content of a request, fetching it if it is not in the body.
func (s *Server) request(ctx context.Context, c *msg.Call) ([]byte, *bulk.Memory, error) {
	body := c.Body()
	switch {
	case len(body) > 0 && body[0] == bulk.InBody:
		return body[1:], nil, nil
	case len(body) != 1 || body[0] != bulk.InSegment || c.OutLen() > bulk.Max || c.OutLen() == 0:
		return nil, nil, errs.Newf(errs.Protocol, "meta.Serve", "", "the request has no content")
	}
	out, err := bulk.New(s.opt.Node, c, int(c.OutLen()))
	if err != nil {
		return nil, nil, err
	}
	if err := c.Pull(ctx, 0, []fabric.Sge{out.Sge}); err != nil {
		return nil, out, err
	}
	return out.Bytes(), out, nil
}

// reply sends content, which begins with the byte that says where it is, by the way that it fits.
func (s *Server) reply(ctx context.Context, op meta.Op, c *msg.Call, content []byte) {
	n := len(content) - 1
	switch {
	case len(content) <= c.MaxReply():
		s.delivered(op, c.Reply(content, 0))
	case int64(n) <= c.InLen():
		in, err := bulk.Of(s.opt.Node, c, content[1:])
		if err == nil {
			err = c.Push(ctx, 0, []fabric.Sge{in.Sge})
		}
		if err != nil {
			s.delivered(op, c.Fail(err))
		} else {
			s.delivered(op, c.Reply([]byte{bulk.InSegment}, int64(n)))
		}
		in.Free()
	case n > bulk.Max:
		s.delivered(op, c.Fail(errs.Newf(errs.TooBig, "meta.Serve", op.String(),
			"an answer of %d bytes, at most %d", n, bulk.Max)))
	default:
		s.delivered(op, c.Reply(bulk.Need(n), 0))
	}
}

func (s *Server) delivered(op meta.Op, err error) {
	if err != nil {
		s.opt.Log.Debug("answer not delivered", "op", op.String(), "error", err)
	}
}
