package tcp

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// handleWrite places the payload in the granted memory that the header names, or refuses it.
func (e *endpoint) handleWrite(h *header) error {
	if h.length > 0 {
		g, mem := e.acquire(h, fabric.RemoteWrite)
		if g == nil {
			return e.refuseWrite(h)
		}
		err := e.rx.placeOne(mem)
		g.Release()
		if err == errGone {
			return e.refusedWrite(h)
		}
		if err != nil {
			return err
		}
	}
	if h.kind == frameWriteImm {
		if err := e.takeRecv(); err != nil {
			return err
		}
		e.received(h, &fabric.Completion{Len: int(h.length), Imm: h.imm, WithImm: true})
	}
	e.carriedOut(h)
	return nil
}

// grant is a grant of this side's that is in use.
type grant = provider.Grant[*endpoint]

// acquire opens the memory that a frame names, or returns nil.
func (e *endpoint) acquire(h *header, need fabric.Rights) (*grant, []byte) {
	return e.d.grants.Acquire(e, h.key, h.addr, int(h.length), need)
}

// refuseWrite drops the payload and queues the refusal, which must leave before any acknowledgement
// that covers it: so both change under mu.
func (e *endpoint) refuseWrite(h *header) error {
	if err := e.rx.skip(int(h.length)); err != nil {
		return err
	}
	return e.refusedWrite(h)
}

// refusedWrite is refuseWrite for a payload that was dropped already.
func (e *endpoint) refusedWrite(h *header) error {
	e.mu.Lock()
	full := len(e.refusals) == refusalMax
	if !full {
		e.refusals = append(e.refusals, e.rxCount.Add(1))
	}
	e.mu.Unlock()
	if full {
		return protocolErr("more requests outstanding than any queue holds")
	}
	e.wantsAck(h)
	e.rx.mustSend = true
	return nil
}

// handleWriteRefused marks the refused Write, which completes when its turn comes.
func (e *endpoint) handleWriteRefused(h *header) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.key > e.started {
		return protocolErr("a refusal of what was never sent")
	}
	if h.key <= e.acked {
		return protocolErr("a refusal of what cannot be refused")
	}
	if e.reqs.Started.Len() == 0 || h.key < (*e.reqs.Started.At(0)).Number {
		return nil // it was over early: who posted it did not want to know
	}
	w := *e.reqs.Started.At(int(h.key - (*e.reqs.Started.At(0)).Number))
	if w.Op == fabric.OpSend || w.Err != nil {
		return protocolErr("a refusal of what cannot be refused")
	}
	w.Err = e.refusedErr(h)
	return nil
}

func (e *endpoint) refusedErr(h *header) error {
	return errs.Newf(errs.Kind(h.imm), "fabric", e.Name(),
		"the peer's key does not allow this access")
}

// handleRead queues a Read of the peer's; its key is looked at when the answer is made.
func (e *endpoint) handleRead(h *header) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers.Full() {
		return protocolErr("more reads outstanding than the read depth")
	}
	e.answers.Push(*h)
	e.rx.mustSend = true
	return nil
}

// gatherAnswerLocked adds the answer to the peer's oldest Read. The grant is in use until the
// batch is written.
func (e *endpoint) gatherAnswerLocked(ack uint32) bool {
	if e.answers.Len() == 0 {
		return false
	}
	h := e.answers.Pop()
	e.answerInto(&e.tx, &h, ack)
	return true
}

// answerInto adds the answer to a Read to a batch.
func (e *endpoint) answerInto(t *batch, h *header, ack uint32) {
	var mem []byte
	if h.length > 0 {
		var g *grant
		g, mem = e.acquire(h, fabric.RemoteRead)
		if g == nil {
			t.add(&header{kind: frameReadRefused, tag: h.tag, imm: uint32(errs.Perm), ack: ack})
			return
		}
		t.grants[t.used] = g
		t.used++
	}
	t.add(&header{kind: frameReadData, tag: h.tag, length: h.length, ack: ack})
	t.out.add(mem)
}

// handleReadData scatters an answer, which comes on s, over the pieces of its Read. It tells
// whether that leaves something to be sent.
func (e *endpoint) handleReadData(s *stream, h *header) (bool, error) {
	e.mu.Lock()
	w := e.reqs.Reads[h.tag]
	bad := w == nil || w.Length != int(h.length) || w.Own.filling // by an answer on another socket
	if !bad {
		w.Own.filling = true
	}
	e.mu.Unlock()
	if bad {
		return false, protocolErr("an answer to a read that was never sent")
	}
	err := s.place(w.Bufs)
	if err != nil && err != errGone {
		return false, err
	}
	return e.endRead(h.tag, errs.Wrap("tcp.Read", "", err)), nil
}

func (e *endpoint) handleReadRefused(h *header) (bool, error) {
	e.mu.Lock()
	w := e.reqs.Reads[h.tag]
	bad := w == nil || w.Own.filling
	if !bad {
		w.Own.filling = true
	}
	e.mu.Unlock()
	if bad {
		return false, protocolErr("a refusal of a read that was never sent")
	}
	return e.endRead(h.tag, e.refusedErr(h)), nil
}

// endRead completes a Read. Requests may have waited for that: it tells so.
func (e *endpoint) endRead(tag uint16, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.reqs.EndRead(int(tag))
	w.Err = err
	e.completeLocked(w)
	return e.reqs.Posted.Len() > 0
}
