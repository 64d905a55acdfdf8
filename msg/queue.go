package msg

import "time"

// unexpected are the queues of the calls that wait at a server because enough run: one per level.
// In each the connections take turns, so that a client with many requests does not keep those of
// others waiting. Guarded by Server.mu.
type unexpected struct {
	order   priority
	waiting levels
	count   int
	rings   [MaxLevels]ring
}

// ring are the connections that have calls of one level waiting, in the order of their turns.
type ring struct{ first, last *lane }

// lane are the calls of one connection and level that wait, oldest first.
type lane struct {
	first, last *Call
	next        *lane
}

func (u *unexpected) push(c *Call) {
	l := &c.s.lanes[c.level]
	c.next = nil
	c.ctx.fix(time.Time{}) // the time that it waits is the request's
	if l.first == nil {
		l.first, l.last = c, c
		u.rings[c.level].push(l)
	} else {
		l.last.next, l.last = c, c
	}
	u.waiting |= 1 << c.level
	u.count++
}

// pop takes the call whose turn it is; nil if none waits.
func (u *unexpected) pop() *Call {
	if u.waiting == 0 {
		return nil
	}
	level := u.order.next(u.waiting)
	u.order.took(level, u.waiting)
	r := &u.rings[level]
	l := r.first
	c := l.first
	r.first, l.next = l.next, nil
	if r.first == nil {
		r.last = nil
	}
	l.first, c.next = c.next, nil
	if l.first != nil {
		r.push(l)
	}
	if r.first == nil {
		u.waiting &^= 1 << level
	}
	u.count--
	return c
}

func (r *ring) push(l *lane) {
	l.next = nil
	if r.first == nil {
		r.first, r.last = l, l
		return
	}
	r.last.next, r.last = l, l
}

// serviceOf finds the service of an operation; nil for the server's own handler. There are few.
func (s *Server) serviceOf(op uint16) *Service {
	for i := range s.opts.Services {
		if v := &s.opts.Services[i]; v.From <= op && op <= v.To {
			return v
		}
	}
	return nil
}

// place gives a call its level and its handler.
func (s *Server) place(c *Call) {
	s.counts.calls.Add(1)
	level := Level(c.marks.level)
	c.handler = s.handler
	if v := s.serviceOf(c.header.Op); v != nil {
		level, c.handler = max(level, v.Level), v.Handler
	}
	c.level = int(min(level, Level(s.node.opts.Queues-1)))
}
