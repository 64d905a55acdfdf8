package msg

import (
	"context"
	"runtime"
	"time"
)

// This file is who empties the completion queue at the server; await.go is the same for clients.

// pollHere empties the completion queue on this goroutine, and serves one request of each batch
// on it too: a request that comes alone is answered without waking anybody. Others of a batch go
// to workers. It ends with the link, or when enough others poll.
func (s *serverConn) pollHere() {
	if s.enter() != nil {
		return
	}
	defer s.leave()
	p := s.node.pollers.Get().(*poller)
	defer func() {
		*p = poller{} // it must not keep the endpoint
		s.node.pollers.Put(p)
	}()
	if s.node.opts.Progress == ProgressThread {
		s.pollAlways(p)
		return
	}
	for {
		s.polling.Add(1)
		err := s.poll(context.Background(), p)
		left := s.polling.Add(-1)
		if err != nil {
			s.fail(err)
			return
		}
		c := p.run
		if p.run = nil; c == nil || !s.srv.admit(c) {
			continue
		}
		var turn uint64
		if left == 0 {
			turn = s.relieve()
		}
		s.srv.serveAll(c)
		s.relieved(turn)
		if s.polling.Load() >= s.enough() {
			return
		}
	}
}

// pollAlways polls on a thread of its own and leaves every request to workers.
func (s *serverConn) pollAlways(p *poller) {
	s.polling.Add(1)
	defer s.polling.Add(-1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // the goroutine may serve as a worker afterwards
	for {
		if err := s.poll(context.Background(), p); err != nil {
			s.fail(err)
			return
		}
		if p.run != nil {
			s.srv.dispatch(p.run)
			p.run = nil
		}
	}
}

// While handlers return at once, one goroutine polls and serves by turns: no other has to be woken,
// and a provider that reads in Wait has one to read for. A handler that takes longer than alone, or
// that waits for data, is relieved by a second goroutine; for the next slowStays requests a second
// one polls all the time.
const (
	alone     = time.Millisecond
	slowStays = 64
)

// relieve sees to it that somebody polls while a handler runs: at once when handlers have been
// slow, else if this one turns out to be. It returns the handler's turn, for relieved.
func (s *serverConn) relieve() (turn uint64) {
	if s.slow.Load() > 0 {
		s.slow.Add(-1)
		s.srv.spawn(job{poll: s})
		return 0
	}
	turn = s.turns.Add(1)
	s.serving.Store(turn)
	if !s.armed.Load() && !s.armed.Swap(true) {
		s.watched.Store(turn)
		s.timer.Reset(alone)
	}
	return turn
}

// relieved says that the handler has returned.
func (s *serverConn) relieved(turn uint64) {
	if turn != 0 {
		s.serving.CompareAndSwap(turn, 0)
	}
}

// late looks after a while whether the same handler still runs. It lets go of the timer before it
// looks: a handler that starts meanwhile arms it anew.
func (s *serverConn) late() {
	s.armed.Store(false)
	turn := s.serving.Load()
	switch {
	case turn == 0:
	case turn == s.watched.Load():
		s.needPoller()
	case !s.armed.Swap(true):
		s.watched.Store(turn)
		s.timer.Reset(alone)
	}
}

// needPoller is asked before somebody waits for completions.
func (s *serverConn) needPoller() {
	if s.polling.Load() > 0 || s.enter() != nil {
		return
	}
	defer s.leave()
	s.slow.Store(slowStays)
	s.srv.spawn(job{poll: s})
}

// Waits says that the handler is about to wait for something that does not come over its
// connection, such as a disk: somebody else polls meanwhile. Without that, requests that arrive in
// the next millisecond would wait for the handler.
func (c *Call) Waits() { c.s.needPoller() }

// settle waits until nothing is pending any more. A provider that moves data in Post has completed
// what was posted already: then this goroutine takes the completions itself and nobody has to be
// woken, twice, to tell it. Requests that come along with them go to workers.
func (s *serverConn) settle(w *waiter) error {
	if s.caps.PostMoves && w.busy() && s.enter() == nil {
		p := s.node.pollers.Get().(*poller)
		for w.busy() {
			n := s.cq.Poll(p.batch[:])
			if n == 0 {
				break
			}
			s.handle(p, n)
			if p.run != nil {
				s.srv.dispatch(p.run)
				p.run = nil
			}
		}
		*p = poller{} // it must not keep the endpoint
		s.node.pollers.Put(p)
		s.leave()
	}
	if w.busy() {
		s.needPoller()
	}
	return w.wait()
}

// enough is how many goroutines should poll while nothing runs.
func (s *serverConn) enough() int32 {
	if s.slow.Load() > 0 {
		return 2
	}
	return 1
}
