package provider

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/ring"
)

// RecvQueue holds the posted receives of an endpoint, oldest first. Before the first PostRecv a
// message has to wait; after it a message that finds no receive ends the connection. Safe for
// concurrent use; its lock comes after the endpoint's.
type RecvQueue struct {
	mu     sync.Mutex
	first  sync.Cond // posted or dead became true
	ring   ring.Ring[fabric.Recv]
	posted bool // PostRecv was called: from now on a message must find a receive
	dead   bool // takes no more
}

// ErrEarly is what Take returns before the first PostRecv: the message has to wait.
var ErrEarly = errs.New(errs.Again, "fabric.Recv", "", nil)

// Open makes an empty queue for depth receives.
func (q *RecvQueue) Open(depth int) {
	q.ring = ring.New[fabric.Recv](depth)
	q.first.L = &q.mu
}

// Post queues all of recvs, which CheckRecv has checked, or none. first: it is the first post,
// which messages may have waited for.
func (q *RecvQueue) Post(e *Endpoint, recvs []fabric.Recv) (first bool, err error) {
	switch first, kind := q.post(e, recvs); kind {
	case errs.OK:
		return first, nil
	case errs.Again:
		return false, e.Full("fabric.PostRecv")
	}
	return false, e.Check("fabric.PostRecv")
}

func (q *RecvQueue) post(e *Endpoint, recvs []fabric.Recv) (first bool, kind errs.Kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.dead:
		return false, errs.Closed
	case len(recvs) > e.RecvRoom():
		return false, errs.Again
	}
	e.HoldRecvs(len(recvs))
	for i := range recvs {
		q.ring.Push(recvs[i])
	}
	if first = !q.posted; first {
		q.posted = true
		q.first.Broadcast()
	}
	return first, errs.OK
}

// Ready tells whether messages may take receives.
func (q *RecvQueue) Ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.posted
}

// Take returns the oldest receive for an incoming message: ErrEarly where the message has to wait,
// errs.Protocol where no receive is posted, errs.Disconnected when the endpoint is dead.
func (q *RecvQueue) Take() (fabric.Recv, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked()
}

// AwaitTake is Take that waits for the first PostRecv, or for Die.
func (q *RecvQueue) AwaitTake() (fabric.Recv, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.posted && !q.dead {
		q.first.Wait()
	}
	return q.takeLocked()
}

func (q *RecvQueue) takeLocked() (fabric.Recv, error) {
	switch {
	case q.dead: // the endpoint knows why
		return fabric.Recv{}, errs.New(errs.Disconnected, "fabric.Recv", "", nil)
	case !q.posted:
		return fabric.Recv{}, ErrEarly
	case q.ring.Len() == 0:
		return fabric.Recv{}, errs.Newf(errs.Protocol, "fabric.Recv", "",
			"a message came and no receive was posted")
	}
	return q.ring.Pop(), nil
}

// Die makes Post and Take fail, and ends AwaitTake.
func (q *RecvQueue) Die() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = true
	q.first.Broadcast()
}

// Flush calls fail for each receive that is left, oldest first, after Die. fail is called with the
// queue's lock.
func (q *RecvQueue) Flush(fail func(*fabric.Recv)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ring.Len() > 0 {
		r := q.ring.Pop()
		fail(&r)
	}
}
