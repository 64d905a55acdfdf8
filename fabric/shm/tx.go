package shm

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Moving: whoever has something to move while nobody is at it sets busy and moves: a poster, or who
// polls the ring when there is room again. Requests go one after the other, a frame at a
// time; answers to the peer's Reads take turns with them. What needs a disk (file ranges), and what
// is left after many frames, is moved by a goroutine of the endpoint, the porter, because a
// poster should neither wait for a disk nor work for others for ever.

// postSteps is how many frames or copies a poster makes at most.
const postSteps = 64

// txState belongs to who set busy.
type txState struct {
	out    producer
	full   bool // the ring was, at the last step; under endpoint.mu
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

// outcome is what came of a step.
type outcome uint8

const (
	stepEnd  outcome = iota // no more: the connection ends
	stepFull                // the ring lacks room
	stepPart                // a part was moved
	stepDone                // the request is through
	stepRead                // the Read is under way
)

// pumpLocked moves what is queued, unless somebody is at it. It enters with mu and leaves without;
// it tells whether something has happened meanwhile that nobody would look at.
func (e *endpoint) pumpLocked() bool {
	if e.busy || e.dead != errs.OK {
		e.mu.Unlock()
		return false
	}
	e.busy = true
	return e.moveLocked(postSteps)
}

// moveLocked moves until nothing is left or nothing can be moved. It enters with mu and busy and
// leaves without mu.
func (e *endpoint) moveLocked(limit int) bool {
	e.tx.full = false
	e.needsLocked() // no space, until the ring is found full again
	for steps := 0; ; steps++ {
		a, w := e.pickLocked()
		if a == nil && w == nil {
			break
		}
		if limit > 0 && (steps == limit || a == nil && w.file.File != nil) {
			e.callPorterLocked()
			return false
		}
		e.mu.Unlock()
		out := e.step(a, w)
		e.mu.Lock()
		if !e.settleLocked(a, w, out) {
			break
		}
	}
	return e.restLocked()
}

// pickLocked chooses what to move next: the oldest answer, or the oldest request if it may start.
func (e *endpoint) pickLocked() (*answer, *work) {
	if e.dead != errs.OK {
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
	if e.queue.Len() == 0 {
		return nil
	}
	w := *e.queue.At(0)
	switch {
	case w.flags&fabric.FlagFence != 0 && e.readsOut > 0:
		return nil
	case w.op == fabric.OpRead && e.readsOut == readDepth:
		return nil
	case e.mayAim(w) && e.lastRing > e.acked: // it must not overtake Writes in the ring
		return nil
	}
	if w.op == fabric.OpRead {
		tag := 0
		for e.reads[tag] != nil {
			tag++
		}
		e.tx.asking = tag + 1
	}
	return w
}

// settleLocked takes note of a step, and tells whether to go on.
func (e *endpoint) settleLocked(a *answer, w *work, out outcome) bool {
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
		e.queue.Pop()
		e.reads[asked] = w
		e.readsOut++
	case out == stepDone:
		e.queue.Pop()
		if w.op == fabric.OpRead {
			e.completeLocked(w, w.err)
			break
		}
		e.inflight.Push(w)
		e.retireLocked()
	}
	return true
}

// restLocked ends the moving of this caller, and says what it waits for. It leaves without mu.
func (e *endpoint) restLocked() bool {
	e.busy = false
	if e.tx.full {
		e.stuckAt.Store(e.tx.out.head)
	}
	needs := e.needsLocked()
	e.backlogLocked()
	again := needs != 0 && e.dead == errs.OK && e.ask(needs)
	if e.dead != errs.OK {
		e.idle.Broadcast()
	}
	e.mu.Unlock()
	return again
}

// needsLocked keeps needs what it says. Stores that change nothing are left out: each costs as much
// as a small copy.
func (e *endpoint) needsLocked() uint32 {
	needs := uint32(0)
	if e.tx.full {
		needs |= wakeSpace
	}
	if e.started != e.acked {
		needs |= wakeDone
	}
	if e.needs.Load() != needs {
		e.needs.Store(needs)
	}
	return needs
}

// backlogLocked keeps backlog what it says.
func (e *endpoint) backlogLocked() {
	if rest := e.queue.Len() > 0 || e.answers.Len() > 0; e.backlog.Load() != rest {
		e.backlog.Store(rest)
	}
}

// callPorterLocked leaves the rest, and busy, to the porter.
func (e *endpoint) callPorterLocked() {
	if e.porter == nil {
		e.porter = make(chan struct{}, 1)
		porter := e.porter
		e.d.wg.Go(func() { e.carry(porter) })
	}
	porter := e.porter
	e.mu.Unlock()
	porter <- struct{}{} // never blocks: one token, sent by who is busy
}

// carry is the porter.
func (e *endpoint) carry(calls <-chan struct{}) {
	for range calls {
		e.mu.Lock()
		if e.moveLocked(0) {
			e.progress()
		}
	}
}

// step makes one move.
func (e *endpoint) step(a *answer, w *work) (out outcome) {
	defer e.guard().off()
	var err error
	switch {
	case a != nil:
		out, err = e.stepAnswer(a)
	case w.length == 0 && (w.op == fabric.OpWrite || w.op == fabric.OpRead):
		return stepDone // touches nothing
	case e.mayAim(w):
		out, err = e.stepDirect(w)
	case w.op == fabric.OpRead:
		out, err = e.stepRead()
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
	e.die(kind, err.Error())
}

// stepRing puts the next frame of a Send or Write into the ring.
func (e *endpoint) stepRing(w *work) (outcome, error) {
	t := &e.tx
	part, ok, err := t.out.part(w.length - w.moved)
	if err != nil || !ok {
		return stepFull, err
	}
	h := header{kind: frameMore, part: uint32(part)}
	if w.moved == 0 {
		h = w.first()
		h.part = uint32(part)
	}
	x, y := t.out.payload(part)
	if err := w.gather(x, y); err != nil {
		w.err = err
		return stepEnd, errs.Newf(errs.Disconnected, "shm", "", "a file range failed: %v", err)
	}
	if h.kind == frameWrite || h.kind == frameWriteImm {
		e.number(w)
	}
	t.out.put(&h)
	e.notify(wakeData)
	if w.moved == w.length {
		return stepDone, nil
	}
	return stepPart, nil
}

// number counts a Write of which the peer will say when it is done.
func (e *endpoint) number(w *work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started++
	w.number = e.started
	if !w.placed {
		e.lastRing = e.started
	}
}

// first is the header of the first frame of a Send or Write.
func (w *work) first() header {
	h := header{kind: frameSend, length: uint32(w.length), imm: w.imm}
	if w.flags&fabric.FlagSolicited != 0 {
		h.flags = frameSolicited
	}
	switch w.op {
	case fabric.OpWrite:
		h.kind, h.imm, h.flags = frameWrite, 0, 0
	case fabric.OpWriteImm:
		h.kind = frameWriteImm
	}
	if w.op != fabric.OpSend {
		h.key, h.addr = w.remote.Key, w.remote.Addr
	}
	return h
}

// gather copies the next bytes of a request to two places, one after the other.
func (w *work) gather(x, y []byte) error {
	if w.file.File != nil {
		for _, to := range [2][]byte{x, y} {
			if n, err := w.file.File.ReadAt(to, w.file.Off+int64(w.moved)); n < len(to) {
				return errs.New(errs.IO, "shm", "file range", err)
			}
			w.moved += len(to)
		}
		return nil
	}
	for _, to := range [2][]byte{x, y} {
		for len(to) > 0 {
			n := copy(to, w.rest())
			w.advance(n)
			to = to[n:]
		}
	}
	return nil
}

// scatter is gather the other way round.
func (w *work) scatter(x, y []byte) {
	for _, from := range [2][]byte{x, y} {
		for len(from) > 0 {
			n := copy(w.rest(), from)
			w.advance(n)
			from = from[n:]
		}
	}
}

// rest is what is left of the piece that is being moved; it skips empty ones.
func (w *work) rest() []byte {
	for w.off == len(w.bufs[w.piece]) {
		w.piece, w.off = w.piece+1, 0
	}
	return w.bufs[w.piece][w.off:]
}

func (w *work) advance(n int) {
	w.off += n
	w.moved += n
}
