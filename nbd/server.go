package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

// Server serves a table of exports on any number of listeners. Its life: NewServer, Serve for each
// listener (or ServeConn for each connection), Shutdown.
//
// A connection's life: greeting and options (handshake.go, options.go) until one export is
// chosen; then its goroutines take turns (turn.go): one reads requests (conn.go), checks them
// (check.go), and runs what it has read (execute.go) while another reads; whoever finishes one
// queues its reply, and one of them at a time writes all that is queued (reply.go).
type Server struct {
	cfg     Config
	offers  atomic.Pointer[table] // what clients can choose from; see table.go
	memory  *gate.Gate
	buffers *pool
	reqs    sync.Pool
	zeroes  []byte // what WRITE_ZEROES writes through exports that are no Zeroer; never written to

	draining atomic.Bool
	evicted  atomic.Int64
	panics   atomic.Int64
	brisk    atomic.Int32 // connections that wait inside of a system call
	clock    atomic.Int64 // watchdog ticks; stamps of stalled connections compare to it

	guarding atomic.Bool   // the watchdog looks after kept turns, or is about to; see turn.go
	keeps    chan struct{} // tells it to

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	accepted  int64
	refused   int64
	gone      counters      // of connections that ended
	watching  bool          // the watchdog was started
	idle      chan struct{} // closed when draining and the last connection has ended
	idleDone  bool

	began    time.Time     // states of requests are measured from here
	stop     chan struct{} // closed to end the watchdog
	stopOnce sync.Once
	watchdog sync.WaitGroup
}

// NewServer makes a server for entries. It opens none of them.
func NewServer(cfg Config, entries ...Entry) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:       cfg,
		memory:    gate.New(gate.Options{Bytes: cfg.MemoryBytes}),
		buffers:   &pool{idleMax: cfg.MemoryBytes / 4},
		zeroes:    make([]byte, zeroPieceBytes),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		idle:      make(chan struct{}),
		began:     time.Now(),
		keeps:     make(chan struct{}, 1),
		stop:      make(chan struct{}),
	}
	s.reqs.New = func() any { return new(request) }
	first, err := newTable(cfg, entries)
	if err != nil {
		return nil, err
	}
	s.offers.Store(first)
	return s, nil
}

// Serve accepts connections on ln until Shutdown, then returns nil; otherwise the listener's error.
// It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		_ = ln.Close() // nobody was promised anything on it
		return errs.New(errs.Shutdown, "nbd.Serve", ln.Addr().String(), nil)
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	defer s.closeListener(ln)
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			go s.ServeConn(nc)
			continue
		}
		if s.draining.Load() {
			return nil
		}
		if !acceptAgain(err) {
			return errs.Wrap("nbd.Serve", ln.Addr().String(), err)
		}
		// Out of file descriptors, most likely: others must end first.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.cfg.Logger.Warn("nbd: accept failed, pausing", "err", err, "pause", pause)
		time.Sleep(pause)
	}
}

func acceptAgain(err error) bool {
	var ne net.Error
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	//lint:ignore SA1019 Accept has no other way to tell a passing lack of descriptors
	return errors.As(err, &ne) && ne.Temporary()
}

func (s *Server) closeListener(ln net.Listener) {
	s.mu.Lock()
	delete(s.listeners, ln)
	s.mu.Unlock()
	_ = ln.Close() // closed twice after Shutdown, which is harmless
}

// ServeConn serves one connection to its end and closes it. A panic on the way ends only this
// connection.
func (s *Server) ServeConn(nc net.Conn) {
	c := newConn(s, nc)
	if !s.admit(c) {
		_ = nc.Close() // nothing was sent
		return
	}
	defer s.dismiss(c)
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p, debug.Stack())
		}
	}()
	log := s.cfg.Logger.With("peer", nc.RemoteAddr().String())
	log.Debug("nbd: connected")
	if err := c.serve(); err != nil {
		log.Info("nbd: connection ended", "err", err)
		return
	}
	log.Debug("nbd: disconnected")
}

func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() || len(s.conns) >= s.cfg.MaxConns {
		s.refused++
		return false
	}
	s.accepted++
	c.id = uint64(s.accepted)
	s.conns[c] = struct{}{}
	if !s.watching {
		s.watching = true
		s.watchdog.Go(s.watch)
	}
	return true
}

func (s *Server) dismiss(c *conn) {
	c.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	c.count.addTo(&s.gone)
	if c.chosen != nil {
		c.shared.part(c)
	}
	s.checkIdleLocked()
}

func (s *Server) checkIdleLocked() {
	if s.draining.Load() && len(s.conns) == 0 && !s.idleDone {
		s.idleDone = true
		close(s.idle)
	}
}

// Shutdown stops accepting, completes what is under way, answers new requests with ESHUTDOWN for
// Config.DrainGrace, closes all connections and then the exports. When ctx ends first, connections
// are cut and requests cancelled; exports then close as their last request returns.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.beginDrain() {
		c.drain()
	}
	var failed []error
	select {
	case <-s.idle:
	case <-ctx.Done():
		failed = append(failed, errs.Wrap("nbd.Shutdown", "", ctx.Err()))
		for _, c := range s.snapshot() {
			c.cut()
		}
	}
	s.stopOnce.Do(func() { close(s.stop) })
	s.watchdog.Wait()
	for _, sh := range s.offers.Load().list {
		failed = append(failed, sh.letGo())
	}
	return errors.Join(failed...)
}

// beginDrain closes the listeners and returns the connections that are left to drain.
func (s *Server) beginDrain() []*conn {
	s.mu.Lock()
	s.draining.Store(true)
	var open []net.Listener
	for ln := range s.listeners {
		open = append(open, ln)
	}
	s.checkIdleLocked()
	s.mu.Unlock()
	for _, ln := range open {
		_ = ln.Close() // Serve sees it and returns
	}
	return s.snapshot()
}

func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

const watchInterval = time.Second

// watch looks once a second for connections that hold memory without moving a byte while others
// wait for it, and for goroutines that have nothing to do; and after those who keep their turn.
func (s *Server) watch() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.watchOnce(s.clock.Add(1))
		case <-s.keeps:
			if !s.guard(ticker) {
				return
			}
		case <-s.stop:
			return
		}
	}
}

func (s *Server) watchOnce(now int64) {
	scarce := s.memory.Usage().Waiting > 0 || s.starving()
	allowed := int64((s.cfg.StallTimeout + watchInterval - 1) / watchInterval)
	for _, c := range s.snapshot() {
		c.retireIdle()
		if scarce && c.stalledFor(now) > allowed {
			s.evicted.Add(1)
			s.cfg.Logger.Warn("nbd: connection stalled while others wait for memory, closing it",
				"peer", c.nc.RemoteAddr().String())
			c.cut()
		}
	}
}

// starving tells whether reads of an export wait for memory that it has lent.
func (s *Server) starving() bool {
	for _, sh := range s.offers.Load().list {
		sh.mu.Lock()
		o := sh.open
		sh.mu.Unlock()
		if o != nil && o.starver != nil && o.starver.Starving() {
			return true
		}
	}
	return false
}

func (c *conn) panicked(p any, stack []byte) {
	c.srv.panics.Add(1)
	c.srv.cfg.Logger.Error("nbd: panic, closing the connection",
		"panic", fmt.Sprint(p), "stack", string(stack))
	c.cut()
}
