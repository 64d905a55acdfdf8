package sim

import "github.com/sluice-storage/sluice/fabric"

// sendLocked delivers a message into the peer's oldest receive.
func (e *endpoint) sendLocked(w *work) {
	r, ok := e.peer.takeRecvLocked()
	if !ok {
		e.protocolLocked("a message came and no receive was posted")
		return
	}
	n := w.Length
	if n > len(r.Buf) {
		e.peer.returnRecvLocked(r)
		e.protocolLocked("a message was longer than its receive")
		return
	}
	w.Gather(r.Buf[:n], nil)
	e.peer.receivedLocked(w, fabric.Completion{Context: r.Context, Len: n})
}

// returnRecvLocked puts a receive back that could not be used: it fails with the others.
func (e *endpoint) returnRecvLocked(r fabric.Recv) {
	e.recvs = append([]fabric.Recv{r}, e.recvs...)
}

// receivedLocked completes a receive that w has consumed.
func (e *endpoint) receivedLocked(w *work, c fabric.Completion) {
	c.Op, c.EP, c.Imm = fabric.OpRecv, e, w.Imm
	e.recvCQ.pushLocked(&c, w.Flags&fabric.FlagSolicited != 0)
}

func (e *endpoint) takeRecvLocked() (fabric.Recv, bool) {
	if len(e.recvs) == 0 {
		return fabric.Recv{}, false
	}
	r := e.recvs[0]
	e.recvs = e.recvs[:copy(e.recvs, e.recvs[1:])]
	return r, true
}
