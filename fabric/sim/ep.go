package sim

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// endpoint is one end of a connection. What follows the names is guarded by net.mu.
type endpoint struct {
	net    *Net
	domain *domain
	name   string
	cfg    fabric.EndpointConfig
	other  fabric.Peer // who the peer is

	peer     *endpoint
	dead     errs.Kind // OK while alive
	why      string
	closed   bool // by this side
	returned bool // reservations given back
	posted   bool // PostRecv was called: from now on messages must find a receive
	breakIn  int  // pieces of work until the connection is cut; 0 never

	sendHeld, recvHeld int // requests and receives whose completions were not polled yet

	queue []*work // posted, not started
	reads []*work // started Reads
	done  []*work // Sends and Writes that were started and not completed
	recvs []fabric.Recv
}

const cut = "the connection broke"

// work is one request on its way. Works are used again.
type work struct {
	wr     fabric.WR
	due    uint64
	placed bool // a Send or Write had its effect, or was refused
	result error
	inline []byte // what FlagInline copied
}

func (e *endpoint) Peer() fabric.Peer { return e.other }
func (e *endpoint) Name() string      { return e.name }

func (e *endpoint) Post(wrs []fabric.WR) error {
	if err := fabric.CheckPost(&e.domain.caps, &e.other.Hello, wrs); err != nil {
		return err
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.dead != errs.OK {
		return e.deadErr("fabric.Post")
	}
	for i := range wrs {
		for _, s := range wrs[i].Local {
			if err := e.ownLocked(s.Reg); err != nil {
				return err
			}
		}
	}
	if len(wrs) > e.cfg.SendDepth-e.sendHeld {
		return errs.Newf(errs.Again, "fabric.Post", e.name, "the send queue is full")
	}
	for i := range wrs {
		e.queue = append(e.queue, e.newWorkLocked(&wrs[i]))
		e.sendHeld++
	}
	e.net.progressLocked(e)
	return nil
}

func (e *endpoint) newWorkLocked(wr *fabric.WR) *work {
	if len(e.net.spare) == 0 {
		e.net.spare = append(e.net.spare, &work{})
	}
	last := len(e.net.spare) - 1
	w := e.net.spare[last]
	e.net.spare = e.net.spare[:last]
	local := w.wr.Local[:0]
	*w = work{wr: *wr, due: e.net.dueLocked(), inline: w.inline[:0]}
	if wr.Flags&fabric.FlagInline == 0 {
		w.wr.Local = append(local, wr.Local...)
		return w
	}
	for _, s := range wr.Local {
		w.inline = append(w.inline, s.Buf...)
	}
	w.wr.Local = append(local, fabric.Sge{Buf: w.inline})
	return w
}

func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	if err := fabric.CheckRecv(&e.domain.caps, recvs); err != nil {
		return err
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.dead != errs.OK {
		return e.deadErr("fabric.PostRecv")
	}
	for i := range recvs {
		if err := e.ownLocked(recvs[i].Reg); err != nil {
			return err
		}
	}
	if len(recvs) > e.cfg.RecvDepth-e.recvHeld {
		return errs.Newf(errs.Again, "fabric.PostRecv", e.name, "the receive queue is full")
	}
	e.recvs = append(e.recvs, recvs...)
	e.recvHeld += len(recvs)
	e.posted = true
	e.net.progressLocked(e.peer) // its messages may have waited for this
	return nil
}

// ownLocked refuses regions of other domains and closed ones.
func (e *endpoint) ownLocked(reg fabric.Region) error {
	if reg == nil {
		return nil
	}
	r, ok := reg.(*region)
	if !ok || r.domain != e.domain || r.closed {
		return errs.Newf(errs.Invalid, "fabric.Post", e.name,
			"a Region is closed or not of this domain")
	}
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
	e.closed = true
	e.domain.eps = without(e.domain.eps, e)
	e.unreserveLocked()
}

func (e *endpoint) breakLocked(why string) {
	e.dieLocked(errs.Disconnected, why)
	e.peer.dieLocked(errs.Disconnected, why)
}

// settleLocked completes the Sends and Writes before last that had their effect, because a peer
// that answers last has answered them too.
func (e *endpoint) settleLocked(last *work) {
	for len(e.done) > 0 && e.done[0] != last && e.done[0].placed {
		e.finishLocked()
	}
}

// protocolLocked ends the connection because one side did what the contract forbids.
func (e *endpoint) protocolLocked(why string) {
	e.dieLocked(errs.Protocol, why)
	e.peer.dieLocked(errs.Protocol, why)
}

// dieLocked completes everything that is pending with kind.
func (e *endpoint) dieLocked(kind errs.Kind, why string) {
	if e.dead != errs.OK {
		return
	}
	e.dead, e.why = kind, why
	err := kindErr(kind, e, why)
	for _, list := range [][]*work{e.done, e.reads, e.queue} {
		for _, w := range list {
			if w.result == nil { // a refused Write keeps its own reason
				w.result = err
			}
			e.completeLocked(w)
		}
	}
	for _, r := range e.recvs {
		e.cfg.RecvCQ.(*cq).pushLocked(fabric.Completion{
			Op: fabric.OpRecv, Context: r.Context, EP: e, Err: err,
		}, true)
	}
	e.done, e.reads, e.queue, e.recvs = nil, nil, nil, nil
	e.net.forgetLocked(e)
}

// deadErr is what posting to a dead endpoint gives: Closed after this side's Close, else
// Disconnected.
func (e *endpoint) deadErr(op string) error {
	if e.closed || e.dead == errs.Closed {
		return errs.Newf(errs.Closed, op, e.name, "%s", e.why)
	}
	return errs.Newf(errs.Disconnected, op, e.name, "%s", e.why)
}

// unreserveLocked returns the places in the queues once nothing can fill or hold them any more.
func (e *endpoint) unreserveLocked() {
	if !e.closed || e.returned || e.sendHeld+e.recvHeld > 0 {
		return
	}
	e.returned = true
	e.cfg.SendCQ.(*cq).reserved -= e.cfg.SendDepth
	e.cfg.RecvCQ.(*cq).reserved -= e.cfg.RecvDepth
}

// actionsLocked appends what this end may do next.
func (e *endpoint) actionsLocked(all []action) []action {
	if len(e.done) > 0 && e.done[0].placed {
		all = append(all, action{ep: e, kind: actFinish, due: e.done[0].due})
	}
	all, placed := e.placesLocked(all)
	for i, w := range e.reads {
		all = append(all, action{ep: e, kind: actRead, at: i, due: w.due})
	}
	if len(e.queue) == 0 {
		return all
	}
	w := e.queue[0]
	fenced := w.wr.Flags&fabric.FlagFence != 0 && len(e.reads) > 0
	full := w.wr.Op == fabric.OpRead && len(e.reads) >= e.domain.caps.ReadDepth
	held := w.isMessage() && !e.peer.posted
	behind := w.wr.Op != fabric.OpWrite && !placed // messages and Reads come behind all Writes
	if !fenced && !full && !held && !behind {
		all = append(all, action{ep: e, kind: actStart, due: w.due})
	}
	return all
}

// placesLocked appends the started Writes that may be placed next, and tells whether all of them
// are placed. Writes through one grant are placed in order; one through another grant may overtake.
func (e *endpoint) placesLocked(all []action) (_ []action, placed bool) {
	placed = true
	for i, w := range e.done {
		if w.placed {
			continue
		}
		placed = false
		first := !slices.ContainsFunc(e.done[:i], func(o *work) bool {
			return !o.placed && o.wr.Remote.Key == w.wr.Remote.Key
		})
		if first {
			all = append(all, action{ep: e, kind: actPlace, at: i, due: w.due})
		}
	}
	return all, placed
}

func (w *work) isMessage() bool {
	return w.wr.Op == fabric.OpSend || w.wr.Op == fabric.OpWriteImm
}

// startLocked takes the oldest request: Sends have their effect now, Reads are under way, and
// Writes have it now when running free, else when their turn comes.
func (e *endpoint) startLocked() {
	w := e.queue[0]
	e.queue = slices.Delete(e.queue, 0, 1)
	w.due = e.net.dueLocked()
	if w.wr.Op == fabric.OpRead {
		e.reads = append(e.reads, w)
		return
	}
	e.done = append(e.done, w) // before its effect, which may end the connection
	if w.isMessage() || e.net.opts.MaxDelay == 0 {
		e.placeLocked(w)
	}
}

// placeLocked carries out a started Send or Write.
func (e *endpoint) placeLocked(w *work) {
	w.placed, w.due = true, e.net.dueLocked()
	if w.wr.Op == fabric.OpSend {
		e.sendLocked(w)
	} else {
		e.writeLocked(w)
	}
}

func (e *endpoint) finishLocked() {
	w := e.done[0]
	e.done = slices.Delete(e.done, 0, 1)
	e.completeLocked(w)
}

// completeLocked ends a request, silently when it succeeded and nobody asked, and takes the work
// back.
func (e *endpoint) completeLocked(w *work) {
	if w.result == nil && w.wr.Flags&fabric.FlagSignaled == 0 {
		e.sendHeld--
	} else {
		e.cfg.SendCQ.(*cq).pushLocked(fabric.Completion{
			Op: w.wr.Op, Context: w.wr.Context, EP: e, Len: w.wr.Len(), Err: w.result,
		}, w.result != nil)
	}
	clear(w.wr.Local)
	e.net.spare = append(e.net.spare, w)
}

// countBreakLocked cuts the connection when the seed or BreakAfter says so.
func (e *endpoint) countBreakLocked() {
	if e.dead != errs.OK {
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
