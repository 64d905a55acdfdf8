package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// listen opens all places.
func (n *Node) listen(places []Place) ([]port, error) {
	var ports []port
	for _, p := range places {
		r, err := n.rungOf(p.Domain)
		var l fabric.Listener
		if err == nil {
			l, err = r.domain.Connector().Listen(p.Addr)
		}
		if err != nil {
			closePorts(ports)
			return nil, errs.Wrap("msg.Serve", p.Addr, err)
		}
		ports = append(ports, port{r, l})
	}
	if len(ports) == 0 {
		return nil, errs.Newf(errs.Invalid, "msg.Serve", "", "no place to listen at")
	}
	return ports, nil
}

func closePorts(ports []port) {
	for _, p := range ports {
		_ = p.listener.Close()
	}
}

// Places returns where the server listens.
func (s *Server) Places() []Place {
	var all []Place
	for _, p := range s.ports {
		all = append(all, Place{Domain: p.rung.domain, Addr: p.listener.Addr().String()})
	}
	return all
}

// accept takes connections until the listener is closed.
func (s *Server) accept(at port) {
	defer s.accepting.Done()
	for {
		var cfg fabric.EndpointConfig
		ep, err := at.listener.Accept(context.Background(),
			func(peer fabric.Peer) (fabric.EndpointConfig, error) {
				var err error
				cfg, err = s.welcome(at.rung, peer)
				return cfg, err
			})
		if err == nil {
			err = s.open(at.rung, ep, &cfg)
			cfg.RecvCQ = nil // the serverConn's from here on
		}
		if cfg.RecvCQ != nil {
			_ = cfg.RecvCQ.Close()
		}
		if errs.KindOf(err) == errs.Closed {
			return
		}
		if err != nil {
			s.node.refused.Warn(s.Addr()+" "+errs.KindOf(err).String(), "connection refused", "err", err)
			time.Sleep(time.Millisecond) // a failing listener must not spin
		}
	}
}

// welcome decides about a peer that has said hello.
func (s *Server) welcome(r *rung, peer fabric.Peer) (fabric.EndpointConfig, error) {
	s.mu.Lock()
	full, draining := len(s.conns) >= s.opts.MaxConns, s.draining.Load()
	s.mu.Unlock()
	credits := min(s.node.opts.Credits, int(peer.RecvDepth)-controlReserve)
	switch {
	case draining:
		return fabric.EndpointConfig{}, errs.New(errs.Shutdown, "msg.Accept", s.Addr(), nil)
	case full:
		return fabric.EndpointConfig{}, errs.Newf(errs.Again, "msg.Accept", s.Addr(),
			"%d connections", s.opts.MaxConns)
	case credits < 1:
		return fabric.EndpointConfig{}, errs.Newf(errs.Protocol, "msg.Accept", s.Addr(),
			"the peer keeps only %d receives", peer.RecvDepth)
	}
	return s.node.config(r, credits)
}

// open starts a serverConn on a new endpoint.
func (s *Server) open(r *rung, ep fabric.Endpoint, cfg *fabric.EndpointConfig) error {
	ss, err := newServerConn(s, r, ep, cfg)
	if err != nil {
		return errs.New(errs.IO, "msg.Accept", ep.Name(), err)
	}
	s.mu.Lock()
	draining := s.draining.Load()
	if !draining {
		s.conns[ss] = struct{}{}
	}
	s.mu.Unlock()
	if !draining { // else nothing would end the link, and Node.Close would wait for it
		err = s.node.adopt(ss, ss.name)
	}
	if err != nil || draining {
		ss.discard()
		return errs.New(errs.Shutdown, "msg.Accept", ep.Name(), err)
	}
	ss.start()
	ss.duty.Leave(true)
	return nil
}
