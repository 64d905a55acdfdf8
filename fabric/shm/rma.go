package shm

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// chunkBytes is how much a direct copy moves before it looks whether the connection has ended.
const chunkBytes = 256 << 10

// mayAim tells whether a request names memory that this side may use directly, and has not begun
// through the ring.
func (e *endpoint) mayAim(w *work) bool {
	if !e.maps || w.op == fabric.OpSend || w.length == 0 || w.number != 0 {
		return false
	}
	at, _ := aim(w.remote.Addr)
	return at != 0 && int(at) <= len(e.view.targets)
}

// stepDirect copies between local memory and the peer's. Where the peer's arena is not mapped here
// the request goes through the ring after all.
func (e *endpoint) stepDirect(w *work) (outcome, error) {
	if w.placed {
		return e.stepPlaced(w)
	}
	at, _ := aim(w.remote.Addr)
	s := &e.view.targets[at-1]
	if !s.enter(w.remote.Key) {
		if e.view.theirs.bye.Load() != 0 { // not refused: over
			return stepEnd, nil
		}
		w.err = e.refusedErr()
		return stepDone, nil
	}
	defer s.leave()
	e.mapMu.RLock()
	defer e.mapMu.RUnlock()
	mem, mapped := e.target(s, w)
	switch {
	case !mapped && w.op == fabric.OpRead:
		return e.stepRead()
	case !mapped:
		return e.stepRing(w)
	case mem == nil:
		w.err = e.refusedErr()
		return stepDone, nil
	}
	for len(mem) > 0 {
		if e.stopped.Load() || e.view.theirs.bye.Load() != 0 {
			return stepEnd, nil
		}
		n := min(len(mem), chunkBytes)
		if w.op == fabric.OpRead {
			w.scatter(mem[:n], nil)
		} else if err := w.gather(mem[:n], nil); err != nil {
			w.err = err
			return stepEnd, errs.Newf(errs.Disconnected, "shm", "", "a file range failed: %v", err)
		}
		mem = mem[n:]
	}
	if w.op != fabric.OpWriteImm {
		return stepDone, nil
	}
	w.placed = true
	return e.stepPlaced(w)
}

// target is the memory that a request names, by a slot that was entered. It is nil when the slot
// does not allow the access; false when the arena is not mapped here. All numbers of the slot are
// the peer's: they are read once and then checked.
func (e *endpoint) target(s *slot, w *work) ([]byte, bool) {
	key, off, length := s.key.Load(), s.off.Load(), s.length.Load()
	rights := fabric.Rights(s.rights.Load())
	mem, ok := e.arenas[s.arena.Load()]
	if !ok {
		return nil, false
	}
	need := fabric.RemoteWrite
	if w.op == fabric.OpRead {
		need = fabric.RemoteRead
	}
	size, want := uint64(len(mem)), uint64(w.length)
	_, at := aim(w.remote.Addr)
	switch {
	case key != w.remote.Key || rights&need != need:
		return nil, true
	case off > size || length > size-off:
		return nil, true
	case at > length || want > length-at:
		return nil, true
	}
	return mem[off+at:][:want], true
}

// stepPlaced tells the peer that the data of a WriteImm is in place.
func (e *endpoint) stepPlaced(w *work) (outcome, error) {
	if _, ok, err := e.tx.out.part(0); err != nil || !ok {
		return stepFull, err
	}
	h := w.first()
	h.kind, h.key, h.addr = framePlaced, 0, 0
	e.number(w)
	e.tx.out.put(&h)
	e.notify(wakeData)
	return stepDone, nil
}

func (e *endpoint) refusedErr() error {
	return errs.Newf(errs.Perm, "fabric", e.name, "the peer's key does not allow this access")
}

// stepRead asks the peer for the data of a Read.
func (e *endpoint) stepRead() (outcome, error) {
	if _, ok, err := e.tx.out.part(0); err != nil || !ok {
		return stepFull, err
	}
	e.mu.Lock()
	w := *e.queue.At(0)
	tag := e.tx.asking - 1
	e.mu.Unlock()
	e.tx.out.put(&header{
		kind: frameRead, tag: uint16(tag), length: uint32(w.length),
		key: w.remote.Key, addr: w.remote.Addr,
	})
	e.notify(wakeData)
	return stepRead, nil
}

// stepAnswer puts the next part of the answer to the peer's Read into the ring. The key is looked
// at for each part, so that Revoke waits for one copy at most.
func (e *endpoint) stepAnswer(a *answer) (outcome, error) {
	t := &e.tx
	part, ok, err := t.out.part(a.length - a.sent)
	if err != nil || !ok {
		return stepFull, err
	}
	g, mem := e.d.keys.acquire(e, access{
		key: a.key, addr: a.addr, length: a.length, off: a.sent, part: part,
		need: fabric.RemoteRead,
	})
	if g == nil {
		a.sent = a.length
		t.out.put(&header{kind: frameReadRefused, tag: a.tag})
	} else {
		x, y := t.out.payload(part)
		copyOut(g, x, y, mem)
		a.sent += part
		t.out.put(&header{kind: frameReadData, tag: a.tag, part: uint32(part)})
	}
	e.notify(wakeData)
	return stepPart, nil
}

// copyOut copies granted memory into a ring, copyIn out of one.
func copyOut(g *grant, x, y, mem []byte) {
	defer g.release()
	n := copy(x, mem)
	copy(y, mem[n:])
}

func copyIn(g *grant, mem, x, y []byte) {
	defer g.release()
	n := copy(mem, x)
	copy(mem[n:], y)
}
