package msg

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

// This file is how a server polls its connections and runs its handlers. Which goroutine polls,
// also while a handler runs, is the Duty's decision (package progress).

// admit counts a call and tells whether it may run. When it is false the call was refused, or waits
// while MaxCalls run.
func (s *Server) admit(c *Call) bool {
	c.s.carried.calls.Add(1)
	s.here.Add(1)
	if s.draining.Load() {
		c.refuse(errs.New(errs.Shutdown, "msg.Serve", s.Addr(), nil))
		return false
	}
	if s.calls == nil {
		return true
	}
	r := gate.Request{Client: gate.Client{ID: c.s.id}, Level: c.level}
	if s.calls.TryEnter(&c.ticket, r) {
		return true
	}
	c.ctx.Fix(time.Time{}) // its deadline runs while it waits
	in, err := s.calls.Queue(&c.ticket, r)
	if err != nil {
		c.refuse(err)
	}
	return in
}

// admitted is called when a call that has waited may run, or with the reason why not. It is called
// under the gate's lock.
func (c *Call) admitted(err error) { c.s.srv.workers.Go(job{call: c, refused: err}) }

// dispatch gives a call to a worker. It does not block.
func (s *Server) dispatch(c *Call) {
	s.counts.handed.Add(1)
	if s.admit(c) {
		s.workers.Go(job{call: c})
	}
}

// work does a job: a worker's.
func (s *Server) work(j job) {
	switch {
	case j.poll != nil:
		j.poll.pollHere()
	case j.refused != nil:
		j.call.refuse(j.refused)
	default:
		s.run(j.call)
	}
}

// run serves a call that was admitted. Whatever the handler does, the call is answered and its
// context ends.
func (s *Server) run(c *Call) {
	err := c.ctx.Ended() // it may have waited
	if err == nil {
		err = c.decode()
	}
	if err != nil {
		_ = c.Fail(err)
	} else {
		s.handle(c)
	}
	c.giveUp()
	c.over()
}

// handle runs the handler.
func (s *Server) handle(c *Call) {
	if c.OneWay() {
		s.counts.oneWay.Add(1)
	}
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

// refuse answers a call without a handler.
func (c *Call) refuse(err error) {
	_ = c.Fail(err) // nothing was pushed: it does not wait
	c.over()
}

// over ends a call that is in no handler.
func (c *Call) over() {
	s := c.s.srv
	c.ctx.End(context.Canceled)
	c.unref()
	s.left()
}

// left ends what here counts.
func (s *Server) left() {
	if s.here.Add(-1) == 0 && s.draining.Load() {
		s.setDrained()
	}
}

// setDrained tells Close that no call is left.
func (s *Server) setDrained() { s.drainOnce.Do(func() { close(s.drained) }) }

// pollHere empties the completion queue on this goroutine, and serves one request of each batch on
// it too: a request that comes alone is answered without waking anybody. Others of a batch go to
// workers. It ends with the link, or when another goroutine polls.
func (s *serverConn) pollHere() {
	s.called.Store(false)
	if s.enter() != nil {
		return
	}
	defer s.leave()
	thread := s.node.opts.Progress == ProgressThread
	if thread {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // the goroutine may serve as a worker afterwards
	}
	var r *round
	for s.duty.Take() {
		c, err := s.pollOne(thread)
		if err != nil {
			s.fail(err)
			return // with the duty: there is nothing to poll any more
		}
		if c == nil {
			if r == nil {
				r = &round{s: s}
			}
			r.fill(&s.scratch)
		}
		s.duty.Serve()
		if c == nil {
			r.serve()
		} else {
			s.srv.run(c)
		}
	}
}

// pollOne polls until there is a call for this goroutine, or several quick ones: then it returns
// no call. With a thread of its own the goroutine serves none.
func (s *serverConn) pollOne(thread bool) (*Call, error) {
	p := &s.scratch
	for {
		if err := s.poll(context.Background(), p); err != nil {
			return nil, err
		}
		if len(p.quick) == 1 && p.run == nil {
			p.run, p.quick = p.quick[0], p.quick[:0] // alone
		}
		c := p.run
		switch {
		case thread:
			s.dispatchAll(p)
		case len(p.quick) > 0:
			if c != nil {
				p.run = nil
				s.srv.dispatch(c)
			}
			return nil, nil
		case c != nil:
			p.run = nil
			if s.srv.admit(c) {
				return c, nil
			}
		}
	}
}

// standby has a worker poll. One that was called and has not run yet, since others kept the
// processors, is enough: it takes the duty when it runs, if that is free then.
func (s *serverConn) standby() bool {
	if s.enter() != nil {
		return false
	}
	defer s.leave()
	if !s.called.Swap(true) {
		s.srv.workers.Go(job{poll: s})
	}
	return true
}

// pressing tells whether a handler may wait without having said so.
func (s *serverConn) pressing() bool { return !s.srv.opts.Announces }

// Blocks implements wait.Blocker.
func (c *Call) Blocks() {
	if c.s.srv.opts.Announces {
		c.Waits()
	}
}

// Waits announces that the handler is about to wait for something that does not come over its
// connection, such as a disk: another goroutine polls meanwhile. Without that, requests that arrive
// in the next milliseconds would wait for the handler.
func (c *Call) Waits() {
	if c.round != nil {
		c.round.scatter()
	}
	c.s.duty.EnsurePolling()
}
