package sim

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const refused = "the peer's key does not allow this access"

// writeLocked places a Write in the peer's memory, or refuses it.
func (e *endpoint) writeLocked(w *work) {
	dst := e.peer.openLocked(w.wr.Remote, fabric.RemoteWrite)
	if dst == nil {
		w.result = kindErr(errs.Perm, e, refused)
		if e.domain.caps.RefusalEnds {
			e.settleLocked(w)
			e.breakLocked(refused)
		}
		return
	}
	if err := w.gather(dst); err != nil {
		e.shortFileLocked(w, err)
		return
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
		Op: fabric.OpRecv, Context: r.Context, EP: e.peer, Len: len(dst), Imm: w.wr.Imm,
		WithImm: true,
	}, w.wr.Flags&fabric.FlagSolicited != 0)
}

// readLocked fetches the data of the started Read number i and completes it.
func (e *endpoint) readLocked(i int) {
	w := e.reads[i]
	e.reads = slices.Delete(e.reads, i, i+1)
	src := e.peer.openLocked(w.wr.Remote, fabric.RemoteRead)
	ends := src == nil && e.domain.caps.RefusalEnds
	if src == nil {
		w.result = kindErr(errs.Perm, e, refused)
	}
	for _, s := range w.wr.Local {
		src = src[copy(s.Buf, src):]
	}
	e.completeLocked(w)
	if ends {
		e.settleLocked(nil)
		e.breakLocked(refused)
	}
}
