package shm

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := provider.CheckRecv[*region](&e.Endpoint, recvs); err != nil {
		return err
	}
	first, err := e.recvs.Post(&e.Endpoint, recvs)
	if first { // messages may have waited for it
		e.progress()
	}
	return err
}

func (e *endpoint) failRecv(r *fabric.Recv) {
	e.recvCQ.Push(&fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e, Err: e.Cause(),
	}, false)
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
	r, err := e.recvs.Take()
	if err != nil {
		e.rx.blocked = err == errLater
		return err
	}
	e.rx.recv, e.rx.taken = r, true
	return nil
}

// receive completes the receive that is being filled or, for an immediate, the oldest one.
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
