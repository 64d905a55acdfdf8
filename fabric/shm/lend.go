package shm

import (
	"runtime"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Lending: what a listener writes from memory that it lends (Options.Lent) is not put into the
// ring. The ring names it, and the dialler, who maps it and may only read it, copies the bytes to
// where they are to be: one copy, wherever that is. The Write is over when they are in place, as
// every other. What the listener uses a place for after that is seen by nobody: the dialler reads
// only what a frame names, and looks after each copy whether the connection has ended meanwhile,
// because only then may the bytes have been changed under it (see lentCopied).

// lendBytes is the least that is lent: less goes through the ring faster. It was measured.
const lendBytes = 16 << 10

// lendPiece is the least mean length of the pieces of a Write that is lent: each is a frame.
const lendPiece = 1 << 10

// offloadBytes is how much a poller does not copy itself where it has other rings to look at.
const offloadBytes = 512 << 10

// debt is an arena that one side lends on one connection. It is guarded by lendMu.
type debt struct {
	id    uint32
	taken bool // the peer has mapped it
}

// Borrows implements fabric.Borrower.
func (e *endpoint) Borrows(n int64) bool { return n >= lendBytes && e.borrowing.Load() > 0 }

// offer lends all arenas of the domain to the peer, which maps them. What it does not map, or not
// yet, goes through the ring.
func (e *endpoint) offer() {
	if !e.lends {
		return
	}
	for _, one := range e.d.opts.Lent.all() {
		e.lend(one)
	}
}

// lend passes one arena to the peer, once.
func (e *endpoint) lend(one *arena) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if _, ok := one.eps[e]; ok || one.closed {
		return
	}
	id := e.exported.Add(1)
	e.lendMu.Lock()
	e.debts[one] = &debt{id: id} // before the peer can answer
	e.lendMu.Unlock()
	if !e.sendArena(noteLend, id, one.fd, one.size) { // not now: the next Write tries again
		e.forgive(id)
		return
	}
	one.eps[e] = id
}

// forgive forgets what was lent under a number.
func (e *endpoint) forgive(id uint32) {
	e.lendMu.Lock()
	defer e.lendMu.Unlock()
	for one, d := range e.debts {
		if d.id == id {
			delete(e.debts, one)
		}
	}
}

// taken notes that the peer has mapped what was lent under a number. It may have been withdrawn.
func (e *endpoint) taken(id uint32) {
	e.lendMu.Lock()
	defer e.lendMu.Unlock()
	for _, d := range e.debts {
		if d.id == id {
			d.taken = true
		}
	}
}

// maybeLent tells whether a request that has not begun goes by lending. What lies in an arena that
// the peer was not offered yet is offered for the next one.
func (e *endpoint) maybeLent(w *work) bool {
	if !e.lends || w.Op != fabric.OpWrite || w.Begun() || w.Length < lendBytes ||
		w.Length < lendPiece*len(w.Bufs) {
		return false
	}
	for _, b := range w.Bufs {
		if len(b) == 0 {
			continue
		}
		one, _ := e.d.opts.Lent.find(b)
		if one == nil {
			return false
		}
		switch id, offered := e.owed(one); {
		case !offered:
			e.lend(one)
			return false
		case id == 0:
			return false
		}
	}
	return true
}

// owed is the number under which the peer has mapped an arena; 0: it has not.
func (e *endpoint) owed(one *arena) (id uint32, offered bool) {
	e.lendMu.Lock()
	defer e.lendMu.Unlock()
	d := e.debts[one]
	if d == nil || !d.taken {
		return 0, d != nil
	}
	return d.id, true
}

// stepLent puts the next piece of a Write into the ring as a loan.
func (e *endpoint) stepLent(w *work) (outcome, error) {
	t := &e.tx
	free, err := t.out.room(frameBytes(loanBytes))
	if err != nil || free < frameBytes(loanBytes) {
		return stepFull, err
	}
	h := header{kind: frameLentMore, part: loanBytes}
	if !w.Begun() {
		h = first(w)
		h.kind, h.part = frameLent, loanBytes
	}
	b := w.Take()
	one, off := e.d.opts.Lent.find(b)
	if one == nil {
		return stepEnd, errs.Newf(errs.Disconnected, "shm", "", "memory was freed while it was lent")
	}
	id, _ := e.owed(one)
	var payload [loanBytes]byte
	(&loan{arena: id, bytes: uint32(len(b)), off: uint64(off)}).encode(&payload)
	x, y := t.out.payload(loanBytes)
	n := copy(x, payload[:])
	copy(y, payload[n:])
	return e.putFrame(w, &h), nil
}

// borrow maps memory that the peer lends, to be read, and says so. Beyond the limits it maps
// nothing: then nothing is lent from it.
func (e *endpoint) borrow(n note, fds []int) error {
	if !e.borrows || len(fds) != 1 {
		return protocolErr("memory that nobody wants to borrow")
	}
	mapped, err := e.mapOnce(n, fds[0], true)
	if err != nil || !mapped {
		return err
	}
	e.borrowing.Add(1)
	e.send(note{kind: noteBorrowed, id: n.id}, nil)
	return nil
}

// handleLent begins, or goes on with, a Write whose bytes are in memory that this side has
// borrowed. errLater: somebody else copies them.
func (e *endpoint) handleLent(h *header, a, b []byte) error {
	x := &e.rx
	if x.open == (h.kind == frameLent) {
		return protocolErr("a loan out of turn")
	}
	if h.kind == frameLent {
		x.cur, x.got, x.refused, x.open = *h, 0, false, true
	} else if x.cur.kind != frameLent {
		return protocolErr("a loan in the middle of something else")
	}
	var payload [loanBytes]byte
	n := copy(payload[:], a)
	copy(payload[n:], b)
	l := decodeLoan(&payload)
	if l.bytes == 0 || int(l.bytes) > int(x.cur.length)-x.got {
		return protocolErr("a loan that does not fit its write")
	}
	if int(l.bytes) >= offloadBytes && e.mayOffload() {
		x.copying, x.loan = true, l
		e.wakeCopier()
		return errLater
	}
	refused, err := e.copyLent(&x.cur, x.got, l, x.refused)
	if err != nil {
		return err
	}
	return e.lentCopied(l, refused)
}

// lentCopied goes on after a loan was copied. It needs rxMu. Bytes of a peer that has ended the
// connection are not delivered: it has completed its Writes then, and uses their memory again. The
// addition keeps the processor from looking before it has copied.
func (e *endpoint) lentCopied(l loan, refused bool) error {
	x := &e.rx
	if e.view.theirs.bye.Add(0) != 0 {
		return errs.Newf(errs.Disconnected, "shm", "", "the peer ended the connection during a copy")
	}
	x.refused = refused
	x.got += int(l.bytes)
	if x.got < int(x.cur.length) {
		return nil
	}
	x.open = false
	x.count++
	e.view.refused.set(x.count, x.refused)
	return nil
}

// copyLent copies lent bytes to where they were granted, as the part of the Write that begins at
// got. The key is looked at for each chunk, so that Revoke waits for one copy at most.
func (e *endpoint) copyLent(first *header, got int, l loan, refused bool) (bool, error) {
	e.mapMu.RLock()
	defer e.mapMu.RUnlock()
	m, ok := e.arenas[l.arena]
	if !ok || !m.lent || l.off > uint64(len(m.mem)) ||
		uint64(l.bytes) > uint64(len(m.mem))-l.off {
		return false, protocolErr("a loan of memory that was not lent")
	}
	mem := m.mem[l.off:][:l.bytes]
	for len(mem) > 0 && !refused {
		if e.stopped.Load() {
			return false, errs.Newf(errs.Disconnected, "shm", "", "ended during a copy")
		}
		n := min(len(mem), chunkBytes)
		g, to := e.d.grants.Acquire(e, first.key, first.addr, int(first.length), fabric.RemoteWrite)
		if g == nil {
			return true, nil
		}
		copyIn(g, to[got:][:n], mem[:n], nil)
		mem, got = mem[n:], got+n
	}
	return refused, nil
}

// mayOffload tells whether somebody else should copy: the poller has other rings to look at.
func (e *endpoint) mayOffload() bool {
	return len(*e.recvCQ.eps.Load()) > 1 && runtime.GOMAXPROCS(0) > 1
}

// wakeCopier wakes the goroutine that copies what pollers do not. It needs rxMu, and x.copying.
func (e *endpoint) wakeCopier() {
	if e.rx.copier == nil {
		e.rx.copier = make(chan struct{}, 1)
		wake := e.rx.copier
		e.d.Running.Go(func() { e.copier(wake) })
	}
	e.rx.copier <- struct{}{} // never blocks: x.copying is set once until it was taken
}

// copier copies loans, one after the other. Meanwhile nobody takes more out of the ring.
func (e *endpoint) copier(wake <-chan struct{}) {
	for range wake {
		if e.copyWaiting() {
			e.progress()
		}
	}
}

// copyWaiting copies the loan that waits, and tells whether the connection lives.
func (e *endpoint) copyWaiting() bool {
	x := &e.rx
	refused, err := e.copyGuarded()
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	x.copying = false
	if e.gone || e.stopped.Load() {
		return false
	}
	defer e.guard().off()
	if err == nil {
		err = e.lentCopied(x.loan, refused)
	}
	if err != nil {
		e.fail(err)
		return false
	}
	x.in.drop(&header{part: loanBytes})
	e.tellDone()
	e.notify(wakeSpace | wakeDone)
	return true
}

// copyGuarded is copyLent of the loan that waits. Nobody changes it meanwhile.
func (e *endpoint) copyGuarded() (refused bool, err error) {
	defer e.guard().off()
	x := &e.rx
	return e.copyLent(&x.cur, x.got, x.loan, x.refused)
}
