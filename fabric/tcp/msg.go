package tcp

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := provider.CheckRecv[*region](&e.Endpoint, recvs); err != nil {
		return err
	}
	first, err := e.recvs.Post(&e.Endpoint, recvs)
	if first {
		e.recvCQ.Kick() // a message may have waited for it
	}
	return err
}

func (e *endpoint) failRecv(r *fabric.Recv) {
	e.recvCQ.Push(&fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e, Err: e.Cause(),
	}, false)
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
	r, err := e.recvs.AwaitTake()
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
	if !e.rx.batch.Add(&e.recvCQ.Queue, c) {
		e.recvCQ.Push(c, h.flags&frameSolicited != 0)
	}
}
