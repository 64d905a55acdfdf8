package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// listen opens all places of an address.
func (n *Node) listen(addr string) ([]door, error) {
	places, err := parseAddress(addr, n.providers())
	if err != nil {
		return nil, err
	}
	var doors []door
	for _, p := range places {
		r := n.rungs[len(n.rungs)-1]
		for _, other := range n.rungs {
			if p.provider == other.caps.Provider {
				r = other
			}
		}
		if p.provider != "" && p.provider != r.caps.Provider {
			err = errs.Newf(errs.Unsupported, "msg.Listen", p.at, "this node has no %s", p.provider)
		}
		var l fabric.Listener
		if err == nil {
			l, err = r.domain.Connector().Listen(p.at)
		}
		if err != nil {
			closeDoors(doors)
			return nil, err
		}
		doors = append(doors, door{r, l})
	}
	return doors, nil
}

func closeDoors(doors []door) {
	for _, d := range doors {
		_ = d.listener.Close()
	}
}

// Addr is where the server listens, as Dial takes it.
func (s *Server) Addr() string {
	var all []place
	for _, d := range s.doors {
		all = append(all, place{provider: d.rung.caps.Provider, at: d.listener.Addr().String()})
	}
	return formatAddress(all, s.node.rungs[len(s.node.rungs)-1].caps.Provider)
}

// accept takes connections until the listener is closed.
func (s *Server) accept(d door) {
	defer s.accepting.Done()
	for {
		var cfg fabric.EndpointConfig
		ep, err := d.listener.Accept(context.Background(),
			func(peer fabric.Peer) (fabric.EndpointConfig, error) {
				var err error
				cfg, err = s.welcome(d.rung, peer)
				return cfg, err
			})
		if err == nil {
			err = s.open(d.rung, ep, &cfg)
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
			time.Sleep(time.Millisecond) // a failing listener must not eat a core
		}
	}
}

// welcome decides about a peer that has said hello.
func (s *Server) welcome(r *rung, peer fabric.Peer) (fabric.EndpointConfig, error) {
	s.mu.Lock()
	full, draining := len(s.conns) >= s.opts.MaxConns, s.draining
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
	draining := s.draining
	if !draining {
		s.conns[ss] = struct{}{}
	}
	s.mu.Unlock()
	if !draining { // else nobody would ever end the link, and Node.Close would wait for it
		err = s.node.adopt(ss.link)
	}
	if err != nil || draining {
		_ = ep.Close()
		_ = ss.cq.Close()
		_ = ss.arena.Close()
		s.forget(ss)
		return errs.New(errs.Shutdown, "msg.Accept", ep.Name(), err)
	}
	ss.start()
	s.spawn(job{poll: ss})
	return nil
}
