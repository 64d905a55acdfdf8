package tcp

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// handleWrite places the payload in the granted memory that the header names, or refuses it.
func (e *endpoint) handleWrite(h *header) error {
	if h.length > 0 {
		g, mem := e.d.keys.acquire(e, h, fabric.RemoteWrite)
		if g == nil {
			return e.refuseWrite(h)
		}
		err := e.rx.placeOne(mem)
		g.release()
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

// refuseWrite drops the payload and queues the refusal, which must leave before any acknowledgement
// that covers it: so both change under mu.
func (e *endpoint) refuseWrite(h *header) error {
	if err := e.rx.skip(int(h.length)); err != nil {
		return err
	}
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
	if e.inflight.Len() == 0 || h.key < (*e.inflight.At(0)).number {
		return nil // it was over early: who posted it did not want to know
	}
	w := *e.inflight.At(int(h.key - (*e.inflight.At(0)).number))
	if w.op == fabric.OpSend || w.err != nil {
		return protocolErr("a refusal of what cannot be refused")
	}
	w.err = e.refusedErr(h)
	return nil
}

func (e *endpoint) refusedErr(h *header) error {
	return errs.Newf(errs.Kind(h.imm), "fabric", e.name,
		"the peer's key does not allow this access")
}

// startReadLocked gives a Read a number under which its answer comes.
func (e *endpoint) startReadLocked(w *work, h *header) {
	tag := 0
	for e.reads[tag] != nil {
		tag++
	}
	e.reads[tag] = w
	e.readsOut++
	h.kind, h.tag = frameRead, uint16(tag)
	h.key, h.addr = w.remote.Key, w.remote.Addr
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
	if !e.answerByLaneLocked(&h) {
		e.answerInto(&e.tx, &h, ack)
	}
	return true
}

// answerInto adds the answer to a Read to a batch.
func (e *endpoint) answerInto(t *batch, h *header, ack uint32) {
	var mem []byte
	if h.length > 0 {
		var g *grant
		g, mem = e.d.keys.acquire(e, h, fabric.RemoteRead)
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
	w := e.reads[h.tag]
	bad := w == nil || w.length != int(h.length) || w.filling // by an answer on another socket
	if !bad {
		w.filling = true
	}
	e.mu.Unlock()
	if bad {
		return false, protocolErr("an answer to a read that was never sent")
	}
	if err := s.place(w.bufs); err != nil {
		return false, err
	}
	return e.endRead(h.tag, nil), nil
}

func (e *endpoint) handleReadRefused(h *header) (bool, error) {
	e.mu.Lock()
	w := e.reads[h.tag]
	bad := w == nil || w.filling
	if !bad {
		w.filling = true
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
	w := e.reads[tag]
	e.reads[tag] = nil
	e.readsOut--
	e.completeLocked(w, err)
	return e.queue.Len() > 0
}
