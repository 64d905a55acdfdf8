package msg

import "sync/atomic"

// carried is what one provider has carried to and from a server.
type carried struct {
	accepted, calls, pulled, pushed atomic.Uint64
}

// Carried is what one provider has carried to and from a server so far.
type Carried struct {
	Conns    int    // connections at this moment
	Accepted uint64 // connections so far
	Calls    uint64
	BytesIn  uint64 // pulled
	BytesOut uint64 // pushed
}

// openCarried makes the counters, so that they are found without a lock.
func (s *Server) openCarried() {
	s.carried = make(map[*rung]*carried, len(s.node.rungs))
	for _, r := range s.node.rungs {
		s.carried[r] = &carried{}
	}
}

// Via counts the server's connections by provider.
func (s *Server) Via() map[string]int {
	via := map[string]int{}
	for name, c := range s.Carried() {
		via[name] = c.Conns
	}
	return via
}

// Carried tells, by the names of the providers that the server listens with, what each has carried.
func (s *Server) Carried() map[string]Carried {
	all := map[string]Carried{}
	for _, p := range s.ports {
		c := s.carried[p.rung]
		all[p.rung.caps.Provider] = Carried{Accepted: c.accepted.Load(), Calls: c.calls.Load(),
			BytesIn: c.pulled.Load(), BytesOut: c.pushed.Load()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		name := conn.rung.caps.Provider
		c := all[name]
		c.Conns++
		all[name] = c
	}
	return all
}
