package shm

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// chunkBytes is how much a direct copy moves between checks whether the connection has ended.
const chunkBytes = 256 << 10

// mayAim tells whether a request may go directly: it names a slot of the peer and has not begun
// through the ring.
func (e *endpoint) mayAim(w *work) bool {
	if !e.maps || w.Op == fabric.OpSend || w.Length == 0 || w.Number != 0 {
		return false
	}
	at, _ := provider.Aim(w.Remote.Addr)
	return at != 0 && int(at) <= len(e.view.targets)
}

// stepDirect copies between local memory and the peer's. Where the peer's arena is not mapped here
// the request goes through the ring after all.
func (e *endpoint) stepDirect(w *work) (outcome, error) {
	if w.Own.placed {
		return e.stepPlaced(w)
	}
	at, _ := provider.Aim(w.Remote.Addr)
	s := &e.view.targets[at-1]
	if !s.enter(w.Remote.Key) {
		if e.view.theirs.bye.Load() != 0 { // not refused: the connection ends
			return stepEnd, nil
		}
		w.Err = e.refusedErr()
		return stepDone, nil
	}
	defer s.leave()
	e.mapMu.RLock()
	defer e.mapMu.RUnlock()
	mem, mapped := e.target(s, w)
	switch {
	case !mapped && w.Op == fabric.OpRead:
		return e.stepRead()
	case !mapped:
		return e.stepRing(w)
	case mem == nil:
		w.Err = e.refusedErr()
		return stepDone, nil
	}
	for len(mem) > 0 {
		if e.stopped.Load() || e.view.theirs.bye.Load() != 0 {
			return stepEnd, nil
		}
		n := min(len(mem), chunkBytes)
		if w.Op == fabric.OpRead {
			w.Scatter(mem[:n], nil)
		} else {
			w.Gather(mem[:n], nil)
		}
		mem = mem[n:]
	}
	if w.Op != fabric.OpWriteImm {
		return stepDone, nil
	}
	w.Own.placed = true
	return e.stepPlaced(w)
}

// target is the memory that a request names by a slot, which was entered. It is nil when the slot
// does not allow the access; false when the arena is not mapped here. The peer writes the slot: its
// numbers are read once and then checked.
func (e *endpoint) target(s *slot, w *work) ([]byte, bool) {
	key, off, length := s.key.Load(), s.off.Load(), s.length.Load()
	rights := fabric.Rights(s.rights.Load())
	m, ok := e.arenas[s.arena.Load()]
	if !ok {
		return nil, false
	}
	need := fabric.RemoteWrite
	if w.Op == fabric.OpRead {
		need = fabric.RemoteRead
	}
	size, want := uint64(len(m.mem)), uint64(w.Length)
	_, at := provider.Aim(w.Remote.Addr)
	switch {
	case key != w.Remote.Key || rights&need != need:
		return nil, true
	case off > size || length > size-off:
		return nil, true
	case at > length || want > length-at:
		return nil, true
	}
	if w.Op != fabric.OpRead {
		m.reach(off+at, want)
	}
	return m.mem[off+at:][:want], true
}

// stepPlaced tells the peer that the data of a WriteImm is in place.
func (e *endpoint) stepPlaced(w *work) (outcome, error) {
	if _, ok, err := e.tx.out.part(0); err != nil || !ok {
		return stepFull, err
	}
	h := first(w)
	h.kind, h.key, h.addr = framePlaced, 0, 0
	e.number(w)
	e.tx.out.put(&h)
	e.notify(wakeData)
	return stepDone, nil
}

func (e *endpoint) refusedErr() error {
	return errs.Newf(errs.Perm, "fabric", e.Name(), "the peer's key does not allow this access")
}

// stepRead asks the peer for the data of a Read.
func (e *endpoint) stepRead() (outcome, error) {
	if _, ok, err := e.tx.out.part(0); err != nil || !ok {
		return stepFull, err
	}
	e.mu.Lock()
	w := *e.reqs.Posted.At(0)
	tag := e.tx.asking - 1
	e.mu.Unlock()
	e.tx.out.put(&header{
		kind: frameRead, tag: uint16(tag), length: uint32(w.Length),
		key: w.Remote.Key, addr: w.Remote.Addr,
	})
	e.notify(wakeData)
	return stepRead, nil
}

// stepAnswer puts the next part of the answer to the peer's Read into the ring. The key is checked
// for each part, so that Revoke waits for one copy at most.
func (e *endpoint) stepAnswer(a *answer) (outcome, error) {
	t := &e.tx
	part, ok, err := t.out.part(a.length - a.sent)
	if err != nil || !ok {
		return stepFull, err
	}
	g, mem := e.d.grants.Acquire(e, a.key, a.addr, a.length, fabric.RemoteRead)
	if g == nil {
		a.sent = a.length
		t.out.put(&header{kind: frameReadRefused, tag: a.tag})
	} else {
		x, y := t.out.payload(part)
		copyOut(g, x, y, mem[a.sent:][:part])
		a.sent += part
		t.out.put(&header{kind: frameReadData, tag: a.tag, part: uint32(part)})
	}
	e.notify(wakeData)
	return stepPart, nil
}

// grant is a grant of this side.
type grant = provider.Grant[*endpoint]

// copyOut copies granted memory into a ring, copyIn from a ring into it.
func copyOut(g *grant, x, y, mem []byte) {
	defer g.Release()
	n := copy(x, mem)
	copy(y, mem[n:])
}

func copyIn(g *grant, mem, x, y []byte) {
	defer g.Release()
	n := copy(mem, x)
	copy(mem[n:], y)
}
