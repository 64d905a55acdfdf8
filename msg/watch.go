package msg

import (
	"sync/atomic"
	"time"
)

// watchPeriod is how late a caller that polls may notice that its context has ended.
const watchPeriod = 5 * time.Millisecond

// watch looks at the contexts of callers that poll, for all connections of a node, so that a call
// needs neither a timer nor a goroutine of its own. It sleeps while there are none.
type watch struct {
	active atomic.Bool
	kick   chan struct{} // one token: somebody polls
}

// begin is told by a caller before it polls.
func (w *watch) begin() {
	if !w.active.Load() {
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// watchCalls is the watch's goroutine.
func (n *Node) watchCalls() {
	defer close(n.watched)
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-n.stop:
			return
		case <-n.watch.kick:
		}
		n.watch.active.Store(true)
		tick.Reset(watchPeriod)
		for more := true; more; more = n.visitCalls() {
			select {
			case <-n.stop:
				return
			case <-tick.C:
			}
		}
	}
}

// visitCalls looks at every connection once and tells whether anybody polls. When nobody does it is
// over, unless somebody began before that was known.
func (n *Node) visitCalls() bool {
	if n.lookAtCalls() {
		return true
	}
	n.watch.active.Store(false)
	more := n.lookAtCalls()
	if more {
		n.watch.active.Store(true)
	}
	return more
}

func (n *Node) lookAtCalls() bool {
	n.mu.Lock()
	conns := n.conns[:0]
	for l := range n.links {
		if c, ok := l.role.(*Conn); ok {
			conns = append(conns, c)
		}
	}
	n.mu.Unlock()
	n.conns = conns
	any := false
	for _, c := range conns {
		any = c.look() || any
	}
	clear(n.conns)
	return any
}
