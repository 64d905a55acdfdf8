package delay

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// endpoint counts the places in its queues itself, since those below are free as soon as the
// queue's goroutine has seen a completion.
type endpoint struct {
	*hook.Endpoint
	d              *Domain
	rates          *rates
	sendQ, recvQ   *queue
	sends, recvs   lane // the one guarded by sendQ.mu, the other by recvQ.mu
	sendMax        int
	recvMax        int
	sendHeld       atomic.Int64
	recvHeld       atomic.Int64
	closed, vacant atomic.Bool // vacant: its reservations in the queues were given back

	mu      sync.Mutex
	pending hook.Pending[int64] // when the bytes of each request have passed
}

// reserved notes that a connection holds places in its queues.
type reserved struct{}

// connect sets places in the queues aside. What is wrong with the configuration itself, the
// provider tells.
func (d *Domain) connect(c *hook.Connection) error {
	send, ok1 := c.Config.SendCQ.(*queue)
	recv, ok2 := c.Config.RecvCQ.(*queue)
	sends, recvs := c.Config.SendDepth, c.Config.RecvDepth
	if !ok1 || !ok2 || send.d != d || recv.d != d || sends < 1 || recvs < 1 {
		return nil
	}
	if err := send.reserve(sends); err != nil {
		return err
	}
	if err := recv.reserve(recvs); err != nil {
		send.taken.Add(-int64(sends))
		return err
	}
	c.Note = reserved{}
	return nil
}

// connected gives the places back if nothing came of it.
func (d *Domain) connected(c *hook.Connection) {
	if c.Err != nil && c.Note != nil {
		c.Config.SendCQ.(*queue).taken.Add(-int64(c.Config.SendDepth))
		c.Config.RecvCQ.(*queue).taken.Add(-int64(c.Config.RecvDepth))
	}
}

func (d *Domain) newEndpoint(base *hook.Endpoint, cfg fabric.EndpointConfig) fabric.Endpoint {
	e := &endpoint{
		Endpoint: base, d: d, rates: d.rates,
		sendQ: cfg.SendCQ.(*queue), recvQ: cfg.RecvCQ.(*queue),
		sendMax: cfg.SendDepth, recvMax: cfg.RecvDepth,
		pending: hook.NewPending[int64](cfg.SendDepth),
	}
	e.sends = lane{ep: e, index: -1}
	e.recvs = lane{ep: e, recv: true, index: -1}
	if e.rates == nil {
		e.rates = d.newRates()
	}
	return e
}

// Post implements fabric.Endpoint. The lock keeps the order of what is remembered that of what is
// posted.
func (e *endpoint) Post(wrs []fabric.WR) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if int64(len(wrs)) > int64(e.sendMax)-e.sendHeld.Load() {
		if err := e.Endpoint.Post(nil); err != nil { // dead is worse than full
			return err
		}
		return errs.Newf(errs.Again, "fabric.Post", e.Name(), "the send queue is full")
	}
	e.sendHeld.Add(int64(len(wrs)))
	if err := e.Endpoint.Post(wrs); err != nil {
		e.sendHeld.Add(-int64(len(wrs)))
		return err
	}
	now := e.d.now()
	for i := range wrs {
		wr := &wrs[i]
		line := &e.rates.out
		if wr.Op == fabric.OpRead {
			line = &e.rates.in
		}
		e.pending.Add(wr.Op, wr.Flags, wr.Context, line.charge(now, wr.Len()))
	}
	return nil
}

// PostRecv implements fabric.Endpoint.
func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if int64(len(recvs)) > int64(e.recvMax)-e.recvHeld.Load() {
		if err := e.Endpoint.PostRecv(nil); err != nil {
			return err
		}
		return errs.Newf(errs.Again, "fabric.PostRecv", e.Name(), "the receive queue is full")
	}
	e.recvHeld.Add(int64(len(recvs)))
	err := e.Endpoint.PostRecv(recvs)
	if err != nil {
		e.recvHeld.Add(-int64(len(recvs)))
	}
	return err
}

// passed tells when the bytes of a completed request or receive have passed, and how many places
// come free with it.
func (e *endpoint) passed(now int64, c *fabric.Completion) (due int64, places int) {
	if c.Op == fabric.OpRecv {
		if c.WithImm || c.Err != nil {
			return now, 1
		}
		return e.rates.in.charge(now, c.Len), 1
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	due, places, ok := e.pending.Done(c, nil)
	if ok {
		places++
	}
	return due, places
}

// settle gives places back, and the reservations behind the last of them.
func (e *endpoint) settle(recv bool, places int) {
	held := &e.sendHeld
	if recv {
		held = &e.recvHeld
	}
	held.Add(-int64(places))
	e.vacate()
}

func (e *endpoint) vacate() {
	if e.closed.Load() && e.sendHeld.Load() == 0 && e.recvHeld.Load() == 0 &&
		e.vacant.CompareAndSwap(false, true) {
		e.sendQ.taken.Add(-int64(e.sendMax))
		e.recvQ.taken.Add(-int64(e.recvMax))
	}
}

// Close implements fabric.Endpoint. What was held back, and what failed now, can be polled at once.
func (e *endpoint) Close() error {
	err := e.Endpoint.Close()
	e.sendQ.catchUp()
	e.recvQ.catchUp()
	e.sendQ.flush(e)
	e.recvQ.flush(e)
	e.mu.Lock()
	silent := e.pending.Clear() // whatever failed has been seen
	e.mu.Unlock()
	e.sendHeld.Add(-int64(silent))
	e.closed.Store(true)
	e.vacate()
	return err
}
