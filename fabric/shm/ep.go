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
	who  string // the kernel's word about the peer
	mem  []byte // the segment
	geo  geometry
	side int
}

// endpoint is one end of a connection.
//
// Life: connected by cm.go or dial.go; run (sock.go) reads the socket until the connection ends;
// Die marks the end and calls run back; finish, in run, waits until nobody touches memory, closes
// the socket, completes everything that is pending and says so (Finished).
type endpoint struct {
	provider.Endpoint
	d              *domain
	sendCQ, recvCQ *cq
	conn           *net.UnixConn
	raw            syscall.RawConn
	view           *view
	sleep          *atomic.Uint32 // this side's word, for futexes: perhaps unmapped, never touched
	exports, maps  bool           // this side's arenas may be used directly, the peer's are
	bell           func(fd uintptr) bool

	stopped  atomic.Bool   // dead: what runs in the background stops soon
	needs    atomic.Uint32 // events, besides data, that the pump waits for
	stuckAt  atomic.Uint64 // head of the ring when it was full
	backlog  atomic.Bool   // the pump left something behind
	faulted  atomic.Bool   // shared memory could not be touched
	exported atomic.Uint32 // arenas passed to the peer, in all
	slots    slotTable
	life     sync.RWMutex // held by who uses this side's slots; finish takes it for ever
	excluded atomic.Bool  // all of them are shut

	mapMu    sync.RWMutex // held by who copies into or out of arenas
	arenas   map[uint32][]byte
	mapBytes int64

	rxMu sync.Mutex // who empties the ring
	gone bool       // nobody does any more
	rx   rxState

	recvs provider.RecvQueue
	tx    txState // only who set busy

	mu         sync.Mutex
	idle       sync.Cond     // busy became false, waited for by finish only
	busy       bool          // somebody moves requests
	writerWake chan struct{} // wakes the goroutine that moves what a poster cannot; nil: none yet

	reqs     provider.SendQueue[inRing]
	started  uint64 // number of the last Write that the ring tells of
	lastRing uint64 // number of the last one whose data goes through it
	acked    uint64 // number of the last one that the peer has carried out or refused
	answers  ring.Ring[answer]
}

// work is one posted request. Its Number is that of a Write that the ring tells of, else 0.
type work = provider.Request[inRing]

// inRing is what a request needs here besides.
type inRing struct {
	placed bool // a WriteImm whose data is in place
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
		arenas:  map[uint32][]byte{},
		answers: ring.New[answer](provider.ReadDepth + 1), // one is through, and not yet taken off
	}
	e.Open(&d.Domain, fmt.Sprintf("shm %s #%d side %d of %d, peer %s",
		l.at, d.names.Add(1), l.side, os.Getpid(), l.who), cfg, peer)
	e.reqs.Open(cfg.SendDepth)
	v := e.view
	e.sleep = &v.mine.sleep
	e.exports = e.exports && len(v.grants) > 0
	e.bell = e.ringBell
	e.slots.init(len(v.grants))
	e.idle.L = &e.mu
	e.recvs.Open(cfg.RecvDepth)
	e.tx.out = producer{buf: v.out, seen: &v.theirs.head}
	e.rx.in = consumer{buf: v.in, told: &v.mine.head}
	e.rx.limits = limits{message: cfg.Hello.MaxMessage, part: uint32(partMax(len(v.in)))}
	return e, nil
}

// start lets the goroutine run, which Adopt has counted.
func (e *endpoint) start() {
	e.recvCQ.attach(e)
	e.sendCQ.attach(e)
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
		e.completeLocked(w)
	}
}

func (e *endpoint) Close() error {
	e.Die(errs.Closed, "closed by this side")
	e.AwaitEnd()
	return nil
}

// Die marks the end, once, and calls run back. It does not wait.
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

// finish runs in run when the endpoint is dead. The socket is closed when neither this side touches
// the peer's memory any more nor the peer this one's: that is what its end tells.
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
	e.rxMu.Unlock()
	e.shutOut()
	_ = e.conn.Close()
	e.flush()
	e.recvCQ.detach(e)
	e.sendCQ.detach(e)
	e.unmap()
	e.Finished()
}

// shutOut is exclude, which looks at shared memory.
func (e *endpoint) shutOut() {
	defer e.guard().off()
	e.exclude()
}

// unmap gives all shared memory back. Nobody uses it any more, or ever will.
func (e *endpoint) unmap() {
	e.excluded.Store(true)
	if e.d.opts.Arenas != nil {
		e.d.opts.Arenas.forget(e)
	}
	e.mapMu.Lock()
	for id, mem := range e.arenas {
		_ = unix.Munmap(mem)
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
	if e.rx.taken { // the end came in the middle of it
		e.rx.taken = false
		e.failRecv(&e.rx.recv)
	}
	e.recvs.Flush(e.failRecv)
}
