package sim

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// endpoint is one end of a connection. What follows the queues is guarded by net.mu.
type endpoint struct {
	provider.Endpoint
	net            *Net
	domain         *domain
	sendCQ, recvCQ *cq

	peer    *endpoint
	posted  bool // PostRecv was called: from now on messages must find a receive
	breakIn int  // pieces of work until the connection is cut; 0 never

	reqs  provider.SendQueue[step]
	recvs []fabric.Recv
}

const cut = "the connection broke"

// work is one request on its way.
type work = provider.Request[step]

// step is where a request is on its way.
type step struct {
	due    uint64
	placed bool // a Send or Write had its effect, or was refused
}

func (d *domain) newEndpoint(name string, cfg fabric.EndpointConfig, peer fabric.Peer) *endpoint {
	e := &endpoint{
		net: d.net, domain: d, sendCQ: cfg.SendCQ.(*cq), recvCQ: cfg.RecvCQ.(*cq),
	}
	e.Open(&d.Domain, name, cfg, peer)
	e.reqs.Open(cfg.SendDepth)
	return e
}

func (e *endpoint) Post(wrs []fabric.WR) error {
	if err := provider.CheckPost[*region](&e.Endpoint, wrs); err != nil {
		return err
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if err := e.MaySend(len(wrs)); err != nil {
		return err
	}
	e.HoldSends(len(wrs))
	for i := range wrs {
		w := e.reqs.New(&wrs[i])
		w.Own.due = e.net.dueLocked()
		e.reqs.Posted.Push(w)
	}
	if last := len(wrs) - 1; last < 0 || wrs[last].Flags&fabric.FlagMore == 0 {
		e.net.progressLocked(e)
	}
	return nil
}

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := provider.CheckRecv[*region](&e.Endpoint, recvs); err != nil {
		return err
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.Dead() {
		return e.Check("fabric.PostRecv")
	}
	if len(recvs) > e.RecvRoom() {
		return e.Full("fabric.PostRecv")
	}
	e.HoldRecvs(len(recvs))
	e.recvs = append(e.recvs, recvs...)
	e.posted = true
	e.net.progressLocked(e.peer) // its messages may have waited for this
	return nil
}

func (e *endpoint) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.closeLocked()
	return nil
}

func (e *endpoint) closeLocked() {
	e.dieLocked(errs.Closed, "closed by this side")
	e.peer.dieLocked(errs.Disconnected, "closed by the peer")
	e.domain.eps = without(e.domain.eps, e)
	e.AwaitEnd()
}

func (e *endpoint) breakLocked(why string) {
	e.dieLocked(errs.Disconnected, why)
	e.peer.dieLocked(errs.Disconnected, why)
}

// completeBeforeLocked completes the Sends and Writes before last that had their effect, because a
// peer that answers last has received them too.
func (e *endpoint) completeBeforeLocked(last *work) {
	for e.reqs.Started.Len() > 0 {
		if w := *e.reqs.Started.At(0); w == last || !w.Own.placed {
			return
		}
		e.finishLocked()
	}
}

// protocolLocked ends the connection because one side broke the contract.
func (e *endpoint) protocolLocked(why string) {
	e.dieLocked(errs.Protocol, why)
	e.peer.dieLocked(errs.Protocol, why)
}

// dieLocked completes everything that is pending with kind.
func (e *endpoint) dieLocked(kind errs.Kind, why string) {
	if !e.End(kind, why) {
		return
	}
	e.reqs.Flush(e.Cause(), e.completeLocked)
	for _, r := range e.recvs {
		e.recvCQ.pushLocked(&fabric.Completion{
			Op: fabric.OpRecv, Context: r.Context, EP: e, Err: e.Cause(),
		}, false)
	}
	e.recvs = nil
	e.net.forgetLocked(e)
	e.Finished()
}

// actionsLocked appends what this end may do next.
func (e *endpoint) actionsLocked(all []action) []action {
	if e.reqs.Started.Len() > 0 {
		if w := *e.reqs.Started.At(0); w.Own.placed {
			all = append(all, action{ep: e, kind: actFinish, due: w.Own.due})
		}
	}
	all, placed := e.placesLocked(all)
	for tag, w := range e.reqs.Reads {
		if w != nil {
			all = append(all, action{ep: e, kind: actRead, at: tag, due: w.Own.due})
		}
	}
	w := e.reqs.Next()
	if w == nil {
		return all
	}
	full := w.Op == fabric.OpRead && e.reqs.ReadsOut >= e.net.opts.Limits.ReadDepth
	held := isMessage(w) && !e.peer.posted
	behind := w.Op != fabric.OpWrite && !placed // messages and Reads come behind all Writes
	if !full && !held && !behind {
		all = append(all, action{ep: e, kind: actStart, due: w.Own.due})
	}
	return all
}

// placesLocked appends the started Writes that may be placed next, and tells whether all of them
// are placed. Writes through one grant are placed in order; one through another grant may overtake.
func (e *endpoint) placesLocked(all []action) (_ []action, placed bool) {
	placed = true
	for i := range e.reqs.Started.Len() {
		w := *e.reqs.Started.At(i)
		if w.Own.placed {
			continue
		}
		placed = false
		if !e.behindLocked(i, w) {
			all = append(all, action{ep: e, kind: actPlace, at: i, due: w.Own.due})
		}
	}
	return all, placed
}

// behindLocked tells whether one of the first i Writes goes by the grant of w and is not placed.
func (e *endpoint) behindLocked(i int, w *work) bool {
	for j := range i {
		if o := *e.reqs.Started.At(j); !o.Own.placed && o.Remote.Key == w.Remote.Key {
			return true
		}
	}
	return false
}

func isMessage(w *work) bool { return w.Op == fabric.OpSend || w.Op == fabric.OpWriteImm }

// startLocked takes the oldest request: Sends have their effect now, Reads are under way, and
// Writes have it now when running free, else in a later step.
func (e *endpoint) startLocked() {
	w := e.reqs.Next()
	w.Own.due = e.net.dueLocked()
	if w.Op == fabric.OpRead {
		e.reqs.StartRead(e.reqs.FreeTag())
		return
	}
	e.reqs.Started.Push(e.reqs.Posted.Pop()) // before its effect, which may end the connection
	if isMessage(w) || e.net.opts.MaxDelay == 0 {
		e.placeLocked(w)
	}
}

// placeLocked carries out a started Send or Write.
func (e *endpoint) placeLocked(w *work) {
	w.Own.placed, w.Own.due = true, e.net.dueLocked()
	if w.Op == fabric.OpSend {
		e.sendLocked(w)
	} else {
		e.writeLocked(w)
	}
}

func (e *endpoint) finishLocked() { e.completeLocked(e.reqs.Started.Pop()) }

// completeLocked ends a request. It is free then.
func (e *endpoint) completeLocked(w *work) {
	if c, told := e.reqs.Complete(&e.Endpoint, w); told {
		c.EP = e
		e.sendCQ.pushLocked(&c, false)
	}
}

// countBreakLocked cuts the connection when the seed or BreakAfter says so.
func (e *endpoint) countBreakLocked() {
	if e.Dead() {
		return
	}
	one := e.net.opts.BreakOneIn
	if one > 0 && e.net.rng.IntN(one) == 0 {
		e.breakLocked(cut)
		return
	}
	for _, end := range []*endpoint{e, e.peer} {
		if end.breakIn > 0 {
			if end.breakIn--; end.breakIn == 0 {
				e.breakLocked(cut)
				return
			}
		}
	}
}
