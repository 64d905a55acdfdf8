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
// die marks the end and calls run back; finish, in run, waits until nobody touches memory, closes
// the socket, completes everything that is pending and closes done.
type endpoint struct {
	d              *domain
	name           string
	cfg            fabric.EndpointConfig
	peer           fabric.Peer
	sendCQ, recvCQ *cq
	conn           *net.UnixConn
	raw            syscall.RawConn
	view           *view
	sleep          *atomic.Uint32 // this side's word, for futexes: perhaps unmapped, never touched
	exports, maps  bool           // this side's arenas may be used directly, the peer's are
	bell           func(fd uintptr) bool

	sendHeld, recvHeld atomic.Int32 // requests and receives whose completion was not polled yet
	closed             atomic.Bool  // by this side
	returned           atomic.Bool  // the reservations in the queues were given back
	stopped            atomic.Bool  // dead: what runs in the background stops soon
	done               chan struct{}

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

	recvs recvQueue
	tx    txState // only who set busy

	mu       sync.Mutex
	idle     sync.Cond     // busy became false, waited for by finish only
	busy     bool          // somebody moves requests
	porter   chan struct{} // calls the goroutine that moves what a poster cannot; nil: none yet
	dead     errs.Kind     // OK while alive
	deathErr error

	free     []*work
	queue    ring.Ring[*work] // posted, not yet through
	inflight ring.Ring[*work] // Sends and Writes that are through, not completed
	reads    [readDepth]*work
	readsOut int
	started  uint64 // number of the last Write that the ring tells of
	lastRing uint64 // number of the last one whose data goes through it
	acked    uint64 // number of the last one that the peer has carried out or refused
	answers  ring.Ring[answer]
}

// work is one posted request. It is reused; its slices keep their room.
type work struct {
	op      fabric.Op
	flags   fabric.Flags
	context uint64
	imm     uint32
	remote  fabric.Remote
	bufs    [][]byte
	inline  []byte
	file    fabric.FileRange
	length  int
	number  uint64 // of a Write that the ring tells of; else 0
	err     error  // how it failed

	moved  int  // bytes
	piece  int  // where the rest begins
	off    int  // in it
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
		d: d, cfg: cfg, peer: peer, conn: l.conn, raw: raw,
		name: fmt.Sprintf("shm %s #%d side %d of %d, peer %s",
			l.at, d.names.Add(1), l.side, os.Getpid(), l.who),
		view:     newView(l.mem, l.geo, l.side),
		exports:  l.side == 0 || d.opts.mutual,
		maps:     l.side == 1 || d.opts.mutual,
		sendCQ:   cfg.SendCQ.(*cq),
		recvCQ:   cfg.RecvCQ.(*cq),
		done:     make(chan struct{}),
		arenas:   map[uint32][]byte{},
		queue:    ring.New[*work](cfg.SendDepth),
		inflight: ring.New[*work](cfg.SendDepth),
		answers:  ring.New[answer](readDepth + 1), // one is through, and not yet taken off
	}
	v := e.view
	e.sleep = &v.mine.sleep
	e.exports = e.exports && len(v.grants) > 0
	e.bell = e.ringBell
	e.slots.init(len(v.grants))
	e.idle.L = &e.mu
	e.recvs.open(cfg.RecvDepth)
	e.tx.out = producer{buf: v.out, seen: &v.theirs.head}
	e.rx.in = consumer{buf: v.in, told: &v.mine.head}
	e.rx.limits = limits{message: cfg.Hello.MaxMessage, part: uint32(partMax(len(v.in)))}
	return e, nil
}

// start lets the goroutine run, which adopt has counted.
func (e *endpoint) start() {
	e.recvCQ.attach(e)
	e.sendCQ.attach(e)
	go e.run()
}

func (e *endpoint) Peer() fabric.Peer { return e.peer }
func (e *endpoint) Name() string      { return e.name }

func (e *endpoint) Post(wrs []fabric.WR) error {
	if err := fabric.CheckPost(&e.d.caps, &e.peer.Hello, wrs); err != nil {
		return err
	}
	for i := range wrs {
		for j := range wrs[i].Local {
			if !e.owns(wrs[i].Local[j].Reg) {
				return e.foreign("fabric.Post")
			}
		}
	}
	e.mu.Lock()
	if e.dead != errs.OK {
		e.mu.Unlock()
		return e.deadErr("fabric.Post")
	}
	if len(wrs) > e.cfg.SendDepth-int(e.sendHeld.Load()) {
		e.mu.Unlock()
		return errs.Newf(errs.Again, "fabric.Post", e.name, "the send queue is full")
	}
	if len(wrs) == 1 && e.mayHurryLocked(&wrs[0]) && e.hurryLocked(&wrs[0]) {
		return nil
	}
	e.sendHeld.Add(int32(len(wrs)))
	for i := range wrs {
		e.queue.Push(e.newWorkLocked(&wrs[i]))
	}
	if e.pumpLocked() {
		e.progress()
	}
	return nil
}

// newWorkLocked copies a request, because its slices are the caller's again when Post returns.
func (e *endpoint) newWorkLocked(wr *fabric.WR) *work {
	var w *work
	if n := len(e.free); n > 0 {
		w, e.free = e.free[n-1], e.free[:n-1]
	} else {
		w = &work{}
	}
	*w = work{
		op: wr.Op, flags: wr.Flags, context: wr.Context, imm: wr.Imm, remote: wr.Remote,
		bufs: w.bufs[:0], inline: w.inline[:0], length: wr.Len(),
	}
	if wr.File.Len > 0 {
		w.file = wr.File
	}
	if wr.Flags&fabric.FlagInline != 0 {
		for i := range wr.Local {
			w.inline = append(w.inline, wr.Local[i].Buf...)
		}
		w.bufs = append(w.bufs, w.inline)
		return w
	}
	for i := range wr.Local {
		w.bufs = append(w.bufs, wr.Local[i].Buf)
	}
	return w
}

func (e *endpoint) owns(reg fabric.Region) bool {
	if reg == nil {
		return true
	}
	r, ok := reg.(*region)
	return ok && r.d == e.d && !r.closed.Load()
}

func (e *endpoint) foreign(op string) error {
	return errs.Newf(errs.Invalid, op, e.name, "a Region is closed or not of this domain")
}

// completeLocked ends a request, silently when it succeeded and nobody asked. The work is free
// then.
func (e *endpoint) completeLocked(w *work, err error) {
	if err == nil && w.flags&fabric.FlagSignaled == 0 {
		e.sendHeld.Add(-1)
	} else {
		e.sendCQ.Push(&fabric.Completion{
			Op: w.op, Context: w.context, EP: e, Len: w.length, Err: err,
		}, false)
	}
	clear(w.bufs) // the memory is the caller's, and perhaps garbage
	w.file = fabric.FileRange{}
	e.free = append(e.free, w)
}

// retireLocked completes Sends and Writes from the oldest on, as far as their outcome is known.
func (e *endpoint) retireLocked() {
	for e.inflight.Len() > 0 {
		w := *e.inflight.At(0)
		if w.number > e.acked {
			return
		}
		e.inflight.Pop()
		e.completeLocked(w, w.err)
	}
}

// polled is told by the queue when a completion has been handed out.
func (e *endpoint) polled(op fabric.Op) {
	if op == fabric.OpRecv {
		e.recvHeld.Add(-1)
	} else {
		e.sendHeld.Add(-1)
	}
	if e.closed.Load() {
		e.unreserve()
	}
}

// unreserve gives the places in the queues back once nothing can fill or hold them any more.
func (e *endpoint) unreserve() {
	if e.sendHeld.Load() == 0 && e.recvHeld.Load() == 0 && e.returned.CompareAndSwap(false, true) {
		e.sendCQ.Unreserve(e.cfg.SendDepth)
		e.recvCQ.Unreserve(e.cfg.RecvDepth)
	}
}

func (e *endpoint) Close() error {
	e.die(errs.Closed, "closed by this side")
	<-e.done
	if e.closed.CompareAndSwap(false, true) {
		e.d.forget(e)
	}
	e.unreserve()
	return nil
}

// die marks the end, once, and calls run back. It does not wait.
func (e *endpoint) die(kind errs.Kind, why string) {
	e.mu.Lock()
	if e.dead == errs.OK {
		e.dead = kind
		e.deathErr = errs.Newf(kind, "fabric", e.name, "%s", why)
		e.stopped.Store(true)
		e.sayBye(kind)
		_ = e.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket
	}
	e.mu.Unlock()
	e.recvs.die()
}

// deadErr is what posting to a dead endpoint gives: Closed after this side's Close, else
// Disconnected.
func (e *endpoint) deadErr(op string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.dead == errs.OK:
		return nil
	case e.dead == errs.Closed || e.closed.Load():
		return errs.New(errs.Closed, op, e.name, e.deathErr)
	}
	return errs.New(errs.Disconnected, op, e.name, e.deathErr)
}

// finish runs in run when the endpoint is dead. The socket is closed when neither this side touches
// the peer's memory any more nor the peer this one's: that is what its end tells.
func (e *endpoint) finish() {
	e.mu.Lock()
	for e.busy {
		e.idle.Wait()
	}
	e.busy = true // for ever
	porter := e.porter
	e.mu.Unlock()
	if porter != nil {
		close(porter)
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
	close(e.done)
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
	err := e.deathErr
	fail := func(w *work) {
		if w.err == nil { // a refused Write keeps its own reason
			w.err = err
		}
		e.completeLocked(w, w.err)
	}
	for e.inflight.Len() > 0 {
		fail(e.inflight.Pop())
	}
	for i, w := range e.reads {
		if w != nil {
			fail(w)
			e.reads[i] = nil
		}
	}
	for e.queue.Len() > 0 {
		fail(e.queue.Pop())
	}
	e.mu.Unlock()
	e.recvs.flush(e, err)
}
