package provider

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Endpoint is the part of an endpoint that counts what is posted and knows whether it is alive.
//
// Places: a request or receive holds a place from its post (HoldSends, HoldRecvs) until its
// completion is polled, or until it succeeds silently. The provider completes each exactly once.
// The places in the completion queues are released when the endpoint is closed and its last
// completion has been polled.
//
// Life: open; dead by End, of which the first cause is kept; finished by Finished, when nothing
// touches memory any more and all completions are pushed; closed when the user has closed it too.
// All methods are safe for concurrent use. The provider calls End under the lock under which it
// posts, so that what was posted before is there when it completes everything.
type Endpoint struct {
	Config fabric.EndpointConfig

	domain *Domain
	name   string
	peer   fabric.Peer
	done   chan struct{} // closed by Finished

	sends, recvs atomic.Int32          // places held
	cause        atomic.Pointer[error] // of its death; nil: it lives
	closed       atomic.Bool           // by the user, and it is finished
	returned     atomic.Bool           // the places in the completion queues
}

// Open makes e the end of a connection. cfg was given to Domain.Reserve.
func (e *Endpoint) Open(d *Domain, name string, cfg fabric.EndpointConfig, peer fabric.Peer) {
	e.Config, e.domain, e.name, e.peer = cfg, d, name, peer
	e.done = make(chan struct{})
}

// Meet sets the peer, where it is known only after Open. It is called before e is shared.
func (e *Endpoint) Meet(peer fabric.Peer) { e.peer = peer }

// Peer implements fabric.Endpoint.
func (e *Endpoint) Peer() fabric.Peer { return e.peer }

// Name implements fabric.Endpoint.
func (e *Endpoint) Name() string { return e.name }

// SendRoom is how many more requests may be posted. The caller holds the lock under which it posts.
func (e *Endpoint) SendRoom() int { return e.Config.SendDepth - int(e.sends.Load()) }

// RecvRoom is SendRoom for receives.
func (e *Endpoint) RecvRoom() int { return e.Config.RecvDepth - int(e.recvs.Load()) }

// MaySend returns nil if n requests may be posted, else why not: the endpoint is dead, or full.
func (e *Endpoint) MaySend(n int) error {
	switch {
	case e.Dead():
		return e.Check("fabric.Post")
	case n > e.SendRoom():
		return e.Full("fabric.Post")
	}
	return nil
}

// HoldSends takes places for n requests. There must be room.
func (e *Endpoint) HoldSends(n int) { e.sends.Add(int32(n)) }

// HoldRecvs takes places for n receives. There must be room.
func (e *Endpoint) HoldRecvs(n int) { e.recvs.Add(int32(n)) }

// Silent releases the place of a request that has succeeded and has no completion.
func (e *Endpoint) Silent() { e.sends.Add(-1) }

// Polled releases the place of a completion that a user has been given.
func (e *Endpoint) Polled(op fabric.Op) {
	if op == fabric.OpRecv {
		e.recvs.Add(-1)
	} else {
		e.sends.Add(-1)
	}
	if e.closed.Load() {
		e.unreserve()
	}
}

// unreserve releases the places in the queues once nothing can fill or hold them any more.
func (e *Endpoint) unreserve() {
	if e.sends.Load() == 0 && e.recvs.Load() == 0 && e.returned.CompareAndSwap(false, true) {
		e.domain.Unreserve(&e.Config)
	}
}

// Disown leaves the places in the queues to the caller of Reserve: the endpoint was never returned
// to a user.
func (e *Endpoint) Disown() { e.returned.Store(true) }

// End marks the death. The first cause is kept; End tells whether this is it.
func (e *Endpoint) End(kind errs.Kind, why string) (first bool) {
	if e.Dead() {
		return false
	}
	err := errs.Newf(kind, "fabric", e.name, "%s", why)
	return e.cause.CompareAndSwap(nil, &err)
}

// Blame replaces a death for no known reason (errs.Disconnected) by a better one, for providers
// that hear of both in any order.
func (e *Endpoint) Blame(kind errs.Kind, why string) {
	old := e.cause.Load()
	if old != nil && errs.KindOf(*old) == errs.Disconnected {
		err := errs.Newf(kind, "fabric", e.name, "%s", why)
		e.cause.CompareAndSwap(old, &err)
	}
}

// Dead tells whether End was called.
func (e *Endpoint) Dead() bool { return e.cause.Load() != nil }

// Cause is why the endpoint died: the error of everything that is pending; nil while it lives.
func (e *Endpoint) Cause() error {
	if cause := e.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Check returns nil while the endpoint lives, errs.Closed after this side's Close, else
// errs.Disconnected.
func (e *Endpoint) Check(op string) error {
	cause := e.Cause()
	switch {
	case cause == nil:
		return nil
	case errs.KindOf(cause) == errs.Closed || e.closed.Load():
		return errs.New(errs.Closed, op, e.name, cause)
	}
	return errs.New(errs.Disconnected, op, e.name, cause)
}

// Full is the error of a post for which there is no room.
func (e *Endpoint) Full(op string) error {
	return errs.Newf(errs.Again, op, e.name, "the queue is full")
}

// Finished is called once, when nothing touches the memory of a dead endpoint any more and
// everything that was posted has been completed.
func (e *Endpoint) Finished() { close(e.done) }

// Done is closed by Finished.
func (e *Endpoint) Done() <-chan struct{} { return e.done }

// AwaitEnd is the rest of Close, after the death was marked: it waits for Finished, leaves the
// domain, and releases the places that nothing holds any more.
func (e *Endpoint) AwaitEnd() {
	<-e.done
	if e.closed.CompareAndSwap(false, true) {
		e.domain.forget(e)
	}
	e.unreserve()
}

// owned is a provider's region.
type owned interface {
	comparable
	fabric.Region
	openIn(d *Domain) bool
}

// CheckPost tells whether a chain is well formed and its regions, of type R, are open ones of the
// domain. It does not allocate unless it fails.
func CheckPost[R owned](e *Endpoint, wrs []fabric.WR) error {
	if err := fabric.CheckPost(&e.domain.caps, &e.peer.Hello, wrs); err != nil {
		return err
	}
	for i := range wrs {
		for j := range wrs[i].Local {
			if !owns[R](e, wrs[i].Local[j].Reg) {
				return e.foreign("fabric.Post")
			}
		}
	}
	return nil
}

// CheckRecv is CheckPost for receives.
func CheckRecv[R owned](e *Endpoint, recvs []fabric.Recv) error {
	if err := fabric.CheckRecv(&e.domain.caps, recvs); err != nil {
		return err
	}
	for i := range recvs {
		if !owns[R](e, recvs[i].Reg) {
			return e.foreign("fabric.PostRecv")
		}
	}
	return nil
}

func owns[R owned](e *Endpoint, reg fabric.Region) bool {
	if reg == nil {
		return true
	}
	r, ok := reg.(R)
	return ok && r.openIn(e.domain)
}

func (e *Endpoint) foreign(op string) error {
	return errs.Newf(errs.Invalid, op, e.name, "a Region is closed or not of this domain")
}

// base returns the part that a provider's endpoint embeds.
func (e *Endpoint) base() *Endpoint { return e }
