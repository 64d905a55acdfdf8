package nbd

import (
	"sync/atomic"
	"testing"
	"time"
)

// members counts the goroutines of the server's only connection.
func members(s *Server) int {
	c := s.snapshot()[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// TestMembersRetire: a connection that has calmed down keeps one that reads, and one for company.
func TestMembersRetire(t *testing.T) {
	f := newFake(mib)
	gate := make(chan struct{})
	f.setHook(func(string, int64) error { <-gate; return nil })
	s := serve(t, Config{ConnRequests: 8}, f.entry("x"))
	c := ready(t, s, "x", true)
	for range 8 {
		c.send(cmdRead, 0, 0, 1, nil)
	}
	eventually(t, "eight that run, and one that reads", func() bool { return members(s) == 9 })
	close(gate)
	for range 8 {
		c.receive(cmdRead, 0, 1)
	}
	eventually(t, "two left", func() bool {
		s.watchOnce(s.clock.Load())
		return members(s) == 2
	})
	c.want(nbdOK, cmdRead, 0, 0, 1, nil)
}

// TestTurnKept: nobody is woken up for a client that sends nothing before it has its answer.
func TestTurnKept(t *testing.T) {
	f := newFake(mib)
	s := serve(t, Config{}, f.entry("x"))
	c := ready(t, s, "x", true)
	for i := range 100 {
		c.want(nbdOK, cmdRead, 0, uint64(i), 1, nil)
		c.want(nbdOK, cmdWrite, 0, uint64(i), 1, []byte{1})
	}
	// A busy machine may have let the guardian step in once or twice.
	if n := members(s); n > 3 {
		t.Errorf("%d goroutines for one request at a time", n)
	}
}

// TestTurnTaken: who keeps his turn for too long loses it, and what comes behind him is answered,
// while he and those that follow him are stuck.
func TestTurnTaken(t *testing.T) {
	for _, stuck := range []uint16{cmdRead, cmdWrite, cmdFlush} {
		f := newFake(mib)
		var hold atomic.Bool
		gate := make(chan struct{})
		f.setHook(func(op string, off int64) error {
			if hold.Load() && off == 0 {
				<-gate
			}
			return nil
		})
		s := serve(t, Config{}, f.entry("x"))
		c := ready(t, s, "x", true)
		send := func() {
			switch stuck {
			case cmdRead:
				c.send(cmdRead, 0, 0, 1, nil)
			case cmdWrite:
				c.send(cmdWrite, 0, 0, 1, []byte{1})
			default:
				c.send(cmdFlush, 0, 0, 0, nil)
			}
		}
		for range 2 * quickRuns { // alone, and quick
			send()
			c.receive(stuck, 0, 1)
		}
		for range 3 * quickRuns { // several under way
			send()
		}
		for range 3 * quickRuns {
			c.receive(stuck, 0, 1)
		}
		hold.Store(true)
		send()
		for range 20 {
			time.Sleep(time.Millisecond)
			c.want(nbdOK, cmdRead, 0, 512, 1, nil)
		}
		send()
		c.want(nbdOK, cmdRead, 0, 512, 1, nil)
		hold.Store(false)
		close(gate)
		c.receive(stuck, 0, 1)
		c.receive(stuck, 0, 1)
	}
}
