package shm

import "github.com/sluice-storage/sluice/fabric"

// Small messages determine the latency of requests, so they take a fast path at both ends: past the
// send queue where nothing is before them, and out of the ring without the state that messages of
// several frames need.

// bypassBytes is the largest message that bypasses the send queue.
const bypassBytes = 8 << 10

// mayBypassLocked tells whether a request may bypass the queue: it is a small Send, everything
// before it has left, and its completion, if it has one, is the next.
func (e *endpoint) mayBypassLocked(wr *fabric.WR) bool {
	return wr.Op == fabric.OpSend && !e.busy &&
		e.reqs.Posted.Len() == 0 && e.answers.Len() == 0 &&
		(wr.Flags&fabric.FlagSignaled == 0 || e.reqs.Started.Len() == 0) &&
		(wr.Flags&fabric.FlagFence == 0 || e.reqs.ReadsOut == 0) &&
		wr.Len() <= bypassBytes
}

// bypassLocked puts a small Send into the ring. It enters with mu. It is false, and keeps mu, when
// the request must queue after all; else it leaves without mu.
func (e *endpoint) bypassLocked(wr *fabric.WR) bool {
	ok, sleeps := e.putLocked(wr)
	if !ok {
		return false
	}
	if wr.Flags&fabric.FlagSignaled != 0 {
		e.HoldSends(1)
		e.sendCQ.Push(&fabric.Completion{
			Op: fabric.OpSend, Context: wr.Context, EP: e, Len: wr.Len(),
		}, false)
	}
	if !sleeps || wr.Flags&fabric.FlagMore != 0 { // who says so wakes the peer by the next Post
		e.mu.Unlock()
		return true
	}
	e.wakeLocked()
	return true
}

// wakeLocked wakes the peer for what is in the ring. It enters with mu and leaves without. Nobody
// else moves: who wakes takes the place of a mover, because waking takes a system call, which other
// posters should not wait for.
func (e *endpoint) wakeLocked() {
	e.busy = true
	e.mu.Unlock()
	e.notifyGuarded(wakeData)
	e.mu.Lock()
	if e.moveLocked(postSteps) {
		e.progress()
	}
}

// wakeHeldLocked wakes the peer for messages that were posted with FlagMore. It enters with mu and
// leaves without. While somebody moves, or mu is held, the ring stays mapped.
func (e *endpoint) wakeHeldLocked() {
	switch {
	case e.Dead():
		e.mu.Unlock()
	case e.busy:
		e.notifyGuarded(wakeData)
		e.mu.Unlock()
	default:
		e.wakeLocked()
	}
}

// putLocked copies a small Send into the ring, if it has room, and tells whether the peer sleeps.
func (e *endpoint) putLocked(wr *fabric.WR) (ok, sleeps bool) {
	defer e.guard().off()
	length := wr.Len()
	out := &e.tx.out
	free, err := out.room(frameBytes(length))
	if err != nil || free < frameBytes(length) || length > partMax(len(out.buf)) {
		return false, false // the normal path finds the same, and reports it
	}
	a, b := out.payload(length)
	for i := range wr.Local {
		buf := wr.Local[i].Buf
		n := copy(a, buf)
		a = a[n:]
		if n < len(buf) {
			b = b[copy(b, buf[n:]):]
		}
	}
	h := header{kind: frameSend, length: uint32(length), part: uint32(length), imm: wr.Imm}
	if wr.Flags&fabric.FlagSolicited != 0 {
		h.flags = frameSolicited
	}
	out.put(&h)
	return true, e.view.theirs.sleep.Load()&wakeData != 0
}

// notifyGuarded is notify for a caller that has no guard.
func (e *endpoint) notifyGuarded(events uint32) {
	defer e.guard().off()
	e.notify(events)
}

// handleWhole receives a Send of one frame.
func (e *endpoint) handleWhole(h *header, a, b []byte) error {
	r, err := e.recvs.Take()
	if err != nil {
		e.rx.blocked = err == errLater
		return err
	}
	if len(a)+len(b) > len(r.Buf) {
		e.rx.recv, e.rx.taken = r, true // it fails with the others
		return protocolErr("a message was longer than its receive")
	}
	n := copy(r.Buf, a)
	copy(r.Buf[n:], b)
	done := fabric.Completion{
		Op: fabric.OpRecv, Context: r.Context, EP: e, Len: int(h.length), Imm: h.imm,
	}
	if !e.rx.batch.Add(&e.recvCQ.Queue, &done) {
		e.recvCQ.Push(&done, h.flags&frameSolicited != 0)
	}
	return nil
}
