package fault

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// endpoint can be cut. Below, that is a Close, which is the only way to end any provider's
// connection from one side; this side is told errs.Disconnected instead of errs.Closed, as the peer
// is anyway.
type endpoint struct {
	*hook.Endpoint
	d *Domain

	// Signalled requests and receives that are pending: never more than there really are.
	sends, recvs atomic.Int64

	mu     sync.Mutex
	death  error // it was cut
	closed bool  // by its user
}

func (d *Domain) newEndpoint(base *hook.Endpoint, _ fabric.EndpointConfig) fabric.Endpoint {
	e := &endpoint{Endpoint: base, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.eps[e] = struct{}{}
	return e
}

// Post implements fabric.Endpoint.
func (e *endpoint) Post(wrs []fabric.WR) error {
	var hit Rule
	for i := range wrs {
		if hit.fires() {
			break
		}
		hit = e.d.ask(event{
			op: opOf(wrs[i].Op), name: e.Name(), bytes: int64(wrs[i].Len()),
			busy: e.sends.Load() > 0,
		})
	}
	if err := e.before(&hit, "fabric.Post"); err != nil {
		return err
	}
	signaled := 0
	for i := range wrs {
		if wrs[i].Flags&fabric.FlagSignaled != 0 {
			signaled++
		}
	}
	err := e.Endpoint.Post(wrs)
	if err == nil {
		e.sends.Add(int64(signaled))
	}
	return e.after(&hit, err)
}

// PostRecv implements fabric.Endpoint.
func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	var hit Rule
	for i := range recvs {
		if hit.fires() {
			break
		}
		hit = e.d.ask(event{
			op: Recv, name: e.Name(), bytes: int64(len(recvs[i].Buf)), busy: e.recvs.Load() > 0,
		})
	}
	if err := e.before(&hit, "fabric.PostRecv"); err != nil {
		return err
	}
	err := e.Endpoint.PostRecv(recvs)
	if err == nil {
		e.recvs.Add(int64(len(recvs)))
	}
	return e.after(&hit, err)
}

func (r *Rule) fires() bool { return r.Break || r.Kind != errs.OK }

// before is the fault of a chain that is not posted. A dead endpoint says so itself.
func (e *endpoint) before(hit *Rule, op string) error {
	if hit.Early {
		e.cut("cut by a rule")
		return nil // posting tells
	}
	if hit.Kind == errs.OK || e.Endpoint.Post(nil) != nil {
		return nil
	}
	return hit.refusal(op, e.Name())
}

// after is the fault of a chain that was posted, or would have been had the queue had room.
func (e *endpoint) after(hit *Rule, err error) error {
	if hit.Break {
		e.cut("cut by a rule")
	}
	return e.explain(err)
}

// cut breaks the connection, unless it has ended already, and tells whether it did.
func (e *endpoint) cut(why string) bool {
	e.mu.Lock()
	first := e.death == nil && !e.closed
	if first {
		e.death = errs.Newf(errs.Disconnected, "fabric", e.Name(), "%s", why)
	}
	e.mu.Unlock()
	if first {
		e.d.forget(e)
		_ = e.Inner().Close() // its user closes it once more
	}
	return first
}

// Close implements fabric.Endpoint.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.d.forget(e)
	return e.Endpoint.Close()
}

func (d *Domain) forget(e *endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.eps, e)
}

// explain gives the error of a call on an endpoint that was cut.
func (e *endpoint) explain(err error) error {
	if errs.KindOf(err) != errs.Closed {
		return err
	}
	e.d.mu.Lock()
	over := e.d.closed
	e.d.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.death == nil || e.closed || over {
		return err
	}
	return e.death
}

// completed gives the completions of a cut endpoint their reason, and counts what is pending.
func completed(batch []fabric.Completion) {
	for i := range batch {
		c := &batch[i]
		e, ok := c.EP.(*endpoint)
		if !ok {
			continue
		}
		if c.Op == fabric.OpRecv {
			e.recvs.Add(-1)
		} else {
			e.sends.Add(-1) // a silent one that failed makes it too small, which is harmless
		}
		if c.Err == nil || c.ErrKind() != errs.Closed {
			continue
		}
		e.mu.Lock()
		if e.death != nil {
			c.Err = e.death
		}
		e.mu.Unlock()
	}
}
