package tcp

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric/progress"
)

// The socket is read by the poller of the receive queue (poll, await) or, while the queue's turn
// rests, by the endpoint's own goroutine, the background reader. Both handle frames under rxMu.
// When a wait is interrupted, the bytes of a small frame that has not arrived completely stay in
// the carry buffer for the next reader. A frame that does not fit there is read into its place by
// whoever has its header, without interruption: its bytes are on their way.

// turnBytes is how much is handled in one go. A peer that sends faster than this side reads must
// not keep the poller from what has completed, nor the background reader from who wants to poll.
const turnBytes = 256 << 10

// poll handles what has come, for the poller. With looks it asks the socket first, where that can
// be done without blocking. It tells whether there was anything.
func (e *endpoint) poll(looks int, b *progress.Batch) bool {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	x := &e.rx
	if x.over {
		return false
	}
	if e.bulk.Load() && e.bulk.Swap(false) {
		e.recvCQ.Discourage() // the cores have better things to do
	}
	x.batch, x.budget = b, turnBytes
	did, err := e.handleCarried(false)
	// Where a read has brought all that was asked for there is more: who comes back with many
	// messages at once has them answered at once.
	more := !did && looks > 0 || did && x.rest() && b.Room()
	for err == nil && more && !x.early && x.budget > 0 {
		if err = x.fill(false); err == nil {
			var again bool
			again, err = e.handleCarried(false)
			did = did || again
			more = x.rest() && b.Room()
		}
	}
	x.batch = nil
	e.speak()
	if err != nil {
		e.stop(err)
	}
	return did || err != nil
}

// await reads more, for the poller. It blocks until there is something, or until interrupt.
func (e *endpoint) await() {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	x := &e.rx
	if x.over || x.early { // what could be read now has to wait
		e.rxMu.Unlock()
		<-x.called
		e.rxMu.Lock()
		return
	}
	if err := x.fill(true); err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || e.Dead()) {
		e.stop(err)
	}
}

// interrupt ends an await that is under way or about to begin. It takes no lock, because it is
// called under the queue's.
func (e *endpoint) interrupt() {
	if !e.Dead() { // else the deadline is for good
		_ = e.sock.conn.SetReadDeadline(time.Unix(1, 0))
	}
	select {
	case e.rx.called <- struct{}{}:
	default:
	}
}

// rearm takes back what interrupt did.
func (e *endpoint) rearm() {
	select {
	case <-e.rx.called:
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Dead():
	case e.broken:
		_ = e.sock.conn.SetReadDeadline(time.Now().Add(e.d.opts.Linger))
	default:
		_ = e.sock.conn.SetReadDeadline(time.Time{})
	}
}

// stop leaves the end of the connection to the background reader. It needs rxMu.
func (e *endpoint) stop(err error) {
	e.rx.over = true
	e.rx.err = err
	e.reader.end()
}

// handleCarried handles the frames that are complete in the carry buffer, and those that are too
// large for it. It tells whether there were any. With wait, which only the background reader sets
// because it may block, it handles every frame whose header is there, and waits for the first
// posted receive. It ends with the budget, too: there may be more then.
func (e *endpoint) handleCarried(wait bool) (did bool, err error) {
	x := &e.rx
	for x.to-x.at >= headerBytes {
		b := [headerBytes]byte(x.carry[x.at:]) // a copy: what is checked is what is used
		h, err := decodeHeader(&b, e.Config.Hello.MaxMessage)
		if err != nil {
			return did, err
		}
		size := headerBytes + h.payload()
		if !wait && x.to-x.at < size && size <= carryBytes {
			x.need = size
			return did, nil
		}
		if x.early = !wait && h.takesRecv() && !x.flowing && !e.recvs.Ready(); x.early {
			return did, nil
		}
		x.at += headerBytes
		if err := e.handle(&h); err != nil {
			return true, err
		}
		did = true
		if x.budget -= size; x.budget <= 0 {
			return did, nil
		}
	}
	x.need = headerBytes
	return did, nil
}

// reader is the state of an endpoint's background reader.
type reader struct {
	wake chan struct{} // room for one: look

	mu      sync.Mutex // a leaf
	on      bool       // the turn rests: it is to read
	asked   bool       // somebody wants to read
	over    bool       // the connection has ended
	blocked bool       // it is in the socket, at a place where it can be interrupted
	called  bool       // it was interrupted
}

func (r *reader) open() { r.wake, r.on = make(chan struct{}, 1), true }

func (r *reader) begin() { r.set(func() { r.on = true }) }

func (r *reader) end() { r.set(func() { r.over = true }) }

func (r *reader) set(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ask interrupts the reader in its socket, because somebody else wants to read.
func (r *reader) ask(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = true
	if r.blocked && !r.called {
		r.called = true
		e.interrupt()
	}
}

// reads tells whether it is still the reader that is to read.
func (r *reader) reads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.on && !r.asked && !r.over
}

// enter tells whether the reader may block in the socket.
func (r *reader) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = r.on && !r.asked && !r.over
	return r.blocked
}

// leave tells whether the reader was interrupted.
func (r *reader) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	called := r.called
	r.blocked, r.called = false, false
	return called
}

// yield gives the turn away if somebody asked for it; over tells that the connection has ended.
func (r *reader) yield() (give, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	give = r.on && r.asked
	if give {
		r.on, r.asked = false, false
	}
	return give, r.over
}

// readInBackground reads while the queue's turn rests, until the connection ends.
func (e *endpoint) readInBackground() error {
	for {
		err := e.readUntilAsked()
		give, over := e.reader.yield()
		switch {
		case err != nil || over:
			return e.conclude(err)
		case give:
			e.recvCQ.Yielded()
		}
		<-e.reader.wake
	}
}

// conclude ends all reading and tells why.
func (e *endpoint) conclude(err error) error {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	e.rx.over = true
	switch {
	case e.rx.err != nil:
		return e.rx.err
	case err == nil:
		return os.ErrDeadlineExceeded // this side has closed it, and knows why
	}
	return err
}

// readUntilAsked reads until somebody else wants to, or nobody should.
func (e *endpoint) readUntilAsked() error {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	for !e.rx.over {
		e.rx.budget = turnBytes
		if _, err := e.handleCarried(true); err != nil {
			return err
		}
		if e.rx.budget <= 0 && e.reader.reads() {
			continue
		}
		if !e.reader.enter() {
			e.speak()
			return nil
		}
		err := e.rx.fill(true)
		if e.reader.leave() {
			e.rearm()
			if errors.Is(err, os.ErrDeadlineExceeded) && !e.Dead() {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
