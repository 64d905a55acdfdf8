package sim

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// sendLocked delivers a message into the peer's oldest receive.
func (e *endpoint) sendLocked(w *work) {
	r, ok := e.peer.takeRecvLocked()
	if !ok {
		e.protocolLocked("a message came and no receive was posted")
		return
	}
	n := w.wr.Len()
	if n > len(r.Buf) {
		e.peer.returnRecvLocked(r)
		e.protocolLocked("a message was longer than its receive")
		return
	}
	if err := w.gather(r.Buf[:n]); err != nil {
		e.peer.returnRecvLocked(r)
		e.shortFileLocked(w, err)
		return
	}
	e.peer.cfg.RecvCQ.(*cq).pushLocked(fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e.peer, Len: n, Imm: w.wr.Imm,
	}, w.wr.Flags&fabric.FlagSolicited != 0)
}

// returnRecvLocked puts a receive back that could not be used: it fails with the others.
func (e *endpoint) returnRecvLocked(r fabric.Recv) {
	e.recvs = append([]fabric.Recv{r}, e.recvs...)
}

// gather brings together what a request carries. Only a file can fail, and what it has of the range
// may be there already then, as on a network.
func (w *work) gather(dst []byte) error {
	if w.wr.File.Len > 0 {
		_, err := w.wr.File.File.ReadAt(dst, w.wr.File.Off)
		if err != nil {
			return errs.New(errs.IO, "fabric.Post", w.wr.File.File.Name(), err)
		}
		return nil
	}
	for _, s := range w.wr.Local {
		dst = dst[copy(dst, s.Buf):]
	}
	return nil
}

// shortFileLocked ends the connection of a request whose file does not have its range.
func (e *endpoint) shortFileLocked(w *work, err error) {
	w.result = err
	e.settleLocked(w)
	e.breakLocked("a file did not have the range to be sent")
}

func (e *endpoint) takeRecvLocked() (fabric.Recv, bool) {
	if len(e.recvs) == 0 {
		return fabric.Recv{}, false
	}
	r := e.recvs[0]
	e.recvs = e.recvs[:copy(e.recvs, e.recvs[1:])]
	return r, true
}
