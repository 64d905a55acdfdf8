package shm

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// Receiving: any goroutine that polls (a waiter, a poster that waits for room, the reader of the
// socket) empties the ring under rxMu. Nothing here waits: a frame that cannot be handled yet,
// because the first receive is not posted, stays in the ring.

// rxState is guarded by rxMu.
type rxState struct {
	in      consumer
	limits  limits
	blocked bool   // the oldest frame waits for the first PostRecv
	acked   uint64 // the peer's word done, as last seen
	count   uint64 // Writes of the peer that were carried out or refused

	open    bool   // a Send or Write has more frames to come
	cur     header // its first one
	got     int    // bytes of it
	refused bool
	taken   bool            // recv is being filled
	batch   *progress.Batch // the poller's, or nil
	early   bool            // the last drain left after one message and did not look for more
	many    bool            // the last drain found several: look for more
	recv    fabric.Recv

	untold  int           // above 0: not all of done was told; looks in vain until it is
	copying bool          // the copier copies loan; nothing is taken out of the ring
	loan    loan          // the oldest frame's
	copier  chan struct{} // wakes the goroutine that copies what pollers do not; nil: none yet
}

// errLater says that a frame must stay in the ring for now.
var errLater = provider.ErrEarly

// progress empties the ring and moves what is queued, and tells whether there was anything. It
// waits for other goroutines that do the same.
func (e *endpoint) progress() bool {
	did := false
	for {
		e.rxMu.Lock()
		moved := e.drainLocked(nil)
		e.rxMu.Unlock()
		did = did || moved
		if !e.backlog.Load() {
			return did
		}
		e.mu.Lock()
		if !e.pumpLocked() {
			return did
		}
	}
}

// tryProgress is progress, unless another goroutine is emptying the ring.
func (e *endpoint) tryProgress(b *progress.Batch) bool {
	if !e.rxMu.TryLock() {
		return false
	}
	did := e.drainLocked(b)
	e.rxMu.Unlock()
	if !e.backlog.Load() {
		return did
	}
	e.mu.Lock()
	if e.pumpLocked() {
		return e.progress() || did
	}
	return did
}

// watch looks at the ring up to times times, until there is something to do, and does it. Like
// tryProgress it returns when another goroutine is emptying the ring.
func (e *endpoint) watch(times int, b *progress.Batch) bool {
	if !e.rxMu.TryLock() {
		return false
	}
	did := e.spinForWork(times) && e.drainLocked(b)
	e.rxMu.Unlock()
	if !e.backlog.Load() {
		return did
	}
	return e.tryProgress(b) || did
}

// spinForWork looks up to times times whether the peer has done something. It needs rxMu.
func (e *endpoint) spinForWork(times int) bool {
	if e.gone || e.stopped.Load() {
		return false
	}
	defer e.guard().off()
	for range times {
		if e.hasWork() {
			return true
		}
		e.rx.early = false
	}
	e.idled(times)
	return false
}

// drainLocked handles the frames in the ring, at most one ring size of them. It needs rxMu.
func (e *endpoint) drainLocked(b *progress.Batch) bool {
	if e.gone || e.stopped.Load() {
		return false
	}
	e.rx.batch = b
	did, err := e.drain()
	if err != nil {
		e.fail(err)
	}
	return did || err != nil
}

func (e *endpoint) drain() (did bool, err error) {
	defer e.guard().off()
	x := &e.rx
	if did, err = e.takeAcks(); err != nil {
		return did, err
	}
	if x.copying {
		return did, nil
	}
	count, frames := x.count, 0
	var h header
	for budget := len(x.in.buf); budget > 0; {
		a, b, ok, err := x.in.next(x.limits, &h)
		if err == nil && ok {
			err = e.handle(&h, a, b)
		}
		if err == errLater || err == nil && !ok {
			x.many, x.early = frames > 1, false
			break
		}
		if err != nil {
			return true, err
		}
		x.blocked = false
		x.in.drop(&h)
		budget -= frameBytes(int(h.part))
		did = true
		if frames++; x.leave(frames) {
			break
		}
	}
	if x.count != count {
		e.tellDone()
	}
	if did {
		e.notify(wakeSpace | wakeDone)
	} else {
		e.idled(1)
	}
	return did, nil
}

// tellDone stores how many Writes were carried out. Who has to know at once is notified besides.
func (e *endpoint) tellDone() {
	raceRelease()
	e.view.mine.done.Store(e.rx.count)
	e.rx.untold = restAfter
}

// leave tells whether to return with the first message and look for others later: the cache line
// where the next one would be has to be fetched from the peer's core. If the next drain finds a
// message at once, drains look for more from then on, until one finds at most one.
func (x *rxState) leave(frames int) bool {
	if frames == 1 && x.early {
		x.many = true
	}
	x.early = !x.many && x.batch.Any()
	return x.early
}

// takeAcks completes what the peer has carried out.
func (e *endpoint) takeAcks() (bool, error) {
	x := &e.rx
	done := e.view.theirs.done.Load()
	if done == x.acked {
		return false, nil
	}
	raceAcquire()
	e.mu.Lock()
	started := e.started
	e.mu.Unlock()
	if done-x.acked > started-x.acked {
		return false, protocolErr("more was carried out than was sent")
	}
	for n := x.acked + 1; n != done+1; n++ {
		if e.view.refusals.get(n) {
			e.refuse(n)
		}
	}
	x.acked = done
	e.mu.Lock()
	e.acked = done
	e.retireLocked()
	e.updateAwaitedLocked()
	e.mu.Unlock()
	return true, nil
}

// refuse marks a Write that the peer refused. It completes in order.
func (e *endpoint) refuse(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.reqs.Started.Len() {
		if w := *e.reqs.Started.At(i); w.Number == number {
			w.Err = e.refusedErr()
			return
		}
	}
	if e.reqs.Posted.Len() > 0 { // its last frame has just left
		if w := *e.reqs.Posted.At(0); w.Number == number {
			w.Err = e.refusedErr()
		}
	}
}

// handle does what a frame asks for, or returns errLater.
func (e *endpoint) handle(h *header, a, b []byte) error {
	x := &e.rx
	switch h.kind {
	case frameSend, frameWrite, frameWriteImm:
		if x.open {
			return protocolErr("a request in the middle of another")
		}
		if h.kind == frameSend && h.part == h.length {
			return e.handleWhole(h, a, b)
		}
		return e.handleRequest(h, h, a, b)
	case frameMore:
		if !x.open || x.cur.kind == frameLent || int(h.part) > int(x.cur.length)-x.got {
			return protocolErr("more of nothing")
		}
		return e.handleRequest(&x.cur, h, a, b)
	case frameLent, frameLentMore:
		return e.handleLent(h, a, b)
	case framePlaced:
		if x.open {
			return protocolErr("a request in the middle of another")
		}
		x.refused = false
		return e.complete(h)
	case frameRead:
		return e.handleRead(h)
	case frameReadData, frameReadRefused:
		return e.handleAnswer(h, a, b)
	}
	return protocolErr("unknown kind of frame")
}

// handleRequest places a frame of a Send or Write that began with first.
func (e *endpoint) handleRequest(first, h *header, a, b []byte) error {
	x := &e.rx
	got := x.got
	if first == h {
		got = 0
	}
	last := got+int(h.part) == int(first.length)
	if first.kind == frameWriteImm && last && !e.recvs.Ready() {
		x.blocked = true
		return errLater
	}
	if first == h {
		if h.kind == frameSend {
			if err := e.takeRecv(); err != nil {
				return err
			}
		}
		x.cur, x.got, x.refused, x.open = *h, 0, false, true
		first = &x.cur
	}
	if first.kind == frameSend {
		if err := e.placeMessage(first, a, b); err != nil {
			return err
		}
	} else if h.part > 0 && !x.refused {
		x.refused = !e.place(first, h, a, b)
	}
	x.got += int(h.part)
	if !last {
		return nil
	}
	x.open = false
	return e.complete(first)
}

// place copies a part of a Write into granted memory, or refuses. The key is looked at for each
// part, so that Revoke waits for one copy at most.
func (e *endpoint) place(first, h *header, a, b []byte) bool {
	g, mem := e.d.grants.Acquire(e, first.key, first.addr, int(first.length), fabric.RemoteWrite)
	if g == nil {
		return false
	}
	copyIn(g, mem[e.rx.got:][:h.part], a, b)
	return true
}

// complete ends a request whose last part was placed.
func (e *endpoint) complete(first *header) error {
	x := &e.rx
	if first.kind == frameSend {
		return e.receive(first, false)
	}
	if first.kind != frameWrite && !x.refused {
		if err := e.receive(first, true); err != nil {
			return err
		}
	}
	x.count++
	e.view.refused.set(x.count, x.refused)
	return nil
}

// handleRead queues a Read of the peer's; its key is checked when the answer is made.
func (e *endpoint) handleRead(h *header) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers.Full() {
		return protocolErr("more reads outstanding than the read depth")
	}
	e.answers.Push(answer{tag: h.tag, key: h.key, addr: h.addr, length: int(h.length)})
	e.backlog.Store(true)
	return nil
}

// handleAnswer scatters a part of an answer over the pieces of its Read.
func (e *endpoint) handleAnswer(h *header, a, b []byte) error {
	e.mu.Lock()
	w := e.reqs.Reads[h.tag]
	asking := e.tx.asking == int(h.tag)+1
	e.mu.Unlock()
	if w == nil && asking { // the request left a moment ago and is not recorded yet (recordLocked)
		return errLater
	}
	if w == nil || int(h.part) > w.Rest() {
		return protocolErr("an answer to a read that was never sent")
	}
	if h.kind == frameReadRefused {
		w.Err = e.refusedErr()
	} else {
		w.Scatter(a, b)
		if w.Rest() > 0 {
			return nil
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.completeLocked(e.reqs.EndRead(int(h.tag)))
	return nil
}
