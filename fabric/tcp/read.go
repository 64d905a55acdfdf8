package tcp

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric/progress"
)

// Who reads. Either who has the turn of the receive queue reads the socket (poll, await), or the
// endpoint's own goroutine, the keeper, while the turn rests (keep). Both handle frames under rxMu.
// When a wait is interrupted, the bytes of a small frame that has not arrived completely stay in
// the carry buffer for the next reader. A frame that does not fit there is read into its place by
// whoever has its header, without interruption: its bytes are on their way.

// poll handles what has come, for who has the turn. With looks it asks the socket first, where that
// can be done without blocking. It tells whether there was anything.
func (e *endpoint) poll(looks int, h *progress.Hand) bool {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	x := &e.rx
	if x.over {
		return false
	}
	if e.bulk.Load() && e.bulk.Swap(false) {
		e.recvCQ.Discourage() // the cores have better things to do
	}
	x.hand = h
	did, err := e.handleCarried(false)
	// Where a read has brought all that was asked for there is more: who comes back with many
	// messages at once has them answered at once.
	more := !did && looks > 0 || did && x.full && h.Room()
	for err == nil && more && x.rec == nil && !x.early {
		if err = x.fill(false); err == nil {
			var again bool
			again, err = e.handleCarried(false)
			did = did || again
			more = x.full && h.Room()
		}
	}
	x.hand = nil
	e.speak()
	if err != nil {
		e.stop(err)
	}
	return did || err != nil
}

// await reads more, for who has the turn. It blocks until there is something, or until interrupt.
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

// stop leaves the end of the connection to the keeper. It needs rxMu.
func (e *endpoint) stop(err error) {
	e.rx.over = true
	e.rx.err = err
	e.keeping.end()
}

// handleCarried handles the frames that are complete in the carry buffer, and those that are too
// large for it. It tells whether there were any. With wait, which only the keeper sets because it
// may block, it handles every frame whose header is there, and waits for the first posted receive.
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
	}
	x.need = headerBytes
	return did, nil
}

// keeping is whether the keeper reads.
type keeping struct {
	wake chan struct{} // room for one: look

	mu      sync.Mutex // a leaf
	on      bool       // the turn rests: the keeper is to read
	asked   bool       // somebody wants to read
	over    bool       // the connection has ended
	blocked bool       // the keeper is in the socket, at a place where it can be interrupted
	called  bool       // it was interrupted
}

func (k *keeping) open() { k.wake, k.on = make(chan struct{}, 1), true }

func (k *keeping) begin() { k.set(func() { k.on = true }) }

func (k *keeping) end() { k.set(func() { k.over = true }) }

func (k *keeping) set(f func()) {
	k.mu.Lock()
	f()
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// ask calls the keeper back from the socket.
func (k *keeping) ask(e *endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = true
	if k.blocked && !k.called {
		k.called = true
		e.interrupt()
	}
}

// enter tells whether the keeper may block in the socket.
func (k *keeping) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked = k.on && !k.asked && !k.over
	return k.blocked
}

// leave tells whether the keeper was interrupted.
func (k *keeping) leave() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	called := k.called
	k.blocked, k.called = false, false
	return called
}

// yield gives the turn away if somebody asked for it; over tells that the connection has ended.
func (k *keeping) yield() (give, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	give = k.on && k.asked
	if give {
		k.on, k.asked = false, false
	}
	return give, k.over
}

// keep is the keeper: it reads while the queue's turn rests, until the connection ends.
func (e *endpoint) keep() error {
	for {
		err := e.keepReading()
		give, over := e.keeping.yield()
		switch {
		case err != nil || over:
			return e.conclude(err)
		case give:
			e.recvCQ.Yielded()
		}
		<-e.keeping.wake
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

// keepReading reads until somebody else wants to, or nobody should.
func (e *endpoint) keepReading() error {
	e.rxMu.Lock()
	defer e.rxMu.Unlock()
	for !e.rx.over {
		if _, err := e.handleCarried(true); err != nil {
			return err
		}
		if !e.keeping.enter() {
			e.speak()
			return nil
		}
		err := e.rx.fill(true)
		if e.keeping.leave() {
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
