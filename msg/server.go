package msg

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
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

	mu       sync.Mutex
	conns    map[*serverConn]struct{}
	running  int // calls that a worker has
	queue    unexpected
	draining bool
	drained  chan struct{} // closed when draining and nothing runs
	closed   chan struct{} // closed when everything is gone
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
	calls, failed, canceled, panics, pulled, pushed, oneWay, handed atomic.Uint64
}

// ServerStats are a server's counters and its state at one moment.
type ServerStats struct {
	Conns    int    // connections
	Running  int    // calls in handlers
	Queued   int    // calls that wait because MaxCalls run
	Calls    uint64 // calls so far
	Failed   uint64 // of these, answered with an error
	Handed   uint64 // of these, given to workers by the goroutine that polled
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
	s.queue.order = priority{burst: n.opts.Burst}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	return ServerStats{
		Conns: len(s.conns), Running: s.running, Queued: s.queue.count,
		Calls: c.calls.Load(), Failed: c.failed.Load(), Handed: c.handed.Load(),
		Canceled: c.canceled.Load(), OneWay: c.oneWay.Load(), Panics: c.panics.Load(),
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

// admit counts a call as running. When it is false the call was refused, or waits while MaxCalls
// run.
func (s *Server) admit(c *Call) bool {
	s.mu.Lock()
	switch {
	case s.draining:
		s.mu.Unlock()
		c.refuse(errs.New(errs.Shutdown, "msg.Serve", s.Addr(), nil))
		return false
	case s.running >= s.opts.MaxCalls:
		s.queue.push(c)
		s.mu.Unlock()
		return false
	}
	s.running++
	s.mu.Unlock()
	return true
}

// dispatch gives a call to a worker. It does not block.
func (s *Server) dispatch(c *Call) {
	s.counts.handed.Add(1)
	if s.admit(c) {
		s.spawn(job{call: c})
	}
}

// job is what a worker does: serve a call, or poll a serverConn.
type job struct {
	call *Call
	poll *serverConn
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

// refuse answers a call that no handler sees.
func (c *Call) refuse(err error) {
	_ = c.Fail(err) // nothing was pushed: it does not wait
	c.over()
}

// over ends a call that no handler has.
func (c *Call) over() {
	c.ctx.end(context.Canceled)
	c.unhold()
}

func (s *Server) worker(j job) {
	defer s.workers.Done()
	for ok := true; ok; {
		if j.poll != nil {
			j.poll.pollHere()
		} else {
			s.serveAll(j.call)
		}
		ok = false
		if s.idle.Add(1) <= int32(s.opts.IdleWorkers) {
			j, ok = <-s.work
		}
		s.idle.Add(-1)
	}
}

// serveAll serves a call that was admitted, and then those that wait.
func (s *Server) serveAll(c *Call) {
	for c != nil {
		s.serve(c)
		c = s.next()
	}
}

// next takes a call from the queue, or counts the worker's last one as over.
func (s *Server) next() *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.queue.pop(); c != nil {
		return c
	}
	if s.running--; s.running == 0 && s.draining {
		s.drainedLocked()
	}
	return nil
}

func (s *Server) drainedLocked() {
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

// serve runs the handler for one call. Whatever it does, the call is answered and its context
// ends.
func (s *Server) serve(c *Call) {
	err := c.ctx.over() // it may have waited in the queue
	if err == nil {
		err = c.decode()
	}
	if err != nil {
		c.refuse(err)
		return
	}
	if c.OneWay() {
		s.counts.oneWay.Add(1)
	}
	s.handle(c)
}

// handle runs the handler.
func (s *Server) handle(c *Call) {
	defer c.over()
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

// Close drains the server: it refuses new connections and requests (errs.Shutdown), waits for
// the calls in handlers until ctx ends, then closes the connections. When ctx ended first the
// handlers' contexts have ended too and Close returns its error; it waits a second more for
// the handlers to notice.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining
	s.draining = true
	if s.running == 0 {
		s.drainedLocked()
	}
	var waiting []*Call
	for c := s.queue.pop(); c != nil; c = s.queue.pop() {
		waiting = append(waiting, c)
	}
	conns := s.connsLocked()
	s.mu.Unlock()
	if first {
		closePorts(s.ports)
		for _, ss := range conns {
			ss.goodbye()
		}
		for _, c := range waiting {
			c.refuse(errs.New(errs.Shutdown, "msg.Serve", s.Addr(), nil))
		}
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
