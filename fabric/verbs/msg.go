//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := provider.CheckRecv[*region](&e.Endpoint, recvs); err != nil {
		return err
	}
	if err := e.postRecv(recvs); err != nil || len(recvs) == 0 {
		return err
	}
	if e.gate.announce() {
		e.tellReady()
	}
	return nil
}

func (e *endpoint) postRecv(recvs []fabric.Recv) error {
	e.recvMu.Lock()
	defer e.recvMu.Unlock()
	if e.Dead() {
		return e.Check("fabric.PostRecv")
	}
	if len(recvs) > e.RecvRoom() {
		return e.Full("fabric.PostRecv")
	}
	if len(recvs) == 0 {
		return nil
	}
	e.HoldRecvs(len(recvs))
	for i := range recvs {
		n := e.numberRecvLocked(recvSlot{context: recvs[i].Context})
		e.stageIn.add(&recvs[i], e.recvID(n), e.dev)
	}
	if err := e.stageIn.post(e.qp); err != nil {
		e.Die(errs.Disconnected, "the device takes no receives: "+err.Error())
	}
	return nil
}

func (e *endpoint) numberRecvLocked(slot recvSlot) uint32 {
	n := e.recvNext.Load()
	e.recvs[n&uint32(len(e.recvs)-1)] = slot
	e.recvNext.Store(n + 1)
	return n
}

// received handles a receive's completion, under recvCQ.mu. It tells whether the user gets one.
func (e *endpoint) received(w *done, c *fabric.Completion) bool {
	_ = e.recvNext.Load() // what was recorded before the receive was posted is visible now
	number := uint32(w.id)
	slot := &e.recvs[number&uint32(len(e.recvs)-1)]
	e.rq.seen = number + 1
	if w.status != 0 {
		e.rq.failed = true
		slot.err = e.failedRecv(w.status)
		return false
	}
	if e.rq.failed || number != e.rq.next {
		return false // cannot be: receives are used in order
	}
	e.heard.Store(true)
	e.rq.next++
	if slot.marker { // a late message found it before the queue pair was stopped
		return false
	}
	*c = fabric.Completion{
		Op: fabric.OpRecv, Context: slot.context, EP: e,
		Len: w.length, Imm: w.imm, WithImm: w.withImm,
	}
	return true
}
