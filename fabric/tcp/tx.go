package tcp

import (
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Writing: whoever has something to send while nobody is writing sets busy, makes a batch of
// frames and writes it without blocking: a poster, or the reader with its answers. What the
// socket does not take is left in tx for the writer goroutine, with busy still set, and so is
// what is left after a few batches, because a poster should not work for others for ever.

const (
	batchFrames = 32
	batchBytes  = 256 << 10 // no more frames behind so many bytes
	postBatches = 8
	refusalMax  = maxQueueDepth // a peer cannot have more requests outstanding
)

// txState is the batch being written. It belongs to who set busy.
type txState struct {
	headers [batchFrames][headerBytes]byte
	frames  int
	out     vec
	grants  [batchFrames]*grant // in use by answers in the batch
	used    int
	number  uint64 // of the last request in it
	ack     uint32 // the highest acknowledgement in it

	call, callBlocking func(fd uintptr) bool
	n                  int
	errno              syscall.Errno
}

// reset makes room for the next batch. The last one has been written.
func (t *txState) reset() {
	t.out.reset()
	t.frames = 0
}

// add appends a frame's header.
func (t *txState) add(h *header) {
	b := &t.headers[t.frames]
	h.encode(b)
	t.out.add(b[:])
	t.frames++
	t.ack = h.ack
}

// room tells whether any frame still fits.
func (t *txState) room() bool {
	return t.frames < batchFrames && t.out.room() > maxSge && t.out.bytes < batchBytes
}

// release ends the use of granted memory by the batch.
func (t *txState) release() {
	for i, g := range t.grants[:t.used] {
		g.release()
		t.grants[i] = nil
	}
	t.used = 0
}

// writeOnce is called with the socket; it does not wait for it.
func (e *endpoint) writeOnce(fd uintptr) bool {
	t := &e.tx
	t.n, t.errno = t.out.writev(fd)
	if t.errno == 0 {
		t.out.drop(t.n)
	}
	return true
}

// writeAll is writeOnce until the batch is out: false waits until the socket takes more.
func (e *endpoint) writeAll(fd uintptr) bool {
	t := &e.tx
	for t.out.bytes > 0 {
		t.n, t.errno = t.out.writev(fd)
		if t.errno == syscall.EAGAIN {
			return false
		}
		if t.errno != 0 {
			return true
		}
		t.out.drop(t.n)
	}
	return true
}

// pumpLocked writes what is queued, unless somebody is at it. It enters with mu and leaves without.
func (e *endpoint) pumpLocked() {
	if e.busy || e.broken {
		e.mu.Unlock()
		return
	}
	for range postBatches {
		if e.dead != errs.OK || !e.gatherLocked() {
			e.restLocked()
			return
		}
		e.busy = true
		e.mu.Unlock()
		err := e.raw.Write(e.tx.call)
		if err == nil && e.tx.errno != 0 && e.tx.errno != syscall.EAGAIN {
			err = e.tx.errno
		}
		if err != nil {
			e.breakOff()
			return
		}
		if e.tx.out.bytes > 0 {
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
	if e.dead != errs.OK {
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
	if e.dead == errs.OK {
		_ = e.conn.SetReadDeadline(time.Now().Add(e.d.opts.Linger))
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
	defer e.d.wg.Done()
	for range e.writerWake {
		for {
			err := e.raw.Write(e.tx.callBlocking)
			if err != nil || e.tx.out.bytes > 0 {
				e.breakOff()
				break
			}
			e.mu.Lock()
			e.writtenLocked()
			if e.dead != errs.OK || !e.gatherLocked() {
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
	if e.queue.Len() == 0 {
		return false
	}
	w := *e.queue.At(0)
	if w.flags&fabric.FlagFence != 0 && e.readsOut > 0 {
		return false
	}
	h := header{length: uint32(w.length), ack: ack}
	if w.op == fabric.OpRead {
		if e.readsOut == readDepth {
			return false
		}
		e.startReadLocked(w, &h)
		e.queue.Pop()
		e.tx.add(&h)
		return true
	}
	e.queue.Pop()
	e.started++
	w.number = e.started
	e.inflight.Push(w)
	h.kind, h.imm = frameSend, w.imm
	if w.op != fabric.OpSend {
		h.kind, h.imm = frameWrite, 0
		if w.op == fabric.OpWriteImm {
			h.kind, h.imm = frameWriteImm, w.imm
		}
		h.key, h.addr = w.remote.Key, w.remote.Addr
		e.lastRMA = w.number
	}
	h.flags = e.frameFlagsLocked(w)
	e.tx.add(&h)
	for _, b := range w.bufs {
		e.tx.out.add(b)
	}
	return true
}

// frameFlagsLocked asks for an acknowledgement where a signalled request depends on one that was
// not asked for yet, and now and then besides, so that silent Writes free their places.
func (e *endpoint) frameFlagsLocked(w *work) (flags uint8) {
	if w.flags&fabric.FlagSolicited != 0 {
		flags |= frameSolicited
	}
	if e.lastRMA <= e.asked {
		return flags
	}
	quarter := uint64(e.cfg.SendDepth)/4 + 1
	if w.flags&fabric.FlagSignaled != 0 || w.number-e.asked >= quarter {
		flags |= frameWantsAck
		e.asked = w.number
	}
	return flags
}
