package msg

import (
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/wait"
)

// This file tracks the signalled work requests of a server.

// startOp adds an op to the table and returns its context.
func (s *serverConn) startOp(o op) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idleOps) - 1
	invariant.Check(last >= 0, "msg: more operations than places and calls")
	i := s.idleOps[last]
	s.idleOps = s.idleOps[:last]
	s.serial = (s.serial + 1) & serialMask
	o.serial = s.serial
	s.ops[i] = o
	s.busyOps++
	return kindOp | o.serial<<16 | uint64(i)
}

// serialMask is what fits between the kind and the index of a context.
const serialMask = 1<<40 - 1

// dropOp undoes startOp for work that was not posted. It is false when the end of the link
// has ended the op already.
func (s *serverConn) dropOp(context uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(context & 0xffff)
	if s.ops[i].left == 0 || s.ops[i].serial != context>>16&serialMask {
		return false
	}
	s.freeOpLocked(i)
	return true
}

func (s *serverConn) freeOpLocked(i int) {
	s.ops[i] = op{}
	s.idleOps = append(s.idleOps, int32(i))
	s.busyOps--
}

// allLeft makes opDone end an op whatever is missing.
const allLeft = -1

// opDone counts n completions of an op and ends it with the last one.
func (s *serverConn) opDone(i, n int, err error) {
	s.mu.Lock()
	o := s.ops[i]
	if o.left == 0 {
		s.mu.Unlock()
		return
	}
	if n == allLeft {
		n = o.left
	}
	s.ops[i].left -= n
	over := s.ops[i].left == 0
	if over {
		s.freeOpLocked(i)
	}
	s.mu.Unlock()
	if over && o.call != nil {
		s.places.Give(0, int64(o.places))
	}
	if err != nil && o.write {
		o.call.writeFailed(o.gen, err)
	}
	if o.wait != nil {
		o.wait.Done(n, err)
	}
	if over && o.frees {
		o.call.free()
	}
	if over && o.reply {
		o.call.unref()
	}
}

func (c *Call) writeFailed(gen uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.failure
	if later := int32(gen - f.gen); later > 0 || later == 0 && f.err == nil {
		*f = failure{gen, err}
	}
}

// failed is the first failure of a write of this request.
func (c *Call) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure.gen != c.gen {
		return nil
	}
	return c.failure.err
}

// unref drops a reference to the call; without any it serves another request.
func (c *Call) unref() {
	if c.refs.Add(-1) == 0 {
		c.s.recycle(c)
	}
}

// awaitOps waits until nothing that w counts is pending. A provider that moves data in Post has
// completed it already: then this goroutine polls the completions itself, which saves two wake-ups.
// Requests that it finds with them go to workers.
func (s *serverConn) awaitOps(w *wait.Count) error {
	if s.caps.PostMoves && w.Busy() {
		s.reap(w.Busy)
	}
	if w.Busy() {
		s.duty.EnsurePolling()
	}
	return w.Wait()
}

// reapOps handles what has completed already, so that no other goroutine has to be woken for it.
func (s *serverConn) reapOps() {
	if s.caps.PostMoves {
		s.reap(func() bool { return false })
	}
}

// reap handles completions that are there, while more is true, and one batch at least.
func (s *serverConn) reap(more func() bool) {
	if s.enter() != nil {
		return
	}
	p := s.node.pollers.Get().(*poller)
	for {
		n := s.cq.Poll(p.batch[:])
		if n == 0 {
			break
		}
		s.handle(p, n)
		s.dispatchAll(p)
		if !more() {
			break
		}
	}
	*p = poller{} // it must not keep the endpoint alive
	s.node.pollers.Put(p)
	s.leave()
}
