package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/peer"
)

// Socket is the name of the driver of plain sockets, which a service offers on loopback only:
// nobody proves anything there, except that he knows what a session was told.
const Socket = "socket"

// ServiceOptions are what a service does for others.
type ServiceOptions struct {
	// Providers are open for a process that listens, and stay the caller's.
	Providers *peer.Providers

	// Listen is where: HOST:PORT, or several with commas between them.
	Listen string

	// Store is what others read and write. Read and Write say which of it they may, Memory whether
	// they may send to nowhere and be sent nothing in particular, for measuring.
	Store               Store
	Read, Write, Memory bool

	// Only are the names of the peers that are served; empty: all that prove who they are, and those
	// of this host.
	Only []string

	// Sessions and Bytes bound how many are served at once, and the memory for that. Default 16 and
	// 512 MiB.
	Sessions int
	Bytes    int64

	// Changed is closed when peers may not be believed any more that were before; each is asked again
	// then (fabric.Peer.Recheck). Default nil: nothing changes.
	Changed func() <-chan struct{}

	// Log hears of what is done for others. Default: discard.
	Log *slog.Logger
}

func (o ServiceOptions) withDefaults() ServiceOptions {
	if o.Sessions == 0 {
		o.Sessions = 16
	}
	if o.Bytes == 0 {
		o.Bytes = 512 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Service answers others until Close.
type Service struct {
	opts    ServiceOptions
	memory  *exio.Memory
	ports   []port
	plain   net.Listener // nil: plain sockets are not offered
	host    [32]byte
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[[keyBytes]byte]*session
	handles  map[exio.Handle]bool // all that are open
	closed   bool
}

type port struct {
	domain   fabric.Domain
	listener fabric.Listener
}

// handlesMax is how many connections for data a session may have: one for each driver.
const handlesMax = 8

// session is one peer that is served.
type session struct {
	service *Service
	*control
	key  [keyBytes]byte
	peer fabric.Peer

	mu   sync.Mutex
	data [handlesMax]exio.Handle
	came chan struct{} // a connection for data has come
}

// Serve starts a service.
func Serve(opts ServiceOptions) (*Service, error) {
	opts = opts.withDefaults()
	memory, err := exio.NewMemory(nil, opts.Bytes, opts.Providers.Domains...)
	if err != nil {
		return nil, err
	}
	s := &Service{opts: opts, memory: memory, host: peer.HostID(),
		sessions: map[[keyBytes]byte]*session{}, handles: map[exio.Handle]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for _, p := range s.ports {
		s.running.Go(func() { s.accept(p) })
	}
	if s.plain != nil {
		s.running.Go(s.acceptPlain)
	}
	if opts.Changed != nil {
		s.running.Go(s.watchTrust)
	}
	return s, nil
}

// watchTrust ends the sessions of peers that are not believed any more.
func (s *Service) watchTrust() {
	for {
		changed := s.opts.Changed()
		s.mu.Lock()
		for _, x := range s.sessions {
			if x.peer.Recheck == nil {
				continue
			}
			if err := x.peer.Recheck(); err != nil {
				s.opts.Log.Warn("a peer is not believed any more", "peer", x.peer.Name, "err", err)
				go x.h.Close() // it waits for who serves the session
			}
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.ctx.Done():
			return
		}
	}
}

// listen opens the ports: those that were asked for must work.
func (s *Service) listen() error {
	base := s.opts.Providers.Base()
	near := true
	for _, addr := range strings.Split(s.opts.Listen, ",") {
		l, err := base.Connector().Listen(addr)
		if err != nil {
			return errs.Wrap("transfer.Serve", addr, err)
		}
		s.ports = append(s.ports, port{base, l})
		host, _, _ := net.SplitHostPort(l.Addr().String())
		ip := net.ParseIP(host)
		near = near && ip != nil && ip.IsLoopback()
	}
	for _, d := range s.opts.Providers.Domains {
		caps, at := d.Caps(), ""
		switch {
		case d == base:
			continue
		case caps.SameHost:
			at = fmt.Sprintf("unix:@sluice-transfer-%d-%x", os.Getpid(), randomKey())
		default:
			at = peer.AllDevices(d)
		}
		l, err := d.Connector().Listen(at)
		if err != nil {
			s.opts.Log.Warn("not all providers can be listened at", "provider", caps.Provider, "err", err)
			continue
		}
		s.ports = append(s.ports, port{d, l})
	}
	if !near {
		return nil
	}
	var err error
	s.plain, err = net.Listen("tcp", "127.0.0.1:0")
	return err
}

func randomKey() (k [keyBytes]byte) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Addr is where the service listens first.
func (s *Service) Addr() string { return s.ports[0].listener.Addr().String() }

// Close ends all that is served, and waits for it.
func (s *Service) Close() error {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	var open []exio.Handle
	for h := range s.handles {
		open = append(open, h)
	}
	s.mu.Unlock()
	var all []error
	for _, p := range s.ports {
		all = append(all, p.listener.Close())
	}
	if s.plain != nil {
		all = append(all, s.plain.Close())
	}
	for _, h := range open {
		all = append(all, h.Close())
	}
	s.running.Wait()
	return errors.Join(append(all, s.memory.Close())...)
}

// accept takes connections of one port.
func (s *Service) accept(p port) {
	link := exio.Link{Domain: p.domain, Memory: s.memory}
	for {
		h, err := link.Accept(s.ctx, p.listener, s.admit)
		if errs.KindOf(err) == errs.Closed || s.ctx.Err() != nil {
			if h != nil {
				_ = h.Close()
			}
			return
		}
		if err != nil {
			s.opts.Log.Warn("a peer was refused", "err", err)
			time.Sleep(time.Millisecond) // a failing listener must not spin
			continue
		}
		s.serve(h)
	}
}

// admit refuses peers that are not served, and those that are too many.
func (s *Service) admit(p fabric.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.handles) >= s.opts.Sessions*(handlesMax+1) {
		return errs.Newf(errs.Again, "transfer", "", "%d connections are served", len(s.handles))
	}
	if len(s.opts.Only) == 0 {
		return nil
	}
	for _, name := range s.opts.Only {
		if p.Name == name || strings.HasSuffix(p.Name, "/"+name) {
			return nil
		}
	}
	return errs.Newf(errs.Perm, "transfer", p.Name, "this service is not for it")
}

func (s *Service) acceptPlain() {
	for {
		c, err := s.plain.Accept()
		if err != nil {
			return
		}
		if s.admit(fabric.Peer{}) != nil && len(s.opts.Only) == 0 {
			_ = c.Close()
			continue
		}
		h, err := exio.NewSocket(c, exio.Options{})
		if err != nil {
			_ = c.Close()
			continue
		}
		s.serve(h)
	}
}

// firstMax is how long a peer that has connected may take to say what for.
const firstMax = 10 * time.Second

// serve serves one connection in the background.
func (s *Service) serve(h exio.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go h.Close() // it waits
		return
	}
	s.handles[h] = true
	s.running.Go(func() {
		kept, err := s.first(h)
		if err != nil {
			s.opts.Log.Warn("a connection has failed", "peer", h.Info().Peer, "err", err)
		}
		if !kept {
			s.drop(h)
		}
	})
}

func (s *Service) drop(h exio.Handle) {
	_ = h.Close() // whatever came of it
	s.mu.Lock()
	delete(s.handles, h)
	s.mu.Unlock()
}

// first takes the message that says what a connection is for. kept: it is a session's now.
func (s *Service) first(h exio.Handle) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, firstMax)
	b := make([]byte, controlMax)
	ev, err := exio.Wait(ctx, h.Read, exio.Op{Tag: exio.AnyTag, Pieces: [][]byte{b}})
	cancel()
	if err != nil {
		return false, err
	}
	if ev.Tag == tagJoin && ev.Len == keyBytes+1 {
		return s.join(h, [keyBytes]byte(b[:keyBytes]), int(b[keyBytes]))
	}
	m, err := decode(b[:ev.Len])
	if err != nil || ev.Tag != tagControl || m.kind != msgHello {
		return false, errors.Join(err, errs.Newf(errs.Protocol, "transfer", "", "no hello"))
	}
	p, known := exio.PeerOf(h)
	if !known {
		return false, errs.Newf(errs.Perm, "transfer", "", "a session over a plain socket")
	}
	return false, s.session(h, p, &m)
}

// join gives a connection for data to its session.
func (s *Service) join(h exio.Handle, key [keyBytes]byte, index int) (bool, error) {
	s.mu.Lock()
	x := s.sessions[key]
	s.mu.Unlock()
	p, known := exio.PeerOf(h)
	switch {
	case x == nil:
		return false, errs.Newf(errs.Perm, "transfer", "", "no such session")
	case known && p.Name != "" && x.peer.Name != "" && p.Proof > fabric.ProofHost &&
		p.Name != x.peer.Name:
		return false, errs.Newf(errs.Perm, "transfer", p.Name, "the session is of %s", x.peer.Name)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if index >= handlesMax || x.data[index] != nil {
		return false, errs.Newf(errs.Protocol, "transfer", "", "connection %d", index)
	}
	x.data[index] = h
	select {
	case x.came <- struct{}{}:
	default:
	}
	return true, nil
}

// handle waits for a connection for data.
func (x *session) handle(ctx context.Context, index int) (exio.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, firstMax)
	defer cancel()
	for {
		x.mu.Lock()
		if index < handlesMax && x.data[index] != nil {
			defer x.mu.Unlock()
			return x.data[index], nil
		}
		x.mu.Unlock()
		select {
		case <-x.came:
		case <-ctx.Done():
			return nil, errs.Newf(errs.TimedOut, "transfer", "", "connection %d has not come", index)
		}
	}
}

// session serves one peer.
func (s *Service) session(h exio.Handle, p fabric.Peer, hello *message) error {
	x := &session{service: s, control: newControl(h), key: randomKey(), peer: p,
		came: make(chan struct{}, handlesMax)}
	s.mu.Lock()
	full := len(s.sessions) >= s.opts.Sessions
	if !full {
		s.sessions[x.key] = x
	}
	s.mu.Unlock()
	defer x.end()
	if full {
		err := errs.Newf(errs.Again, "transfer", "", "%d peers are served, more are not",
			s.opts.Sessions)
		x.fail(err)
		return err
	}
	offers := message{kind: msgOffers, host: s.host, key: x.key, offers: s.offers(p, hello.host)}
	if err := x.send(s.ctx, offers); err != nil {
		return err
	}
	for {
		m, err := x.next(s.ctx)
		if errs.KindOf(err) == errs.Disconnected {
			return nil // it has what it wanted
		}
		if err == nil {
			err = x.do(s.ctx, &m)
		}
		if err != nil {
			x.fail(err)
			return err
		}
	}
}

// end ends a session with its connections.
func (x *session) end() {
	s := x.service
	s.mu.Lock()
	delete(s.sessions, x.key)
	s.mu.Unlock()
	x.mu.Lock()
	data := x.data
	x.mu.Unlock()
	for _, h := range data {
		if h != nil {
			s.drop(h)
		}
	}
	x.control.close()
}

// offers are the ways in which this peer can send data.
func (s *Service) offers(p fabric.Peer, host [32]byte) (list []offer) {
	providers := s.opts.Providers
	for _, at := range s.ports {
		caps := at.domain.Caps()
		if caps.SameHost && host != s.host {
			continue
		}
		for _, addr := range peer.Told(at.domain, at.listener.Addr().String()) {
			o := offer{driver: caps.Provider, addr: addr}
			if caps.AsksToken && providers.Tokens != nil {
				token, err := providers.Tokens.IssueTo(p, tokenLife)
				if err != nil || p.Proof == fabric.ProofNone {
					continue
				}
				o.token = token
			}
			if len(list) < offersMax-1 {
				list = append(list, o)
			}
		}
	}
	if s.plain != nil && host == s.host {
		list = append(list, offer{driver: Socket, addr: s.plain.Addr().String()})
	}
	return list
}

const tokenLife = 30 * time.Second

// do does what a peer asks for.
func (x *session) do(ctx context.Context, m *message) error {
	o := x.service.opts
	switch {
	case m.kind == msgProbe:
		return x.probed(ctx, m)
	case m.kind != msgPut && m.kind != msgGet:
		return errs.Newf(errs.Protocol, "transfer", "", "message %d", m.kind)
	case m.memory && !o.Memory:
		return errs.Newf(errs.Perm, "transfer", "", "this service does not serve memory")
	case !m.memory && m.kind == msgPut && !o.Write:
		return errs.Newf(errs.Perm, "transfer", m.name, "this service takes no files")
	case !m.memory && m.kind == msgGet && !o.Read:
		return errs.Newf(errs.Perm, "transfer", m.name, "this service gives no files")
	case m.moving.Timeout <= 0 || m.moving.Timeout > time.Hour:
		return errs.Newf(errs.Invalid, "transfer", "", "a timeout of %v", m.moving.Timeout)
	}
	if m.kind == msgGet && !m.memory && m.handle == noHandle {
		return x.look(ctx, m)
	}
	data, err := x.handle(ctx, m.handle)
	if err != nil {
		return err
	}
	var r Result
	begin := time.Now()
	if m.kind == msgPut {
		r, err = x.receive(ctx, data, m)
	} else {
		r, err = x.give(ctx, data, m)
	}
	x.service.opts.Log.Info("transfer", "peer", data.Info().Peer, "driver", data.Info().Driver,
		"name", m.name, "put", m.kind == msgPut, "bytes", r.Bytes, "moved", r.Moved,
		"took", time.Since(begin), "err", err)
	return err
}

// look tells how long a file is.
func (x *session) look(ctx context.Context, m *message) error {
	o, err := x.service.opts.Store.Open(ctx, m.name)
	if err != nil {
		return err
	}
	return errors.Join(x.send(ctx, message{kind: msgOpened, size: o.Size(), mode: uint32(o.Mode())}),
		o.Close())
}

// receive is put.
func (x *session) receive(ctx context.Context, data exio.Handle, m *message) (r Result, err error) {
	if err = m.moving.Check(m.size); err != nil {
		return r, err
	}
	var to Copy
	if !m.memory {
		to, err = x.service.opts.Store.Create(ctx, m.name, m.put)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	buffers, err := newBuffers(x.service.memory, m.moving)
	if err != nil {
		return r, err
	}
	defer freeBuffers(x.service.memory, buffers)
	if err = x.send(ctx, message{kind: msgOpened, size: m.size}); err != nil {
		return r, err
	}
	return newMoving(x.control, data, m.moving, m.size, buffers, nil).sink(ctx, to)
}

// give is get.
func (x *session) give(ctx context.Context, data exio.Handle, m *message) (r Result, err error) {
	size, mode := m.size, os.FileMode(0o644)
	var from exio.Handle
	if !m.memory {
		o, err := x.service.opts.Store.Open(ctx, m.name)
		if err != nil {
			return r, err
		}
		size, mode = o.Size(), o.Mode()
		from = exio.NewFile(readOnly{o}, exio.FileOptions{Name: m.name, Depth: min(m.moving.Depth, 16)})
	}
	if err = m.moving.Check(size); err != nil {
		return r, errors.Join(err, closeFile(from))
	}
	buffers, err := newBuffers(x.service.memory, m.moving)
	if err != nil {
		return r, errors.Join(err, closeFile(from))
	}
	defer freeBuffers(x.service.memory, buffers)
	if err = x.send(ctx, message{kind: msgOpened, size: size, mode: uint32(mode)}); err == nil {
		r, err = newMoving(x.control, data, m.moving, size, buffers, nil).source(ctx, from)
	}
	return r, errors.Join(err, closeFile(from))
}

func closeFile(h exio.Handle) error {
	if h == nil {
		return nil
	}
	return h.Close()
}

// readOnly makes a File of an Original.
type readOnly struct{ Original }

func (readOnly) WriteAt([]byte, int64) (int, error) { return 0, errs.ReadOnly }

// probed takes blocks for a measurement.
func (x *session) probed(ctx context.Context, m *message) error {
	o := m.moving
	if err := o.Check(0); err != nil {
		return err
	}
	if m.count < 1 || m.count > math.MaxInt32/o.Block {
		return errs.Newf(errs.Invalid, "transfer", "", "%d blocks to measure with", m.count)
	}
	data, err := x.handle(ctx, m.handle)
	if err != nil {
		return err
	}
	buffers, err := newBuffers(x.service.memory, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	err = drain(ctx, data, buffers, m.count)
	if err != nil {
		x.service.drop(data) // its memory may be in use
	}
	freeBuffers(x.service.memory, buffers)
	if err != nil {
		return err
	}
	return x.send(ctx, message{kind: msgProbed})
}
