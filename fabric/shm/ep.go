package shm

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/ring"
)

// link is a connection whose hellos are exchanged.
type link struct {
	conn *net.UnixConn
	at   place
	who  string // the peer's uid and pid, from the kernel
	mem  []byte // the segment
	geo  geometry
	side int
	near bool // the peer is root or this process's user
}

// endpoint is one end of a connection.
//
// Life: connected by cm.go or dial.go; run (sock.go) reads the socket until the connection ends;
// Die marks the end and interrupts run; finish, in run, waits until nobody touches memory, closes
// the socket, completes everything that is pending and says so (Finished).
type endpoint struct {
	provider.Endpoint
	d              *domain
	sendCQ, recvCQ *cq
	conn           *net.UnixConn
	raw            syscall.RawConn
	view           *view
	sleep          *atomic.Uint32 // this side's sleep word, a futex address only: it may be unmapped
	exports, maps  bool           // this side's arenas may be used directly, the peer's are
	lends, borrows bool           // this side's memory is lent, the peer's is borrowed: lend.go
	doorbell       func(fd uintptr) bool

	stopped  atomic.Bool   // dead: copies and loops stop soon
	awaited  atomic.Uint32 // events, besides data, that moving waits for
	fullAt   atomic.Uint64 // head of the ring when it was full
	backlog  atomic.Bool   // something is queued and not moved
	faulted  atomic.Bool   // shared memory could not be touched
	exported atomic.Uint32 // arenas passed to the peer, in all
	slots    slotTable
	life     sync.RWMutex // shared while this side's slots are used; exclusive to unmap the segment
	excluded atomic.Bool  // all of them are shut

	mapMu     sync.RWMutex // held shared by copies into or out of arenas
	arenas    map[uint32]*mapping
	mapBytes  int64
	borrowing atomic.Int32 // how many of them are borrowed

	lendMu sync.Mutex
	debts  map[*arena]*debt // what is lent

	rxMu sync.Mutex // held while the ring is emptied
	gone bool       // it is not emptied any more
	rx   rxState

	recvs provider.RecvQueue
	tx    txState // of the goroutine that set busy

	mu         sync.Mutex
	idle       sync.Cond     // busy became false, waited for by finish only
	busy       bool          // somebody moves requests
	writerWake chan struct{} // wakes the goroutine that moves what a poster cannot; nil: none yet

	reqs     provider.SendQueue[inRing]
	started  uint64 // number of the last Write that is told of in the ring
	lastRing uint64 // number of the last Write whose data goes through the ring
	acked    uint64 // number of the last Write that the peer has carried out or refused
	hurried  int    // started requests whose end somebody may wait for (fabric.FlagLater)
	lent     int    // bytes of this side's that the peer copies, or will
	answers  ring.Ring[answer]
}

// work is one posted request. Its Number is that of a Write that is told of in the ring, else 0.
type work = provider.Request[inRing]

// inRing is what this provider adds to a request.
type inRing struct {
	placed bool // a WriteImm whose data is in place
	lent   bool // a Write whose data is lent
}

func newEndpoint(d *domain, l link, cfg fabric.EndpointConfig, peer fabric.Peer) (
	*endpoint, error,
) {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return nil, errs.Wrap("shm.connect", "", err)
	}
	e := &endpoint{
		d: d, conn: l.conn, raw: raw,
		view:    newView(l.mem, l.geo, l.side),
		exports: l.side == 0 || d.opts.mutual,
		maps:    l.side == 1 || d.opts.mutual,
		sendCQ:  cfg.SendCQ.(*cq),
		recvCQ:  cfg.RecvCQ.(*cq),
		lends:   (l.side == 1 || d.opts.mutual) && l.near && l.geo.borrows && d.opts.Lent != nil,
		borrows: (l.side == 0 || d.opts.mutual) && l.geo.borrows,
		arenas:  map[uint32]*mapping{},
		debts:   map[*arena]*debt{},
		answers: ring.New[answer](provider.ReadDepth + 1), // one may be answered and not yet popped
	}
	e.Open(&d.Domain, fmt.Sprintf("shm %s #%d side %d of %d, peer %s",
		l.at, d.names.Add(1), l.side, os.Getpid(), l.who), cfg, peer)
	e.reqs.Open(cfg.SendDepth)
	v := e.view
	e.sleep = &v.mine.sleep
	e.exports = e.exports && len(v.grants) > 0
	e.doorbell = e.ringDoorbell
	e.slots.init(len(v.grants))
	e.idle.L = &e.mu
	e.recvs.Open(cfg.RecvDepth)
	e.tx.out = producer{buf: v.out, seen: &v.theirs.head}
	e.rx.in = consumer{buf: v.in, told: &v.mine.head}
	e.rx.limits = limits{message: cfg.Hello.MaxMessage, part: uint32(partMax(len(v.in)))}
	return e, nil
}

// start starts run, which Adopt has counted.
func (e *endpoint) start() {
	e.recvCQ.attach(e)
	e.sendCQ.attach(e)
	e.offer()
	go e.run()
}

func (e *endpoint) Post(wrs []fabric.WR) error {
	if err := provider.CheckPost[*region](&e.Endpoint, wrs); err != nil {
		return err
	}
	e.mu.Lock()
	if err := e.MaySend(len(wrs)); err != nil {
		e.mu.Unlock()
		return err
	}
	if len(wrs) == 1 && e.mayBypassLocked(&wrs[0]) && e.bypassLocked(&wrs[0]) {
		return nil
	}
	if len(wrs) == 0 {
		e.wakeHeldLocked()
		return nil
	}
	e.HoldSends(len(wrs))
	for i := range wrs {
		e.reqs.Posted.Push(e.reqs.New(&wrs[i]))
	}
	if e.pumpLocked() {
		e.progress()
	}
	return nil
}

// completeLocked ends a request. It is free then.
func (e *endpoint) completeLocked(w *work) {
	if c, told := e.reqs.Complete(&e.Endpoint, w); told {
		c.EP = e
		e.sendCQ.Push(&c, false)
	}
}

// retireLocked completes Sends and Writes from the oldest on, as far as their outcome is known.
func (e *endpoint) retireLocked() {
	for e.reqs.Started.Len() > 0 {
		w := *e.reqs.Started.At(0)
		if w.Number > e.acked {
			return
		}
		e.reqs.Started.Pop()
		if w.Flags&fabric.FlagLater == 0 {
			e.hurried--
		}
		if w.Own.lent {
			e.lent -= w.Length
		}
		e.completeLocked(w)
	}
}

func (e *endpoint) Close() error {
	e.Die(errs.Closed, "closed by this side")
	e.AwaitEnd()
	return nil
}

// Die marks the end, once, and interrupts run. It does not wait.
func (e *endpoint) Die(kind errs.Kind, why string) {
	e.mu.Lock()
	if e.End(kind, why) {
		e.stopped.Store(true)
		e.sayBye(kind)
		_ = e.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket
	}
	e.mu.Unlock()
	e.recvs.Die()
}

// finish runs in run when the endpoint is dead. The socket is closed when this side has stopped
// touching the peer's memory and the peer has stopped touching this side's, or has taken too long:
// a closed socket tells the peer so.
func (e *endpoint) finish() {
	e.mu.Lock()
	for e.busy {
		e.idle.Wait()
	}
	e.busy = true // for ever
	wake := e.writerWake
	e.mu.Unlock()
	if wake != nil {
		close(wake)
	}
	e.rxMu.Lock()
	e.gone = true
	if e.rx.copier != nil {
		close(e.rx.copier)
	}
	e.rxMu.Unlock()
	e.excludeGuarded()
	_ = e.conn.Close()
	e.flush()
	e.recvCQ.detach(e)
	e.sendCQ.detach(e)
	e.unmap()
	e.Finished()
}

// excludeGuarded is exclude with a guard, because it touches shared memory.
func (e *endpoint) excludeGuarded() {
	defer e.guard().off()
	e.exclude()
}

// unmap unmaps all shared memory. Nobody uses it any more.
func (e *endpoint) unmap() {
	e.excluded.Store(true)
	for _, all := range []*Arenas{e.d.opts.Arenas, e.d.opts.Lent} {
		if all != nil {
			all.forget(e)
		}
	}
	e.mapMu.Lock()
	for id, m := range e.arenas {
		_ = unix.Munmap(m.mem)
		delete(e.arenas, id)
	}
	e.mapMu.Unlock()
	e.life.Lock()
	_ = e.view.unmap()
	e.life.Unlock()
}

// flush completes everything that is pending.
func (e *endpoint) flush() {
	e.mu.Lock()
	e.reqs.Flush(e.Cause(), e.completeLocked)
	e.mu.Unlock()
	if e.rx.taken { // the connection ended in the middle of a message
		e.rx.taken = false
		e.failRecv(&e.rx.recv)
	}
	e.recvs.Flush(e.failRecv)
}
