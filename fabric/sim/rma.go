package sim

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const refused = "the peer's key does not allow this access"

// writeLocked places a Write in the peer's memory, or refuses it and lets the connection go on.
func (e *endpoint) writeLocked(w *work) {
	dst := e.peer.openLocked(w.wr.Remote, fabric.RemoteWrite)
	if dst == nil {
		w.result = kindErr(errs.Perm, e, refused)
		return
	}
	at := 0
	for _, s := range w.wr.Local {
		at += copy(dst[at:], s.Buf)
	}
	if w.wr.Op != fabric.OpWriteImm {
		return
	}
	r, ok := e.peer.takeRecvLocked()
	if !ok {
		e.protocolLocked("a write with immediate came and no receive was posted")
		return
	}
	e.peer.cfg.RecvCQ.(*cq).pushLocked(fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e.peer, Len: at, Imm: w.wr.Imm, WithImm: true,
	})
}

// readLocked fetches the data of the started Read number i and completes it.
func (e *endpoint) readLocked(i int) {
	w := e.reads[i]
	e.reads = slices.Delete(e.reads, i, i+1)
	src := e.peer.openLocked(w.wr.Remote, fabric.RemoteRead)
	if src == nil {
		w.result = kindErr(errs.Perm, e, refused)
	}
	for _, s := range w.wr.Local {
		src = src[copy(s.Buf, src):]
	}
	e.completeLocked(w)
}
