package msg

import (
	"context"
	"runtime"

	"github.com/sluice-storage/sluice/internal/wait"
)

// This file is how a server polls. Which goroutine does, and who does while a handler runs, is the
// Duty's decision (package progress).

// pollHere empties the completion queue on this goroutine, and serves one request of each batch
// on it too: a request that comes alone is answered without waking anybody. Others of a batch go
// to workers. It ends with the link, or when somebody else polls.
func (s *serverConn) pollHere() {
	if s.enter() != nil {
		return
	}
	defer s.leave()
	thread := s.node.opts.Progress == ProgressThread
	if thread {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // the goroutine may serve as a worker afterwards
	}
	for s.duty.Take() {
		c, err := s.pollOne(thread)
		if err != nil {
			s.fail(err)
			return // with the duty: there is nothing to poll any more
		}
		s.duty.Serve()
		s.srv.run(c)
	}
}

// pollOne polls until there is a call for this goroutine. With a thread of its own it serves none.
func (s *serverConn) pollOne(thread bool) (*Call, error) {
	p := &s.scratch
	for {
		if err := s.poll(context.Background(), p); err != nil {
			return nil, err
		}
		c := p.run
		p.run = nil
		switch {
		case c == nil:
		case thread:
			s.srv.dispatch(c)
		case s.srv.admit(c):
			return c, nil
		}
	}
}

// standby has a worker poll.
func (s *serverConn) standby() bool {
	if s.enter() != nil {
		return false
	}
	defer s.leave()
	s.srv.spawn(job{poll: s})
	return true
}

// Waits says that the handler is about to wait for something that does not come over its
// connection, such as a disk: somebody else polls meanwhile. Without that, requests that arrive in
// the next milliseconds would wait for the handler.
func (c *Call) Waits() { c.s.duty.Need() }

// settle waits until nothing is pending any more. A provider that moves data in Post has completed
// what was posted already: then this goroutine takes the completions itself and nobody has to be
// woken, twice, to tell it. Requests that come along with them go to workers.
func (s *serverConn) settle(w *wait.Count) error {
	if s.caps.PostMoves && w.Busy() && s.enter() == nil {
		p := s.node.pollers.Get().(*poller)
		for w.Busy() {
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
	if w.Busy() {
		s.duty.Need()
	}
	return w.Wait()
}
