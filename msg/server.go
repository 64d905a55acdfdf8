package msg

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/msg/internal/workers"
)

// ServerStats are a server's counters and its state at one moment.
type ServerStats struct {
	Conns    int    // connections
	Running  int    // calls in handlers
	Parked   int    // of these, those that wait without an admission: see Call.Park
	Queued   int    // calls that wait because MaxCalls run
	Admitted uint64 // calls that MaxCalls has let in; 0 where the handlers have an admission
	Calls    uint64 // calls so far
	Failed   uint64 // of these, answered with an error
	Handed   uint64 // of these, given to workers by the goroutine that polled
	Canceled uint64 // canceled by the client before they were answered
	OneWay   uint64 // one-way messages
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
		node: n, opts: opts, handler: h, ports: ports,
		conns:   map[*serverConn]struct{}{},
		drained: make(chan struct{}), closed: make(chan struct{}),
	}
	s.workers = workers.New(opts.IdleWorkers, s.work)
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
	s.openCarried()
	for _, p := range ports {
		s.accepting.Add(1)
		go s.accept(p)
	}
	return s, nil
}

// Stats returns the server's counters.
func (s *Server) Stats() ServerStats {
	var u gate.Usage
	if s.calls != nil {
		u = s.calls.Usage()
	}
	var all Carried
	for _, p := range s.carried {
		all.Calls += p.calls.Load()
		all.BytesIn, all.BytesOut = all.BytesIn+p.pulled.Load(), all.BytesOut+p.pushed.Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	return ServerStats{
		Conns: len(s.conns), Running: max(int(s.here.Load())-u.Waiting, 0),
		Parked: int(s.parked.Load()), Queued: u.Waiting, Admitted: u.Passed,
		Calls: all.Calls, Failed: c.failed.Load(), Handed: c.handed.Load(),
		Canceled: c.canceled.Load(), OneWay: c.oneWay.Load(), Panics: c.panics.Load(),
		BytesIn: all.BytesIn, BytesOut: all.BytesOut,
	}
}

// Close drains the server: it refuses new connections and requests (errs.Shutdown), waits for
// the calls in handlers until ctx ends, then closes the connections. When ctx ended first the
// handlers' contexts have ended too and Close returns its error; it waits a second more for
// the handlers to notice.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining.Swap(true)
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	if first {
		closePorts(s.ports)
		for _, ss := range conns {
			ss.goodbye()
			ss.endParked()
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

// dismantle ends what is left after draining and waits for all goroutines. When there was
// time to drain, the last replies reach their clients before the connections end.
func (s *Server) dismantle(drained bool) {
	s.accepting.Wait()
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, ss := range conns {
		leaving.Add(1)
		go func() {
			defer leaving.Done()
			if drained {
				ss.flushReplies()
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
	s.workers.Close()
	s.node.mu.Lock()
	delete(s.node.servers, s)
	s.node.mu.Unlock()
	close(s.closed)
}
