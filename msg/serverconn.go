package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/wire"
)

func newServerConn(srv *Server, r *rung, ep fabric.Endpoint, cfg *fabric.EndpointConfig) (
	*serverConn, error,
) {
	n := cfg.RecvDepth - controlReserve
	l, err := newLink(srv.node, r, ep, cfg, 2*n+controlReserve)
	if err != nil {
		return nil, err
	}
	s := &serverConn{link: l, srv: srv, calls: make([]Call, 2*n), lastMoved: time.Now(),
		carried: srv.carried[r]}
	s.carried.accepted.Add(1)
	s.id = srv.serial.Add(1)
	s.places = gate.New(gate.Options{Name: "send queue", Bytes: bulkDepth, Age: srv.node.opts.Age})
	l.aliveBuf = len(s.calls) + maxCancels + 2
	for i := range s.calls {
		c := &s.calls[len(s.calls)-1-i]
		c.s, c.index, c.ctx = s, len(s.calls)-1-i, &wait.Context{}
		c.replied = wait.NewCount()
		c.ticket.Later = c.admitted
		s.free = append(s.free, c)
	}
	s.ops = make([]op, bulkDepth+len(s.calls)+1) // each holds a place or a call; one for flushReplies
	for i := range s.ops {
		s.idleOps = append(s.idleOps, int32(i))
	}
	l.role = s
	l.duty.Open(l.node.watchdog, s.standby, s.pressing)
	return s, nil
}

func (s *serverConn) received(p *poller, buf int, body, inline []byte) {
	h := &p.header
	switch {
	case h.Kind == wire.KindRequest:
		s.arrived(p, &arrival{recv: buf, header: *h, body: body, inline: inline})
	case h.Kind == wire.KindControl && h.Op == opCancel:
		s.cancel(buf, h.RequestID)
	case h.Kind == wire.KindControl && s.alivePing(buf, h):
	case h.Kind == wire.KindControl && h.Op == opWant:
		s.want(buf, h)
	case h.Kind == wire.KindControl && h.Op == opBack:
		s.back(buf, h.RequestID)
	default:
		s.unexpected(h)
	}
}

// arrived gives a request a call, or queues it.
func (s *serverConn) arrived(p *poller, a *arrival) {
	if s.enter() != nil {
		return
	}
	s.mu.Lock()
	last := len(s.free) - 1
	if last < 0 {
		a.waited = time.Now()
		s.deferred = append(s.deferred, *a)
		s.mu.Unlock()
		return
	}
	c := s.free[last]
	s.free = s.free[:last]
	s.beginLocked(c, a)
	s.mu.Unlock()
	switch {
	case c.isQuick():
		p.quick = append(p.quick, c)
	case p.run != nil:
		s.srv.dispatch(p.run)
		fallthrough
	default:
		p.run = c
	}
}

// dispatchAll gives what a batch has brought to workers.
func (s *serverConn) dispatchAll(p *poller) {
	for _, c := range p.quick {
		s.srv.dispatch(c)
	}
	clear(p.quick)
	p.quick = p.quick[:0]
	if p.run != nil {
		s.srv.dispatch(p.run)
		p.run = nil
	}
}

// cancel ends the context of a call that the client has canceled, also while it waits, and
// acknowledges.
func (s *serverConn) cancel(buf int, id uint64) {
	s.mu.Lock()
	s.early[s.slotOf(id)] = id
	for i := range s.calls {
		if c := &s.calls[i]; c.active && c.header.RequestID == id {
			s.srv.counts.canceled.Add(1)
			c.ctx.End(context.Canceled)
		}
	}
	for i := range s.deferred {
		if a := &s.deferred[i]; a.header.RequestID == id {
			a.canceled = true
		}
	}
	ack := s.bufs.Send(len(s.calls) + s.acks)
	s.acks = (s.acks + 1) % maxCancels
	s.mu.Unlock()
	s.repost(buf)
	_ = s.sendControl(ack, opAck, id) // a failure has ended the link
}

// goodbye asks the client to send no new requests.
func (s *serverConn) goodbye() {
	if s.enter() != nil {
		return
	}
	defer s.leave()
	_ = s.sendControl(s.bufs.Send(len(s.calls)+maxCancels), opGoodbye, 0)
}

// flushReplies sends a second goodbye and waits until it, and every reply before it, has left. If
// the peer does not take it the sweep ends the link.
func (s *serverConn) flushReplies() {
	if s.enter() != nil {
		return
	}
	defer s.leave()
	h := wire.Header{Kind: wire.KindControl, Op: opGoodbye}
	w := wait.NewCount()
	w.Add(1)
	p := &parcel{}
	p.pieces[0] = fabric.Sge{
		Reg: s.bufs.Region(), Buf: h.Append(s.bufs.Send(len(s.calls) + maxCancels + 1)[:0]),
	}
	context := s.startOp(op{left: 1, wait: w})
	if err := s.send(p, fabric.FlagSignaled, context); err != nil {
		s.dropOp(context)
		return
	}
	s.duty.EnsurePolling()
	_ = w.Wait()
}

func (s *serverConn) completed(comp *fabric.Completion) {
	i := int(comp.Context & 0xffff)
	switch comp.Context & kindMask {
	case kindOp:
		s.opDone(i, 1, comp.Err)
	case kindWrite:
		if comp.Err != nil {
			s.calls[i].writeFailed(uint32(comp.Context>>16), comp.Err)
		}
	}
	if comp.Err != nil && errs.KindOf(comp.Err) != errs.Perm {
		s.fail(comp.Err)
	}
}

func (s *serverConn) died(err error) {
	s.places.Close(err)
	s.endCalls()
}

// endCalls ends the contexts of all calls.
func (s *serverConn) endCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.calls {
		if c := &s.calls[i]; c.active {
			c.ctx.End(context.Canceled)
		}
	}
}

// flushed ends everything that waits for a completion that was dropped with the queue, and drops
// the requests that still wait for a call.
func (s *serverConn) flushed(err error) {
	for i := range s.ops {
		s.opDone(i, allLeft, err)
	}
	s.mu.Lock()
	waiting := len(s.deferred)
	s.deferred = nil
	s.mu.Unlock()
	for range waiting {
		s.leave()
	}
}

func (s *serverConn) released() {
	s.closeSlots()
	s.node.forget(s)
	s.srv.forget(s)
}

// sweep fails the connection when work is outstanding and nothing has completed for PeerTimeout.
func (s *serverConn) sweep(now time.Time) {
	moves := s.moves.Load()
	s.mu.Lock()
	if s.busyOps == 0 || moves != s.lastMoves {
		s.lastMoves, s.lastMoved = moves, now
	}
	stuck := now.Sub(s.lastMoved) > s.node.opts.PeerTimeout
	s.mu.Unlock()
	if s.enter() != nil {
		return
	}
	defer s.leave()
	s.keepAlive(now)
	s.sweepSlots(now)
	if stuck {
		s.node.silent.Warn(s.peerAddr, "peer is stuck: it takes no data", "link", s.name)
		s.fail(errs.Newf(errs.TimedOut, "msg", s.name, "the peer moved nothing for %v",
			s.node.opts.PeerTimeout))
	}
}
