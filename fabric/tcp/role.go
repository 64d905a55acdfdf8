package tcp

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/visit"
)

// Who reads. Waking a sleeping goroutine costs as much as the network on one host, so the goroutine
// that sleeps in CQ.Wait for an endpoint reads the endpoint's socket itself, where it can: the
// queue serves this endpoint alone, and the context of the wait cannot end. It handles frames that
// came in one read, and large ones; what is cut in the middle of a header or a small payload it
// leaves to the endpoint's own reader, the keeper.
//
// The right to read is the role. The keeper holds it while nobody waits. When a frame of the
// keeper's woke a waiter that could have read it, the keeper lets the role go, and the waiter takes
// it up when it comes back to Wait. Who leaves Wait lets it go too. If nobody takes it for one to
// two visits the keeper does, and does not let go again for a while: its user has other
// things to do. The domain's watch looks for such roles, so that letting go costs no timer.

const (
	keeperStays = 64 // at most so many frames the keeper keeps the role after it had to step in
	waiterHolds = 64 // a waiter that took it so often in a row has made good for that
)

type holder uint8

const (
	nobody holder = iota
	keeper
	waiter
)

// role is the right to use an endpoint's rxState and to read its socket.
type role struct {
	watch *visit.Visitor[*role]
	wake  chan struct{} // one token: the keeper has the role now

	mu      sync.Mutex
	by      holder
	dead    bool   // no more waiters
	watched bool   // the watch knows it
	turns   uint64 // counts every change
	seen    uint64 // turns when the watch last looked
	err     error  // what a waiter found that ends the connection
	stays   int    // frames for which the keeper keeps the role
	steps   int    // frames that it kept the role for when it last had to step in
	held    int    // how often waiters took the role since
}

func (r *role) open(w *visit.Visitor[*role]) {
	r.by = keeper
	r.watch = w
	r.wake = make(chan struct{}, 1)
}

// take gives the role to a waiter.
func (r *role) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by != nobody || r.dead {
		return false
	}
	r.by = waiter
	r.turns++
	if r.held++; r.held >= waiterHolds {
		r.steps = 0
	}
	return true
}

// letGo leaves the role to who comes first.
func (r *role) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		r.keeperLocked()
		return
	}
	r.by = nobody
	r.turns++
	if !r.watched {
		r.watched, r.seen = true, r.turns
		r.watch.Add(r)
	}
}

// Look is the watch's visit: it calls the keeper if nobody has had the role since the last one, and
// tells whether to come again. A role that a waiter holds for long needs no watching: letting go
// reports it anew.
func (r *role) Look() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead || r.by == keeper || r.turns == r.seen {
		if r.by == nobody {
			r.steps = min(2*r.steps+1, keeperStays) // once is nothing, always is a habit
			r.stays, r.held = r.steps, 0
			r.keeperLocked()
		}
		r.watched = false
		return false
	}
	r.seen = r.turns
	return true
}

// pass gives the role from a waiter to the keeper, with an error if there was one.
func (r *role) pass(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	r.keeperLocked()
}

func (r *role) keeperLocked() {
	r.by = keeper
	r.turns++
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// die keeps waiters away, and calls the keeper if nobody reads.
func (r *role) die() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	if r.by == nobody {
		r.keeperLocked()
	}
}

// mayLetGo tells the keeper, after a frame that woke a waiter, whether to let the role go.
func (r *role) mayLetGo() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stays > 0 {
		r.stays--
		return false
	}
	return !r.dead
}

// resume waits until the keeper has the role again.
func (r *role) resume() error {
	<-r.wake
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// keep is the keeper's loop: it reads frames until the connection ends.
func (e *endpoint) keep() error {
	for {
		if err := e.next(); err != nil {
			return err
		}
		if !e.rx.woke {
			continue
		}
		e.rx.woke = false
		if e.rx.at != e.rx.to || !e.role.mayLetGo() {
			continue
		}
		e.speak()
		e.role.letGo()
		if err := e.role.resume(); err != nil {
			return err
		}
	}
}

// readFor reads on behalf of q, for a waiter, until q has something or was closed. It returns false
// when the waiter has to sleep because somebody else reads.
func (e *endpoint) readFor(q *cq) bool {
	if e.lanes.count > 0 || !e.role.take() { // who waits for lanes cannot be interrupted
		return false
	}
	for {
		err := e.handleCarried()
		if err != nil {
			e.role.pass(err)
			return false
		}
		if e.rx.at != e.rx.to { // the rest is still to come, perhaps never
			e.role.pass(nil)
			return false
		}
		if !q.startReading(e) {
			e.speak()
			if q.crowded() {
				e.role.pass(nil)
			} else {
				e.role.letGo()
			}
			return true
		}
		e.rx.brisk.allow(q.opts.Spin)
		err = e.rx.fill()
		e.rx.brisk.end()
		if q.stopReading() {
			e.rearm()
			err = nil // if there was another one it comes again
		}
		if err != nil {
			e.role.pass(err)
			return false
		}
	}
}

// handleCarried handles the frames that are complete in the carry buffer, and that cannot block. A
// large one it places whole, since the bytes are on their way: waiting for them here is quicker
// than waking the keeper, and a right that is revoked meanwhile waits for the placement in either
// case.
func (e *endpoint) handleCarried() error {
	x := &e.rx
	for x.to-x.at >= headerBytes {
		b := [headerBytes]byte(x.carry[x.at:])
		h, err := decodeHeader(&b, e.Config.Hello.MaxMessage)
		if err != nil {
			return err
		}
		missing := x.to-x.at < headerBytes+h.payload()
		if missing && h.payload() < carryBytes || !x.flowing && h.takesRecv() {
			return nil
		}
		x.at += headerBytes
		if err := e.handle(&h); err != nil {
			return err
		}
	}
	x.woke = false
	return nil
}

// rearm takes back the deadline with which somebody interrupted a reading waiter.
func (e *endpoint) rearm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Dead(): // die set one for good
	case e.broken:
		_ = e.sock.conn.SetReadDeadline(time.Now().Add(e.d.opts.Linger))
	default:
		_ = e.sock.conn.SetReadDeadline(time.Time{})
	}
}
