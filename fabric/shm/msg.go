package shm

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/ring"
)

// recvQueue holds the posted receives of an endpoint.
type recvQueue struct {
	mu     sync.Mutex
	ring   ring.Ring[fabric.Recv]
	posted bool // PostRecv was called: from now on a message must find a receive
	dead   bool // takes no more
}

func (q *recvQueue) open(depth int) { q.ring = ring.New[fabric.Recv](depth) }

func (q *recvQueue) die() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = true
}

// ready tells whether messages may take receives: not before the first PostRecv.
func (q *recvQueue) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.posted
}

// take gives the oldest receive to an incoming message; errLater before the first PostRecv.
func (q *recvQueue) take() (fabric.Recv, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.dead:
		return fabric.Recv{}, errs.New(errs.Disconnected, "shm", "", nil) // die knows better
	case !q.posted:
		return fabric.Recv{}, errLater
	case q.ring.Len() == 0:
		return fabric.Recv{}, protocolErr("a message came and no receive was posted")
	}
	return q.ring.Pop(), nil
}

// flush completes what is left.
func (q *recvQueue) flush(e *endpoint, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.rx.taken { // the end came in the middle of it
		e.rx.taken = false
		e.failRecv(&e.rx.recv, err)
	}
	for q.ring.Len() > 0 {
		r := q.ring.Pop()
		e.failRecv(&r, err)
	}
}

func (e *endpoint) failRecv(r *fabric.Recv, err error) {
	e.recvCQ.Push(&fabric.Completion{Op: fabric.OpRecv, Context: r.Context, EP: e, Err: err}, false)
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
	kind, first := e.recvs.post(e, recvs)
	switch kind {
	case errs.OK:
		if first { // messages may have waited for it
			e.progress()
		}
		return nil
	case errs.Again:
		return errs.Newf(errs.Again, "fabric.PostRecv", e.name, "the receive queue is full")
	}
	return e.deadErr("fabric.PostRecv")
}

// post queues all of recvs or tells why not, and whether it was the first time.
func (q *recvQueue) post(e *endpoint, recvs []fabric.Recv) (errs.Kind, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead {
		return errs.Closed, false
	}
	if len(recvs) > e.cfg.RecvDepth-int(e.recvHeld.Load()) {
		return errs.Again, false
	}
	e.recvHeld.Add(int32(len(recvs)))
	for i := range recvs {
		q.ring.Push(recvs[i])
	}
	first := !q.posted
	q.posted = true
	return errs.OK, first
}

// placeMessage copies a part of a message into the receive that is being filled.
func (e *endpoint) placeMessage(first *header, a, b []byte) error {
	x := &e.rx
	if int(first.length) > len(x.recv.Buf) {
		return protocolErr("a message was longer than its receive")
	}
	n := copy(x.recv.Buf[x.got:], a)
	copy(x.recv.Buf[x.got+n:], b)
	return nil
}

// takeRecv makes the oldest receive the one that is being filled.
func (e *endpoint) takeRecv() error {
	r, err := e.recvs.take()
	if err != nil {
		e.rx.blocked = err == errLater
		return err
	}
	e.rx.recv, e.rx.taken = r, true
	return nil
}

// receive completes a receive: that which is being filled, or for an immediate the oldest one.
func (e *endpoint) receive(h *header, imm bool) error {
	x := &e.rx
	if imm {
		if err := e.takeRecv(); err != nil {
			return err
		}
	}
	c := fabric.Completion{
		Op: fabric.OpRecv, Context: x.recv.Context, EP: e,
		Len: int(h.length), Imm: h.imm, WithImm: imm,
	}
	x.recv, x.taken = fabric.Recv{}, false
	e.recvCQ.Push(&c, h.flags&frameSolicited != 0)
	return nil
}
