package tcp

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Writing: whoever has something to send while nobody is writing sets busy, makes a batch of
// frames and writes it without blocking: a poster, or the reader with its answers. What the
// socket does not take is left in tx for the writer goroutine, with busy still set, and so is
// what is left after a few batches, because a poster should not work for others for ever.

const (
	postBatches = 8
	refusalMax  = maxQueueDepth // a peer cannot have more requests outstanding
)

// pumpLocked writes what is queued, unless somebody is at it. It enters with mu and leaves without.
func (e *endpoint) pumpLocked() {
	if e.busy || e.broken {
		e.coalescing.met()
		e.mu.Unlock()
		return
	}
	e.coalesceLocked()
	for range postBatches {
		if e.Dead() || !e.gatherLocked() {
			e.restLocked()
			return
		}
		e.busy = true
		e.mu.Unlock()
		if err := e.tx.write(e.tx.call); err != nil {
			e.breakOff()
			return
		}
		if e.tx.left() {
			e.writerWake <- struct{}{} // never blocks: one token, taken by who gets busy
			return
		}
		e.mu.Lock()
		e.writtenLocked()
	}
	e.mu.Unlock()
	e.writerWake <- struct{}{}
}

// restLocked ends the writing of this caller.
func (e *endpoint) restLocked() {
	e.busy = false
	if e.Dead() {
		e.idle.Broadcast()
	}
	e.mu.Unlock()
}

// breakOff ends all writing after an error. The reader finds the reason, which may be a bye that is
// still on its way, but not for ever.
func (e *endpoint) breakOff() {
	e.tx.release()
	e.mu.Lock()
	e.broken = true
	if !e.Dead() {
		_ = e.sock.conn.SetReadDeadline(time.Now().Add(e.d.opts.Linger))
	}
	e.restLocked()
}

// writtenLocked runs when a batch is out.
func (e *endpoint) writtenLocked() {
	e.tx.release()
	e.sent = e.tx.number
	e.retireLocked()
}

// writer finishes what others could not write without blocking.
func (e *endpoint) writer() {
	defer e.d.Running.Done()
	for range e.writerWake {
		for {
			if err := e.tx.write(e.tx.callBlocking); err != nil || e.tx.left() {
				e.breakOff()
				break
			}
			e.mu.Lock()
			e.writtenLocked()
			if e.Dead() || !e.gatherLocked() {
				e.restLocked()
				break
			}
			e.mu.Unlock()
		}
	}
}

// gatherLocked makes the next batch and tells whether there is anything in it. Refusals come
// first (an acknowledgement must not overtake them), then answers and requests take turns.
func (e *endpoint) gatherLocked() bool {
	t := &e.tx
	t.reset()
	told := 0
	for ; told < len(e.refusals) && t.room(); told++ {
		number := e.refusals[told] // and no higher acknowledgement: the next may be refused too
		t.add(&header{
			kind: frameWriteRefused, key: number, imm: uint32(errs.Perm), ack: uint32(number),
		})
	}
	e.refusals = e.refusals[:copy(e.refusals, e.refusals[told:])]
	ack := uint32(e.rxCount.Load())
	for len(e.refusals) == 0 && t.room() {
		answered := e.gatherAnswerLocked(ack)
		if !(t.room() && e.gatherRequestLocked(ack)) && !answered {
			break
		}
	}
	late := t.frames == 0 || t.ack != ack
	if e.ackDue && late && len(e.refusals) == 0 && t.frames < batchFrames {
		t.add(&header{kind: frameAck, ack: ack})
	}
	if t.frames == 0 {
		return false
	}
	e.ackDue = e.ackDue && t.ack != ack
	t.number = e.started
	return true
}

// gatherRequestLocked adds the oldest queued request, if it may start.
func (e *endpoint) gatherRequestLocked(ack uint32) bool {
	w := e.reqs.Next()
	if w == nil {
		return false
	}
	h := header{length: uint32(w.Length), ack: ack}
	if w.Op == fabric.OpRead {
		tag := e.reqs.FreeTag()
		e.reqs.StartRead(tag)
		h.kind, h.tag = frameRead, uint16(tag)
		h.key, h.addr = w.Remote.Key, w.Remote.Addr
		e.tx.add(&h)
		return true
	}
	e.reqs.Posted.Pop()
	e.started++
	w.Number = e.started
	e.reqs.Started.Push(w)
	h.kind, h.imm = frameSend, w.Imm
	if w.Op != fabric.OpSend {
		h.kind, h.imm = frameWrite, 0
		if w.Op == fabric.OpWriteImm {
			h.kind, h.imm = frameWriteImm, w.Imm
		}
		h.key, h.addr = w.Remote.Key, w.Remote.Addr
	}
	if needsAck(w) {
		e.lastNeed = w.Number
	}
	h.flags = e.frameFlagsLocked(w)
	e.tx.add(&h)
	for _, b := range w.Bufs {
		e.tx.out.add(b)
	}
	return true
}

// frameFlagsLocked asks for an acknowledgement where a signalled request depends on one that was
// not asked for yet, and now and then besides, so that silent Writes free their places.
func (e *endpoint) frameFlagsLocked(w *work) (flags uint8) {
	if w.Flags&fabric.FlagSolicited != 0 {
		flags |= frameSolicited
	}
	if e.lastNeed <= e.asked {
		return flags
	}
	quarter := uint64(e.Config.SendDepth)/4 + 1
	if w.Flags&fabric.FlagSignaled != 0 || w.Number-e.asked >= quarter {
		flags |= frameWantsAck
		e.asked = w.Number
	}
	return flags
}
