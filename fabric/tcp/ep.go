package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/ring"
)

// endpoint is one end of a connection.
//
// Life: connected by cm.go; run (rx.go) reads until the connection ends; die marks the end and
// wakes whoever is blocked in the socket; finish, in the reader, waits until nobody touches
// memory, completes everything that is pending and closes done.
type endpoint struct {
	d              *domain
	name           string
	cfg            fabric.EndpointConfig
	peer           fabric.Peer
	sendCQ, recvCQ *cq
	sock           *sock

	sendHeld, recvHeld atomic.Int32 // requests and receives whose completion was not polled yet
	bulk               atomic.Bool  // something large was moved since the last look, see brisk
	closed             atomic.Bool  // by this side
	returned           atomic.Bool  // the reservations in the queues were given back
	done               chan struct{}
	writerWake         chan struct{} // one token: the batch in tx is the writer's

	role    role
	rx      rxState // only who holds the role
	rxCount atomic.Uint64
	proved  string                   // by the peer's certificate
	joinKey atomic.Pointer[[32]byte] // with which the lanes of a listener's endpoint come
	tx      batch                    // only who set busy
	sealed  vec                      // what the records made of tx
	recvs   recvQueue

	mu       sync.Mutex
	idle     sync.Cond // busy became false, waited for by finish only
	busy     bool      // somebody is writing
	broken   bool      // writing failed; the reader finds out why
	dead     errs.Kind // OK while alive
	deathErr error
	heard    bool // the peer said bye or is gone: no last words

	free     []*work
	queue    ring.Ring[*work] // posted, not yet written
	inflight ring.Ring[*work] // written Sends and Writes, not completed, numbered without gaps
	reads    [readDepth]*work
	readsOut int
	sent     uint64 // number of the last request of which the kernel has all bytes
	started  uint64 // number of the last request that was put into a batch
	acked    uint64 // number of the last request that the peer has carried out or refused
	asked    uint64 // the peer was asked to acknowledge up to here
	lastNeed uint64 // number of the last request that needs an acknowledgement to complete

	ackDue   bool              // the peer asked for an acknowledgement
	refusals []uint64          // numbers of refused Writes, to be told to the peer; rarely any
	answers  ring.Ring[header] // Reads of the peer to be served
	lanes    laneState
	company  company
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
	fd      int // the file's, asked for in Post: later it may be closed at any moment
	length  int
	number  uint64
	lane    int   // by which it goes; 0: by the first socket
	filling bool  // a Read: the answer has begun to come
	err     error // the peer refused it
}

// needsAck tells whether only the peer knows when the request is over: it placed a Write, or has
// the bytes that the kernel took from a file by reference. What the kernel has copied from memory
// may be over early; lanes do not tell when that is.
func (w *work) needsAck() bool {
	early := w.op == fabric.OpSend || w.flags&fabric.FlagEarly != 0 && w.lane == 0
	return !early || w.file.Len > 0
}

func newEndpoint(d *domain, k *sock, cfg fabric.EndpointConfig) *endpoint {
	e := &endpoint{
		d: d, cfg: cfg, sock: k,
		name:       "tcp " + k.conn.local.String() + "->" + k.conn.remote.String(),
		sendCQ:     cfg.SendCQ.(*cq),
		recvCQ:     cfg.RecvCQ.(*cq),
		done:       make(chan struct{}),
		writerWake: make(chan struct{}, 1),
		queue:      ring.New[*work](cfg.SendDepth),
		inflight:   ring.New[*work](cfg.SendDepth),
		answers:    ring.New[header](readDepth),
	}
	e.idle.L = &e.mu
	e.lanes.news.L = &e.mu
	e.recvs.open(cfg.RecvDepth)
	e.role.open(d.watch)
	e.rx.open(k, e, e.speak)
	e.tx.open(k, &e.sealed)
	return e
}

// start lets the goroutines run, which adopt has counted.
func (e *endpoint) start() {
	e.sendCQ.attach(e)
	e.recvCQ.attach(e)
	go e.run()
	go e.writer()
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
	e.sendHeld.Add(int32(len(wrs)))
	for i := range wrs {
		e.queue.Push(e.newWorkLocked(&wrs[i]))
	}
	e.pumpLocked()
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
	w.op, w.flags, w.context, w.imm, w.remote = wr.Op, wr.Flags, wr.Context, wr.Imm, wr.Remote
	w.bufs, w.inline, w.err, w.number, w.file = w.bufs[:0], w.inline[:0], nil, 0, wr.File
	w.filling, w.lane = false, 0
	w.length = wr.Len()
	if w.file.Len > 0 {
		w.fd = int(w.file.File.Fd())
	}
	if w.length >= bulkBytes {
		e.bulk.Store(true)
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
		e.sendCQ.push(&fabric.Completion{
			Op: w.op, Context: w.context, EP: e, Len: w.length, Err: err,
		}, false)
	}
	clear(w.bufs) // the memory is the caller's, and perhaps garbage
	w.file.File = nil
	e.free = append(e.free, w)
}

// retireLocked completes Sends and Writes from the oldest on, as far as their outcome is known.
func (e *endpoint) retireLocked() {
	for e.inflight.Len() > 0 {
		w := *e.inflight.At(0)
		known := e.sent
		if w.needsAck() {
			known = e.acked
		}
		if w.number > known {
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
		e.sendCQ.unreserve(e.cfg.SendDepth)
		e.recvCQ.unreserve(e.cfg.RecvDepth)
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

// die marks the end, once, and wakes whoever is blocked in the socket. It does not wait.
func (e *endpoint) die(kind errs.Kind, why string) {
	e.mu.Lock()
	e.dieLocked(kind, why)
	e.mu.Unlock()
}

// dieLocked takes the locks of the receive queue and the role, which come after mu.
func (e *endpoint) dieLocked(kind errs.Kind, why string) {
	if e.dead == errs.OK {
		e.dead = kind
		e.deathErr = errs.Newf(kind, "fabric", e.name, "%s", why)
		_ = e.sock.conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket
		e.lanes.stopLocked()
	}
	e.recvs.die()
	e.role.die()
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

// finish runs in the reader when it has stopped. The endpoint is dead.
func (e *endpoint) finish() {
	e.mu.Lock()
	for e.busy {
		e.idle.Wait()
	}
	e.busy = true // for ever
	speak := !e.heard && (e.dead == errs.Closed || e.dead == errs.Protocol)
	kind, lanes := e.dead, e.lanes.all
	e.mu.Unlock()
	e.lanes.wg.Wait()
	if speak {
		e.lastWords(kind)
	}
	for _, l := range lanes { // after the last words: they come first at the peer, too
		_ = l.rx.conn.CloseWrite()
	}
	e.tx.release()
	e.flush()
	close(e.writerWake)
	close(e.done)
	if speak {
		e.linger()
	}
	_ = e.sock.conn.Close()
	for _, l := range lanes {
		_ = l.rx.conn.Close()
	}
}

// flush completes everything that is pending.
func (e *endpoint) flush() {
	e.mu.Lock()
	err := e.deathErr
	for e.inflight.Len() > 0 {
		w := e.inflight.Pop()
		if w.err == nil { // a refused Write keeps its own reason
			w.err = err
		}
		e.completeLocked(w, w.err)
	}
	for i, w := range e.reads {
		if w != nil {
			e.completeLocked(w, err)
			e.reads[i] = nil
		}
	}
	for e.queue.Len() > 0 {
		e.completeLocked(e.queue.Pop(), err)
	}
	e.mu.Unlock()
	e.recvs.flush(e, err)
}

// lastWords tells the peer why. A frame that is half written is finished only where the reason
// matters to the peer (it learns of a plain close in any case), and only for as long as Linger.
func (e *endpoint) lastWords(kind errs.Kind) {
	_ = e.sock.conn.SetDeadline(time.Now().Add(e.d.opts.Linger))
	defer func() { _ = e.sock.conn.CloseWrite() }()
	t := &e.tx
	if t.left() {
		if kind != errs.Protocol || t.write(t.callBlocking) != nil || t.left() {
			return
		}
	}
	t.reset()
	t.add(&header{kind: frameBye, imm: uint32(kind), ack: uint32(e.rxCount.Load())})
	_ = t.write(t.call)
}

// linger reads and drops what the peer still sends, because closing a socket with unread data would
// destroy the last words on their way.
func (e *endpoint) linger() {
	for {
		e.rx.in.reset()
		e.rx.in.add(e.rx.carry[:])
		if _, err := e.rx.receive(&e.rx.in); err != nil {
			return
		}
	}
}
