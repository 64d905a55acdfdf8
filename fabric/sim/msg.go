package sim

import "github.com/sluice-storage/sluice/fabric"

// sendLocked delivers a message into the peer's oldest receive.
func (e *endpoint) sendLocked(w *work) {
	r, ok := e.peer.takeRecvLocked()
	if !ok {
		e.protocolLocked("a message came and no receive was posted")
		return
	}
	n := w.wr.Len()
	if n > len(r.Buf) {
		e.peer.recvs = append([]fabric.Recv{r}, e.peer.recvs...) // it fails with the others
		e.protocolLocked("a message was longer than its receive")
		return
	}
	at := 0
	for _, s := range w.wr.Local {
		at += copy(r.Buf[at:], s.Buf)
	}
	e.peer.cfg.RecvCQ.(*cq).pushLocked(fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e.peer, Len: n, Imm: w.wr.Imm,
	})
}

func (e *endpoint) takeRecvLocked() (fabric.Recv, bool) {
	if len(e.recvs) == 0 {
		return fabric.Recv{}, false
	}
	r := e.recvs[0]
	e.recvs = e.recvs[:copy(e.recvs, e.recvs[1:])]
	return r, true
}
