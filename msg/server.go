package msg

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/gate"
)

// Server accepts connections and runs a handler for their requests. Safe for concurrent use.
type Server struct {
	node    *Node
	opts    ServeOptions
	handler Handler
	ports   []port
	counts  counts

	work      chan job // to a worker that has nothing to do
	idle      atomic.Int32
	workers   sync.WaitGroup
	accepting sync.WaitGroup

	calls    *gate.Gate   // the server's admission; nil where the handlers have one
	here     atomic.Int64 // calls that run or wait
	serial   atomic.Uint64
	draining atomic.Bool

	drainOnce sync.Once
	drained   chan struct{} // closed when draining and no call is here
	closed    chan struct{} // closed when everything is gone

	mu    sync.Mutex
	conns map[*serverConn]struct{}
}

// Place is an address of one provider.
type Place struct {
	Domain fabric.Domain // one of the node's; nil: Options.Domain
	Addr   string        // as the provider takes it
}

// port is a place where a server listens.
type port struct {
	rung     *rung
	listener fabric.Listener
}

type counts struct {
	calls, failed, canceled, panics, pulled, pushed, oneWay atomic.Uint64
}

// ServerStats are a server's counters and its state at one moment.
type ServerStats struct {
	Conns    int    // connections
	Running  int    // calls in handlers
	Queued   int    // calls that wait because MaxCalls run
	Calls    uint64 // calls so far
	Failed   uint64 // of these, answered with an error
	Canceled uint64 // given up by the client while they were here
	OneWay   uint64 // messages that nobody waits for an answer to
	Panics   uint64 // of handlers
	BytesIn  uint64 // pulled
	BytesOut uint64 // pushed
}

// Serve starts to answer requests with h, at an address of the node's Domain.
func (n *Node) Serve(addr string, h Handler, opts ServeOptions) (*Server, error) {
	return n.ServeAt([]Place{{Addr: addr}}, h, opts)
}

// ServeAt is Serve at several places, of several providers.
func (n *Node) ServeAt(places []Place, h Handler, opts ServeOptions) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	ports, err := n.listen(places)
	if err != nil {
		return nil, err
	}
	s := &Server{
		node: n, opts: opts, handler: h, ports: ports, work: make(chan job),
		conns:   map[*serverConn]struct{}{},
		drained: make(chan struct{}), closed: make(chan struct{}),
	}
	if opts.MaxCalls > 0 {
		s.calls = gate.New(gate.Options{Name: "calls", Count: opts.MaxCalls, Turns: true,
			Age: n.opts.Age})
	}
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.servers[s] = struct{}{}
	}
	n.mu.Unlock()
	if closed {
		closePorts(ports)
		return nil, errs.New(errs.Closed, "msg.Serve", s.Addr(), nil)
	}
	for _, p := range ports {
		s.accepting.Add(1)
		go s.accept(p)
	}
	return s, nil
}

// Stats tells what the server does and has done.
func (s *Server) Stats() ServerStats {
	queued := 0
	if s.calls != nil {
		queued = s.calls.Usage().Waiting
	}
	running := max(int(s.here.Load())-queued, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	return ServerStats{
		Conns: len(s.conns), Running: running, Queued: queued,
		Calls: c.calls.Load(), Failed: c.failed.Load(), Canceled: c.canceled.Load(),
		OneWay: c.oneWay.Load(), Panics: c.panics.Load(),
		BytesIn: c.pulled.Load(), BytesOut: c.pushed.Load(),
	}
}

// Via counts the server's connections by provider.
func (s *Server) Via() map[string]int {
	via := map[string]int{}
	for _, p := range s.ports {
		via[p.rung.caps.Provider] = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		via[c.rung.caps.Provider]++
	}
	return via
}

func (s *Server) forget(ss *serverConn) {
	s.mu.Lock()
	delete(s.conns, ss)
	s.mu.Unlock()
}

// admit lets a call run, counts it, and tells so. When it is false the call was refused, or waits
// while MaxCalls run.
func (s *Server) admit(c *Call) bool {
	s.counts.calls.Add(1)
	s.here.Add(1)
	if s.draining.Load() {
		c.refuse(errs.New(errs.Shutdown, "msg.Serve", s.Addr(), nil))
		return false
	}
	if s.calls == nil {
		return true
	}
	r := gate.Request{Client: gate.Client{ID: c.s.id}, Level: c.level}
	if s.calls.TryEnter(&c.ticket, r) {
		return true
	}
	c.ctx.Fix(time.Time{}) // the time that it waits is the request's
	in, err := s.calls.Queue(&c.ticket, r)
	if err != nil {
		c.refuse(err)
	}
	return in
}

// admitted is told that a call that has waited may run, or why not. It is called under the gate's
// lock.
func (c *Call) admitted(err error) { c.s.srv.spawn(job{call: c, refused: err}) }

// dispatch gives a call to a worker. It does not block.
func (s *Server) dispatch(c *Call) {
	if s.admit(c) {
		s.spawn(job{call: c})
	}
}

// job is what a worker does: serve a call, refuse it, or poll a connection.
type job struct {
	call    *Call
	refused error
	poll    *serverConn
}

// spawn finds an idle worker for a job, or makes one.
func (s *Server) spawn(j job) {
	select {
	case s.work <- j:
	default:
		s.workers.Add(1)
		go s.worker(j)
	}
}

func (s *Server) worker(j job) {
	defer s.workers.Done()
	for ok := true; ok; {
		switch {
		case j.poll != nil:
			j.poll.pollHere()
		case j.refused != nil:
			j.call.refuse(j.refused)
		default:
			s.run(j.call)
		}
		ok = false
		if s.idle.Add(1) <= int32(s.opts.IdleWorkers) {
			j, ok = <-s.work
		}
		s.idle.Add(-1)
	}
}

// refuse answers a call that no handler sees.
func (c *Call) refuse(err error) {
	_ = c.Fail(err) // nothing was pushed: it does not wait
	c.over()
}

// over ends a call that no handler has.
func (c *Call) over() {
	s := c.s.srv
	c.ctx.End(context.Canceled)
	c.unhold()
	if s.here.Add(-1) == 0 && s.draining.Load() {
		s.setDrained()
	}
}

// run serves a call that was admitted. Whatever the handler does, the call is answered and its
// context ends.
func (s *Server) run(c *Call) {
	err := c.ctx.Ended() // it may have waited
	if err == nil {
		err = c.decode()
	}
	if err != nil {
		_ = c.Fail(err)
	} else {
		s.handle(c)
	}
	if s.calls != nil {
		s.calls.Leave(&c.ticket)
	}
	c.over()
}

// handle runs the handler.
func (s *Server) handle(c *Call) {
	if c.OneWay() {
		s.counts.oneWay.Add(1)
	}
	defer func() {
		if p := recover(); p != nil {
			s.counts.panics.Add(1)
			s.node.opts.Logger.Error("handler panicked", "op", c.header.Op, "panic", p,
				"stack", string(debug.Stack()))
			if !c.ended.Load() {
				_ = c.Fail(errs.Newf(errs.IO, "msg.Serve", "", "the handler panicked"))
			}
			c.s.fail(errs.Newf(errs.IO, "msg.Serve", c.s.name, "the handler panicked"))
		}
	}()
	c.handler.Serve(c.ctx, c)
	if !c.ended.Load() {
		s.node.opts.Logger.Error("handler did not answer", "op", c.header.Op)
		_ = c.Fail(errs.Newf(errs.IO, "msg.Serve", "", "the handler did not answer"))
	}
}

// setDrained tells Close that no call is left.
func (s *Server) setDrained() { s.drainOnce.Do(func() { close(s.drained) }) }

// Close drains the server: it refuses new connections and requests (errs.Shutdown), waits for
// the calls in handlers until ctx ends, then closes the connections. When ctx ended first the
// handlers' contexts have ended too and Close returns its error; it waits a second more for
// the handlers to notice.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining.Swap(true)
	conns := s.connsLocked()
	s.mu.Unlock()
	if first {
		closePorts(s.ports)
		for _, ss := range conns {
			ss.goodbye()
		}
		if s.calls != nil {
			s.calls.Close(errs.New(errs.Shutdown, "msg.Serve", s.Addr(), nil))
		}
	}
	if s.here.Load() == 0 {
		s.setDrained()
	}
	var err error
	select {
	case <-s.drained:
	case <-ctx.Done():
		err = errs.Wrap("msg.Close", s.Addr(), ctx.Err())
	}
	if first {
		go s.dismantle(err == nil)
	}
	if err == nil {
		<-s.closed
		return nil
	}
	select {
	case <-s.closed:
	case <-time.After(time.Second):
	}
	return err
}

func (s *Server) connsLocked() []*serverConn {
	all := make([]*serverConn, 0, len(s.conns))
	for ss := range s.conns {
		all = append(all, ss)
	}
	return all
}

// dismantle ends what is left after draining and waits for all goroutines. When there was
// time to drain, the last replies reach their clients before the connections end.
func (s *Server) dismantle(drained bool) {
	s.accepting.Wait()
	s.mu.Lock()
	conns := s.connsLocked()
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, ss := range conns {
		leaving.Add(1)
		go func() {
			defer leaving.Done()
			if drained {
				ss.farewell()
			} else {
				ss.endCalls()
			}
			ss.fail(errs.New(errs.Closed, "msg.Close", ss.name, nil))
		}()
	}
	leaving.Wait()
	for _, ss := range conns {
		<-ss.gone
	}
	<-s.drained
	close(s.work)
	s.workers.Wait()
	s.node.mu.Lock()
	delete(s.node.servers, s)
	s.node.mu.Unlock()
	close(s.closed)
}
