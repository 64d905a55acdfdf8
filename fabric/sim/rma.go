package sim

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const refused = "the peer's key does not allow this access"

// writeLocked places a Write in the peer's memory, or refuses it.
func (e *endpoint) writeLocked(w *work) {
	dst := e.peer.openLocked(w.Remote, fabric.RemoteWrite)
	if dst == nil {
		w.Err = kindErr(errs.Perm, e, refused)
		if e.net.opts.RefusalEnds {
			e.completeBeforeLocked(w)
			e.breakLocked(refused)
		}
		return
	}
	w.Gather(dst, nil)
	if w.Op != fabric.OpWriteImm {
		return
	}
	r, ok := e.peer.takeRecvLocked()
	if !ok {
		e.protocolLocked("a write with immediate came and no receive was posted")
		return
	}
	e.peer.receivedLocked(w, fabric.Completion{Context: r.Context, Len: len(dst), WithImm: true})
}

// readLocked fetches the data of the Read under a tag and completes it.
func (e *endpoint) readLocked(tag int) {
	w := e.reqs.EndRead(tag)
	src := e.peer.openLocked(w.Remote, fabric.RemoteRead)
	ends := src == nil && e.net.opts.RefusalEnds
	if src == nil {
		w.Err = kindErr(errs.Perm, e, refused)
	}
	w.Scatter(src, nil)
	e.completeLocked(w)
	if ends {
		e.completeBeforeLocked(nil)
		e.breakLocked(refused)
	}
}
