package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/ring"
)

// endpoint is one end of a connection.
//
// Life: connected by cm.go; run (rx.go) reads until the connection ends; Die marks the end and
// wakes whoever is blocked in the socket; finish, in the reader, waits until nobody touches
// memory, completes everything that is pending and says so (Finished).
type endpoint struct {
	provider.Endpoint
	d              *domain
	sendCQ, recvCQ *cq
	sock           *sock

	bulk       atomic.Bool   // something large was moved since the last poll
	writerWake chan struct{} // one token: the batch in tx is the writer's

	reader  reader
	rxMu    sync.Mutex // who reads and handles frames
	rx      rxState
	rxCount atomic.Uint64
	proved  string // by the peer's certificate
	tx      batch  // only who set busy
	sealed  vec    // what the records made of tx
	recvs   provider.RecvQueue

	mu     sync.Mutex
	idle   sync.Cond // busy became false, waited for by finish only
	busy   bool      // somebody is writing
	broken bool      // writing failed; the reader finds out why
	heard  bool      // the peer said bye or is gone: no last words

	reqs provider.SendQueue[onWire] // those that were started are numbered without gaps

	sent     uint64 // number of the last request of which the kernel has all bytes
	started  uint64 // number of the last request that was put into a batch
	acked    uint64 // number of the last request that the peer has carried out or refused
	asked    uint64 // the peer was asked to acknowledge up to here
	lastNeed uint64 // number of the last request that needs an acknowledgement to complete

	ackDue     bool              // the peer asked for an acknowledgement
	refusals   []uint64          // numbers of refused Writes, to be told to the peer; rarely any
	answers    ring.Ring[header] // Reads of the peer to be served
	coalescing coalescing
}

// work is one posted request.
type work = provider.Request[onWire]

// onWire is what a request needs here besides.
type onWire struct {
	filling bool // a Read: the answer has begun to come
}

// needsAck tells whether only the peer knows when the request is over: it has placed the Write.
// Sends, and Writes that may complete early, are over when the kernel has copied their bytes.
func needsAck(w *work) bool {
	return w.Op != fabric.OpSend && w.Flags&fabric.FlagEarly == 0
}

func newEndpoint(d *domain, k *sock, cfg fabric.EndpointConfig, peer fabric.Peer) *endpoint {
	e := &endpoint{
		d: d, sock: k,
		sendCQ:     cfg.SendCQ.(*cq),
		recvCQ:     cfg.RecvCQ.(*cq),
		writerWake: make(chan struct{}, 1),
		answers:    ring.New[header](provider.ReadDepth),
	}
	name := "tcp " + k.conn.local.String() + "->" + k.conn.remote.String()
	e.Open(&d.Domain, name, cfg, peer)
	e.reqs.Open(cfg.SendDepth)
	e.idle.L = &e.mu
	e.recvs.Open(cfg.RecvDepth)
	e.reader.open()
	e.rx.called = make(chan struct{}, 1)
	e.rx.open(k, e, e.speak)
	e.tx.open(k, &e.sealed)
	return e
}

// start lets the goroutines run, which Adopt has counted.
func (e *endpoint) start() {
	e.recvCQ.reads.CompareAndSwap(nil, e)
	go e.run()
	go e.writer()
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
	e.HoldSends(len(wrs))
	for i := range wrs {
		w := e.reqs.New(&wrs[i])
		if w.Length >= bulkBytes {
			e.bulk.Store(true)
		}
		e.reqs.Posted.Push(w)
	}
	last := len(wrs) - 1
	if last >= 0 && wrs[last].Flags&fabric.FlagMore != 0 && e.reqs.Posted.Len() < batchFrames {
		e.mu.Unlock()
		return nil // they leave with the next
	}
	e.pumpLocked()
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
		known := e.sent
		if needsAck(w) {
			known = e.acked
		}
		if w.Number > known {
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

// Die marks the end, once, and wakes whoever is blocked in the socket. It does not wait.
func (e *endpoint) Die(kind errs.Kind, why string) {
	e.mu.Lock()
	e.dieLocked(kind, why)
	e.mu.Unlock()
}

// dieLocked takes the locks of the receive queue and of the reader, which come after mu.
func (e *endpoint) dieLocked(kind errs.Kind, why string) {
	if e.End(kind, why) {
		_ = e.sock.conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket
	}
	e.recvs.Die()
	e.reader.end()
}

// finish runs in the reader when it has stopped. The endpoint is dead.
func (e *endpoint) finish() {
	e.mu.Lock()
	for e.busy {
		e.idle.Wait()
	}
	e.busy = true // for ever
	kind := errs.KindOf(e.Cause())
	speak := !e.heard && (kind == errs.Closed || kind == errs.Protocol)
	e.mu.Unlock()
	if speak {
		e.lastWords(kind)
	}
	e.tx.release()
	e.flush()
	close(e.writerWake)
	e.Finished()
	if speak {
		e.linger()
	}
	_ = e.sock.conn.Close()
}

// flush completes everything that is pending.
func (e *endpoint) flush() {
	e.mu.Lock()
	e.reqs.Flush(e.Cause(), e.completeLocked)
	e.mu.Unlock()
	if e.rx.taken { // the reader stopped in the middle of it
		e.rx.taken = false
		e.failRecv(&e.rx.recv)
	}
	e.recvs.Flush(e.failRecv)
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
