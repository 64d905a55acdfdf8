package tcp

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/ring"
)

// recvQueue holds the posted receives of an endpoint.
type recvQueue struct {
	mu     sync.Mutex
	first  sync.Cond // the first PostRecv, or death
	ring   ring.Ring[fabric.Recv]
	posted bool // PostRecv was called: from now on a message must find a receive
	dead   bool // takes no more
}

func (q *recvQueue) open(depth int) {
	q.ring = ring.New[fabric.Recv](depth)
	q.first.L = &q.mu
}

// die ends a wait for the first receive.
func (q *recvQueue) die() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = true
	q.first.Broadcast()
}

// take gives the oldest receive to an incoming message. Before the first PostRecv it waits.
func (q *recvQueue) take() (fabric.Recv, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.posted && !q.dead {
		q.first.Wait()
	}
	switch {
	case q.dead:
		return fabric.Recv{}, errs.New(errs.Disconnected, "tcp", "", nil) // die knows better
	case q.ring.Len() == 0:
		return fabric.Recv{}, protocolErr("a message came and no receive was posted")
	}
	return q.ring.Pop(), nil
}

// flush completes what is left.
func (q *recvQueue) flush(e *endpoint, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.rx.taken { // the reader stopped in the middle of it
		e.rx.taken = false
		e.failRecv(&e.rx.recv, err)
	}
	for q.ring.Len() > 0 {
		r := q.ring.Pop()
		e.failRecv(&r, err)
	}
}

func (e *endpoint) failRecv(r *fabric.Recv, err error) {
	e.recvCQ.push(&fabric.Completion{Op: fabric.OpRecv, Context: r.Context, EP: e, Err: err}, false)
}

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := fabric.CheckRecv(&e.d.caps, recvs); err != nil {
		return err
	}
	for i := range recvs {
		if !e.owns(recvs[i].Reg) {
			return e.foreign("fabric.PostRecv")
		}
	}
	switch e.recvs.post(e, recvs) {
	case errs.OK:
		return nil
	case errs.Again:
		return errs.Newf(errs.Again, "fabric.PostRecv", e.name, "the receive queue is full")
	}
	return e.deadErr("fabric.PostRecv")
}

// post queues all of recvs or tells why not.
func (q *recvQueue) post(e *endpoint, recvs []fabric.Recv) errs.Kind {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead {
		return errs.Closed
	}
	if len(recvs) > e.cfg.RecvDepth-int(e.recvHeld.Load()) {
		return errs.Again
	}
	e.recvHeld.Add(int32(len(recvs)))
	for i := range recvs {
		q.ring.Push(recvs[i])
	}
	if !q.posted {
		q.posted = true
		q.first.Broadcast()
	}
	return errs.OK
}

// handleSend places a message in the oldest receive.
func (e *endpoint) handleSend(h *header) error {
	if err := e.takeRecv(); err != nil {
		return err
	}
	buf := e.rx.recv.Buf
	if int(h.length) > len(buf) {
		return protocolErr("a message was longer than its receive")
	}
	if err := e.rx.placeOne(buf[:h.length]); err != nil {
		return err
	}
	e.received(h, &fabric.Completion{Len: int(h.length), Imm: h.imm})
	e.carriedOut(h)
	return nil
}

// takeRecv makes the oldest receive the one that is being filled.
func (e *endpoint) takeRecv() error {
	if !e.rx.flowing {
		e.speak() // it may wait now
	}
	r, err := e.recvs.take()
	if err != nil {
		return err
	}
	e.rx.recv, e.rx.taken, e.rx.flowing = r, true, true
	return nil
}

// received completes the receive that is being filled.
func (e *endpoint) received(h *header, c *fabric.Completion) {
	c.Op, c.Context, c.EP = fabric.OpRecv, e.rx.recv.Context, e
	e.rx.recv, e.rx.taken = fabric.Recv{}, false
	if e.recvCQ.push(c, h.flags&frameSolicited != 0) {
		e.rx.woke = true
	}
}
