package msg

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// SessionOptions say how a Session reaches its server.
type SessionOptions struct {
	// Get returns a live connection to the server: Pool.Get, say. Drop, if not nil, is told of a
	// connection on which a request failed with errs.TimedOut. Get is required.
	Get  func(ctx context.Context) (*Conn, error)
	Drop func(c *Conn)

	// ID tells the session from others of the server's clients. Default: random.
	ID uint64

	// Slots is how many requests may be under way at once. Default 16; the server's limit counts
	// too.
	Slots int

	// Backoff is the pause between attempts.
	Backoff Backoff
}

// Session makes requests that are executed at most once, and repeated until they are: when a
// connection breaks the request is sent again over the next one, and a server that has executed it
// answers from its record. What is recorded, and for how long, ReplayOptions say. Safe for
// concurrent use.
//
// The stamps of its requests get the session's id, slot and sequence; the other fields are the
// caller's. Reply data must be small enough to ride inline.
type Session struct {
	opts  SessionOptions
	slots chan *sessionSlot // those without a request; the one unused longest comes first

	opening chan struct{} // has room for the one who opens the session on a connection

	mu       sync.Mutex
	conn     *Conn  // where it was opened last
	verifier uint64 // of the server there
}

// sessionSlot carries one request at a time.
type sessionSlot struct {
	index uint16
	seq   uint32
	req   Request // the caller's, stamped
	try   sessionAttempt
}

// NewSession makes a session. It connects with its first request.
func NewSession(opts SessionOptions) (*Session, error) {
	opts.Slots, opts.ID = or(opts.Slots, 16), or(opts.ID, rand.Uint64()|1)
	if opts.Get == nil || opts.Slots < 1 || opts.Slots > 1<<16 {
		return nil, errs.Newf(errs.Invalid, "msg.SessionOptions", "", "no Get, or %d slots", opts.Slots)
	}
	opts.Backoff = opts.Backoff.withDefaults()
	s := &Session{
		opts: opts, slots: make(chan *sessionSlot, opts.Slots), opening: make(chan struct{}, 1),
	}
	for i := range opts.Slots {
		s.slots <- &sessionSlot{index: uint16(i)}
	}
	return s, nil
}

// ID is the session's.
func (s *Session) ID() uint64 { return s.opts.ID }

// Call is Conn.Call that repeats the request until it is answered or ctx ends. errs.MaybeDone says
// that it is not known whether the request was executed: the server was started again, or has
// forgotten the session, after it may have got it; or ctx ended while it may have it. Other
// errors are the server's own, or of before it was sent.
func (s *Session) Call(ctx context.Context, req *Request, rep *Reply) error {
	var slot *sessionSlot
	select {
	case slot = <-s.slots:
	case <-ctx.Done():
		return errs.New(errs.KindOf(ctx.Err()), "msg.Session", "", ctx.Err())
	}
	slot.seq++
	slot.req = *req
	slot.req.once = true
	st := &slot.req.Stamp
	st.Session, st.Slot, st.Seq = s.opts.ID, slot.index, slot.seq
	slot.try = sessionAttempt{s: s, req: &slot.req, rep: rep}
	err := slot.try.run(ctx)
	slot.req, slot.try = Request{}, sessionAttempt{}
	s.slots <- slot
	return err
}

// run repeats the request until its outcome is known or ctx ends.
func (a *sessionAttempt) run(ctx context.Context) error {
	for failures := 1; ; failures++ {
		over, err := a.try(ctx)
		if over {
			return err
		}
		if ctx.Err() == nil && sleep(ctx, a.s.opts.Backoff.wait(failures)) == nil {
			continue
		}
		if a.sent {
			return maybeDone(err)
		}
		return err
	}
}

func maybeDone(cause error) error {
	return errs.New(errs.MaybeDone, "msg.Session", "", cause)
}

// sessionAttempt is one request on its way through several connections.
type sessionAttempt struct {
	s        *Session
	req      *Request
	rep      *Reply
	sent     bool   // a server may have got it
	verifier uint64 // of the server that may have
}

// try sends the request once and tells whether its outcome is known.
func (a *sessionAttempt) try(ctx context.Context) (over bool, err error) {
	conn, err := a.s.opts.Get(ctx)
	if err != nil {
		return !Passing(ctx, err), err
	}
	verifier, err := a.s.open(ctx, conn)
	switch {
	case err != nil:
		return !Passing(ctx, err), err
	case a.sent && verifier != a.verifier:
		return true, maybeDone(errs.Newf(errs.Stale, "msg.Session", conn.name,
			"the server was started again"))
	}
	sent := a.sent
	a.sent, a.verifier = true, verifier
	err = conn.Call(ctx, a.req, a.rep)
	switch kind := errs.KindOf(err); {
	case a.rep.lost && err != nil:
		a.s.forget(conn)
		if a.sent = false; sent {
			return true, maybeDone(err)
		}
		return false, err // it was not executed, and will be opened again
	case kind == errs.TimedOut && a.s.opts.Drop != nil && ctx.Err() == nil:
		a.s.opts.Drop(conn)
		return false, err
	case kind == errs.Again || kind == errs.Shutdown:
		// Nothing was done, now; but an earlier attempt may have been.
		a.sent = sent
		return false, err
	}
	return !undone(errs.KindOf(err)), err
}

// open makes the session known to the server of a connection, once per connection.
func (s *Session) open(ctx context.Context, conn *Conn) (verifier uint64, err error) {
	if verifier, ok := s.openOn(conn); ok {
		return verifier, nil
	}
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return 0, errs.New(errs.KindOf(ctx.Err()), "msg.Session", conn.name, ctx.Err())
	}
	defer func() { <-s.opening }()
	if verifier, ok := s.openOn(conn); ok {
		return verifier, nil
	}
	var rep Reply
	req := Request{ask: askSession, Stamp: wire.Stamp{Session: s.opts.ID}}
	if err := conn.Call(ctx, &req, &rep); err != nil {
		return 0, err
	}
	verifier, slots, err := decodeSession(rep.Body)
	if err != nil {
		return 0, err
	}
	if slots < s.opts.Slots {
		return 0, errs.Newf(errs.Invalid, "msg.Session", conn.name, "%d slots, the server keeps %d",
			s.opts.Slots, slots)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.verifier = conn, verifier
	return verifier, nil
}

// openOn tells whether the session is known at the server of a connection.
func (s *Session) openOn(conn *Conn) (verifier uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verifier, s.conn == conn
}

// decodeSession reads the answer to askSession, see replay.appendSession.
func decodeSession(body []byte) (verifier uint64, slots int, err error) {
	d := wire.NewDec(body)
	verifier, slots = d.U64(), int(d.U16())
	d.U16()
	if d.Err() != nil || len(d.Rest()) != 0 || verifier == 0 {
		return 0, 0, errs.Newf(errs.Protocol, "msg.Session", "", "an answer that makes no sense")
	}
	return verifier, slots, nil
}

// forget makes the session be opened again.
func (s *Session) forget(conn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
	}
}

// Verifier tells one server process from the next: it changes when the server was started again.
// 0 before the first request.
func (s *Session) Verifier() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verifier
}
