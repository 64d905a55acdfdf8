package shm

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Moving: a goroutine that has something to move while nobody else moves sets busy and moves: a
// poster, or a poller of the ring when there is room again. Requests go one after the other, a
// frame at a time; answers to the peer's Reads alternate with them. After postSteps frames the rest
// is moved by a goroutine of the endpoint, the writer, because a poster should not work for others
// without bound.

// postSteps is the largest number of frames or direct copies of one poster.
const postSteps = 64

// txState belongs to the goroutine that set busy.
type txState struct {
	out    producer
	full   bool // the ring was full at the last step; under endpoint.mu
	turn   bool // an answer comes next
	asking int  // the tag of the Read that is being put into the ring, from 1; under endpoint.mu
}

// answer is a Read of the peer's that is being served.
type answer struct {
	tag       uint16
	key, addr uint64
	length    int
	sent      int
}

// outcome is the result of a step.
type outcome uint8

const (
	stepEnd  outcome = iota // no more: the connection ends
	stepFull                // the ring lacks room
	stepPart                // a part was moved
	stepDone                // all of the request was moved
	stepRead                // the Read is under way
)

// pumpLocked moves what is queued, unless another goroutine does. It enters with mu and leaves
// without. It tells whether the caller has to poll: an event came that no sleeper will be woken
// for.
func (e *endpoint) pumpLocked() bool {
	if e.busy || e.Dead() {
		e.mu.Unlock()
		return false
	}
	e.busy = true
	return e.moveLocked(postSteps)
}

// moveLocked moves until nothing is left, nothing can be moved, or limit steps are made (0: no
// limit). It enters with mu and busy and leaves without mu. The result is pumpLocked's.
func (e *endpoint) moveLocked(limit int) bool {
	e.tx.full = false
	e.updateAwaitedLocked() // no space, until the ring is found full again
	for steps := 0; ; steps++ {
		a, w := e.pickLocked()
		if a == nil && w == nil {
			break
		}
		if limit > 0 && steps == limit {
			e.wakeWriterLocked()
			return false
		}
		e.mu.Unlock()
		out := e.step(a, w)
		e.mu.Lock()
		if !e.recordLocked(a, w, out) {
			break
		}
	}
	return e.stopLocked()
}

// pickLocked chooses what to move next: the oldest answer, or the oldest request if it may start.
func (e *endpoint) pickLocked() (*answer, *work) {
	if e.Dead() {
		return nil, nil
	}
	var a *answer
	if e.answers.Len() > 0 {
		a = e.answers.At(0)
	}
	if a != nil && e.tx.turn {
		e.tx.turn = false
		return a, nil
	}
	if w := e.nextLocked(); w != nil {
		e.tx.turn = true
		return nil, w
	}
	return a, nil
}

// nextLocked is the oldest request, if it may start or go on.
func (e *endpoint) nextLocked() *work {
	w := e.reqs.Next()
	if w == nil || e.mayAim(w) && e.lastRing > e.acked { // it must not overtake Writes in the ring
		return nil
	}
	if w.Op == fabric.OpRead {
		e.tx.asking = e.reqs.FreeTag() + 1
	}
	return w
}

// recordLocked records the outcome of a step, and tells whether to go on.
func (e *endpoint) recordLocked(a *answer, w *work, out outcome) bool {
	asked := e.tx.asking - 1
	e.tx.asking = 0
	switch {
	case out == stepEnd:
		return false
	case out == stepFull:
		e.tx.full = true
		return false
	case a != nil && a.sent == a.length:
		e.answers.Pop()
	case out == stepRead:
		e.reqs.StartRead(asked)
	case out == stepDone:
		e.reqs.Posted.Pop()
		if w.Op == fabric.OpRead {
			e.completeLocked(w)
			break
		}
		e.reqs.Started.Push(w)
		if w.Flags&fabric.FlagLater == 0 {
			e.hurried++
		}
		if w.Own.lent {
			e.lent += w.Length
		}
		e.retireLocked()
	}
	return true
}

// stopLocked clears busy and arms for the events that moving waits for. It leaves without mu.
func (e *endpoint) stopLocked() bool {
	e.busy = false
	if e.tx.full {
		e.fullAt.Store(e.tx.out.head)
	}
	events := e.updateAwaitedLocked()
	e.backlogLocked()
	again := events != 0 && !e.Dead() && e.armFor(events)
	if e.Dead() {
		e.idle.Broadcast()
	}
	e.mu.Unlock()
	return again
}

// updateAwaitedLocked sets awaited to the events that moving waits for. It stores only changes: a
// store costs as much as a small copy.
func (e *endpoint) updateAwaitedLocked() uint32 {
	events := uint32(0)
	if e.tx.full {
		events |= wakeSpace
	}
	switch {
	case e.started == e.acked:
	case e.hurried > 0 || e.reqs.Posted.Len() > 0 || e.lent > lateBytes ||
		e.reqs.Started.Len() > lateWrites:
		events |= wakeDone
	default:
		events |= wakeLate
	}
	if e.awaited.Load() != events {
		e.awaited.Store(events)
	}
	return events
}

// backlogLocked sets backlog to whether something is queued.
func (e *endpoint) backlogLocked() {
	if rest := e.reqs.Posted.Len() > 0 || e.answers.Len() > 0; e.backlog.Load() != rest {
		e.backlog.Store(rest)
	}
}

// wakeWriterLocked leaves the rest, and busy, to the writer. It leaves without mu.
func (e *endpoint) wakeWriterLocked() {
	if e.writerWake == nil {
		e.writerWake = make(chan struct{}, 1)
		wake := e.writerWake
		e.d.Running.Go(func() { e.writer(wake) })
	}
	wake := e.writerWake
	e.mu.Unlock()
	wake <- struct{}{} // never blocks: there is one token, and only the holder of busy sends it
}

// writer moves what posters have left.
func (e *endpoint) writer(wake <-chan struct{}) {
	for range wake {
		e.mu.Lock()
		if e.moveLocked(0) {
			e.progress()
		}
	}
}

// step moves one frame, or makes one direct copy.
func (e *endpoint) step(a *answer, w *work) (out outcome) {
	defer e.guard().off()
	var err error
	switch {
	case a != nil:
		out, err = e.stepAnswer(a)
	case w.Length == 0 && (w.Op == fabric.OpWrite || w.Op == fabric.OpRead):
		return stepDone // touches nothing
	case e.mayAim(w):
		out, err = e.stepDirect(w)
	case w.Op == fabric.OpRead:
		out, err = e.stepRead()
	case w.Own.lent || e.maybeLent(w):
		w.Own.lent = true
		out, err = e.stepLent(w)
	default:
		out, err = e.stepRing(w)
	}
	if err != nil {
		e.fail(err)
		return stepEnd
	}
	return out
}

// fail ends the connection with an error.
func (e *endpoint) fail(err error) {
	kind := errs.Disconnected
	if errs.KindOf(err) == errs.Protocol {
		kind = errs.Protocol
	}
	e.Die(kind, err.Error())
}

// stepRing puts the next frame of a Send or Write into the ring.
func (e *endpoint) stepRing(w *work) (outcome, error) {
	t := &e.tx
	part, ok, err := t.out.part(w.Rest())
	if err != nil || !ok {
		return stepFull, err
	}
	h := header{kind: frameMore, part: uint32(part)}
	if !w.Begun() {
		h = first(w)
		h.part = uint32(part)
	}
	x, y := t.out.payload(part)
	w.Gather(x, y)
	return e.putFrame(w, &h), nil
}

// putFrame shows the peer a frame of a Send or Write, whose payload is in the ring.
func (e *endpoint) putFrame(w *work, h *header) outcome {
	switch h.kind {
	case frameWrite, frameWriteImm, frameLent:
		e.number(w)
	}
	e.tx.out.put(h)
	e.notify(wakeData)
	if w.Rest() == 0 {
		return stepDone
	}
	return stepPart
}

// number gives a Write the number under which the peer acknowledges it.
func (e *endpoint) number(w *work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started++
	w.Number = e.started
	if !w.Own.placed {
		e.lastRing = e.started
	}
}

// first is the header of the first frame of a Send or Write.
func first(w *work) header {
	h := header{kind: frameSend, length: uint32(w.Length), imm: w.Imm}
	if w.Flags&fabric.FlagSolicited != 0 {
		h.flags = frameSolicited
	}
	switch w.Op {
	case fabric.OpWrite:
		h.kind, h.imm, h.flags = frameWrite, 0, 0
	case fabric.OpWriteImm:
		h.kind = frameWriteImm
	}
	if w.Op != fabric.OpSend {
		h.key, h.addr = w.Remote.Key, w.Remote.Addr
	}
	return h
}
