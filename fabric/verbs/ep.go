//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// endpoint is one end of a connection: a queue pair and the record of what was posted to it.
//
// Requests are numbered as they are posted to the device, without gaps. A device completes them in
// that order, silently or not, so a completion of one retires everything before it.
type endpoint struct {
	provider.Endpoint
	d              *domain
	dev            *device
	index          uint32 // in the numbers of its requests
	port           int
	sendCQ, recvCQ *cq
	conn           *conn
	qp             *cQP
	qpNum          uint32
	gate           gate

	ctlHeld atomic.Int32 // the provider's own requests under way
	heard   atomic.Bool  // a completion came since the last probe
	probing atomic.Bool  // a probe is under way
	oldest  oldest       // keepAlive's

	sendMu   sync.Mutex
	stage    stage      // the chain that is being built, or waits for the gate
	waiting  []sendSlot // what is in stage and has no number yet
	silent   int        // requests since the last one with a completion
	sendNext atomic.Uint32
	sends    []sendSlot // by number; written under sendMu, read under sendCQ.mu behind sendNext

	sq queueEnd // guarded by sendCQ.mu
	rq queueEnd // guarded by recvCQ.mu

	recvMu   sync.Mutex
	stageIn  recvStage
	recvNext atomic.Uint32
	recvs    []recvSlot // by number; written under recvMu, read under recvCQ.mu behind recvNext

	owned []*grant // guarded by domain.grants.mu
	swept bool     // guarded by domain.grants.mu: no more grants
}

// queueEnd is the progress of a queue's completions.
type queueEnd struct {
	next   uint32 // the oldest request that was not completed
	seen   uint32 // behind the last request that the device reported, as done or failed
	failed bool   // the queue pair is in error: finish completes what is left
}

// sendSlot is the record of one request.
type sendSlot struct {
	context uint64
	length  int
	grant   *grant // invalidate: whose window
	err     error  // the device refused it
	op      fabric.Op
	kind    slotKind
}

type recvSlot struct {
	context uint64
	err     error
	marker  bool // the last one, posted by finish
}

type slotKind uint8

const (
	slotSilent   slotKind = iota // the user's; success needs no completion
	slotSignaled                 // the user's; success has a completion
	slotControl                  // the provider's, counted in ctlHeld
	slotAlive                    // the provider's, with a place of its own: a probe
	slotFree                     // the provider's, with a place of its own: gate, marker
)

// recvBit tells receives from requests in their numbers: index 31 | number 32 below it.
const recvBit = 1 << 63

func (e *endpoint) sendID(number uint32) uint64 { return uint64(e.index)<<32 | uint64(number) }
func (e *endpoint) recvID(number uint32) uint64 { return recvBit | e.sendID(number) }

// controlDepth is how many requests of its own the provider may have in a send queue.
func controlDepth(sendDepth int) int { return sendDepth + 1 }

// spareSends are the places of the gate's write, of the probe and of the marker; the marker has one
// among the receives too.
const spareSends, spareRecvs = 3, 1

// deepest is the largest user's depth that a queue pair of so many requests can have.
func deepest(requests int) int { return (requests - controlDepth(0) - spareSends) / 2 }

// newEndpoint makes the queue pair. The caller has reserved the queues and has a reference to the
// device, which passes to the endpoint.
func newEndpoint(d *domain, dev *device, c *conn, cfg fabric.EndpointConfig) (*endpoint, error) {
	sends := cfg.SendDepth + controlDepth(cfg.SendDepth) + spareSends
	recvs := cfg.RecvDepth + spareRecvs
	e := &endpoint{
		d: d, dev: dev, conn: c, index: d.index(),
		sendCQ: cfg.SendCQ.(*cq), recvCQ: cfg.RecvCQ.(*cq),
		sends: make([]sendSlot, powerOfTwo(sends)), recvs: make([]recvSlot, powerOfTwo(recvs)),
		port: idPort(c.id),
	}
	local, remote := idAddrs(c.id)
	name := "verbs " + dev.name + " " + local.String() + "->" + remote.String()
	e.Open(&d.Domain, name, cfg, fabric.Peer{}) // join sets the peer
	if err := e.gate.open(dev); err != nil {
		e.discard()
		return nil, err
	}
	send, err := e.sendCQ.attach(e)
	if err == nil {
		var recv *cCQ
		if recv, err = e.recvCQ.attach(e); err == nil {
			e.qp, err = newQP(dev.pd, send, recv, sends, recvs, d.Caps().MaxSge, d.Caps().MaxInline)
			err = memoryError("verbs.connect", dev.name, err)
		}
	}
	if err == nil {
		e.qpNum = qpNumber(e.qp)
		if refused := initQP(c.id, e.qp); refused != nil { // the peer, or the device, is gone
			err = errs.Newf(errs.Disconnected, "verbs.connect", e.Name(), "%w", refused)
		}
	}
	if err != nil {
		e.discard()
		return nil, err
	}
	return e, nil
}

// discard frees an endpoint that was never connected, but for its conn and its reservation.
func (e *endpoint) discard() {
	if e.qp != nil {
		freeQP(e.qp)
	}
	e.sendCQ.release(e)
	e.recvCQ.release(e)
	e.gate.close()
	e.dev.refs.leave()
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func (e *endpoint) Post(wrs []fabric.WR) error {
	if err := provider.CheckPost[*region](&e.Endpoint, wrs); err != nil {
		return err
	}
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	if e.Dead() {
		return e.Check("fabric.Post")
	}
	if len(wrs) > e.SendRoom() {
		e.sendMu.Unlock()
		e.sendCQ.drain() // silent requests may be done and not drained
		e.sendMu.Lock()
		if e.Dead() {
			return e.Check("fabric.Post")
		}
		if len(wrs) > e.SendRoom() {
			return e.Full("fabric.Post")
		}
	}
	e.HoldSends(len(wrs))
	hold := e.mustHoldLocked(wrs)
	if !hold {
		e.numberWaitingLocked() // they come first
	}
	for i := range wrs {
		e.stageLocked(&wrs[i], hold)
	}
	if hold {
		e.startPollLocked()
		return nil
	}
	return e.postStageLocked()
}

// stageLocked appends a request to the chain. Where users ask for no completions the provider asks
// for some, four in each round of the queue, so that places become free.
func (e *endpoint) stageLocked(wr *fabric.WR, hold bool) {
	kind := slotSilent
	signaled := wr.Flags&fabric.FlagSignaled != 0
	if signaled {
		kind = slotSignaled
	} else if e.silent++; e.silent > e.Config.SendDepth/4 {
		signaled = true
	}
	if signaled {
		e.silent = 0
	}
	length := e.stage.add(wr, e.dev, signaled, hold)
	slot := sendSlot{context: wr.Context, length: length, op: wr.Op, kind: kind}
	if hold {
		e.waiting = append(e.waiting, slot)
		return
	}
	e.stage.number(e.stage.n-1, e.sendID(e.numberLocked(&slot)))
}

// numberWaitingLocked numbers the requests that waited for the gate.
func (e *endpoint) numberWaitingLocked() {
	for i := range e.waiting {
		e.stage.number(i, e.sendID(e.numberLocked(&e.waiting[i])))
	}
	e.waiting = e.waiting[:0]
}

// postStageLocked posts the chain to the device. If the device refuses it the endpoint dies, and
// finish completes the chain: the device would not report it.
func (e *endpoint) postStageLocked() error {
	if e.stage.n == 0 {
		return nil
	}
	e.numberWaitingLocked()
	if err := e.stage.post(e.qp); err != nil {
		e.Die(errs.Disconnected, "the device takes no requests: "+err.Error())
	}
	return nil
}

// numberLocked gives a request the next number and records it, before the device can report it.
func (e *endpoint) numberLocked(slot *sendSlot) uint32 {
	n := e.sendNext.Load()
	e.sends[n&uint32(len(e.sends)-1)] = *slot
	e.sendNext.Store(n + 1)
	return n
}

// sent handles a request's completion, under sendCQ.mu. It tells whether the user gets one.
func (e *endpoint) sent(w *done, c *fabric.Completion) bool {
	_ = e.sendNext.Load() // what was recorded before the request was posted is visible now
	number, mask := uint32(w.id), uint32(len(e.sends)-1)
	for !e.sq.failed && e.sq.next != number {
		e.retire(&e.sends[e.sq.next&mask])
		e.sq.next++
	}
	e.sq.seen = number + 1
	slot := &e.sends[number&mask]
	if w.status != 0 {
		e.sq.failed = true
		slot.err = e.failed(w.status)
		return false
	}
	if e.sq.failed { // cannot be: the device would have lost the order
		return false
	}
	e.heard.Store(true)
	e.sq.next++
	if slot.kind == slotSignaled {
		*c = fabric.Completion{Op: slot.op, Context: slot.context, EP: e, Len: slot.length}
		return true
	}
	e.retire(slot)
	return false
}

// retire ends a request that succeeded without a completion for the user.
func (e *endpoint) retire(slot *sendSlot) {
	switch slot.kind {
	case slotSilent, slotSignaled:
		e.Silent()
	case slotControl:
		if slot.grant != nil {
			slot.grant.shut.Store(true)
			slot.grant = nil
		}
		e.ctlHeld.Add(-1)
	case slotAlive:
		e.probing.Store(false)
	}
}
