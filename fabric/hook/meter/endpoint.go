package meter

import (
	"sync"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// endpoint counts its own operations.
type endpoint struct {
	*hook.Endpoint
	d *Domain

	// mu is held from a post until it is counted, so that its completion is counted later. The
	// domain's mu is taken before it.
	mu     sync.Mutex
	ops    [ops]Op
	sends  hook.Pending[mark]
	recvs  hook.Pending[mark]
	closed bool // what comes is counted by the domain
}

// mark is what is remembered of a request until it is over.
type mark struct {
	op fabric.Op
	at int64
}

func (d *Domain) newEndpoint(base *hook.Endpoint, cfg fabric.EndpointConfig) fabric.Endpoint {
	e := &endpoint{
		Endpoint: base, d: d,
		sends: hook.NewPending[mark](cfg.SendDepth), recvs: hook.NewPending[mark](cfg.RecvDepth),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.eps[e] = struct{}{}
	return e
}

// Post implements fabric.Endpoint.
func (e *endpoint) Post(wrs []fabric.WR) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.d.now()
	err := e.Endpoint.Post(wrs)
	for i := range wrs {
		wr := &wrs[i]
		if wr.Op < fabric.OpSend || wr.Op > fabric.OpRead {
			continue // no such operation: it was refused
		}
		o := &e.ops[wr.Op-1]
		if err != nil {
			o.Refused.add(err)
			continue
		}
		o.posted(wr.Len())
		e.sends.Add(wr.Op, wr.Flags, wr.Context, mark{wr.Op, at})
	}
	return err
}

// PostRecv implements fabric.Endpoint.
func (e *endpoint) PostRecv(recvs []fabric.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.d.now()
	err := e.Endpoint.PostRecv(recvs)
	o := &e.ops[fabric.OpRecv-1]
	for i := range recvs {
		if err != nil {
			o.Refused.add(err)
			continue
		}
		o.posted(len(recvs[i].Buf))
		e.recvs.Add(fabric.OpRecv, 0, recvs[i].Context, mark{fabric.OpRecv, at})
	}
	return err
}

func (o *Op) posted(size int) {
	o.Posted++
	o.PostedBytes += uint64(size)
	o.Sizes.count(size)
}

// completed counts what Poll or Wait is about to return.
func (d *Domain) completed(batch []fabric.Completion) {
	now := d.now()
	for i := range batch {
		c := &batch[i]
		if e, ok := c.EP.(*endpoint); !ok || !e.completed(c, now) {
			d.late(c)
		}
	}
}

// completed counts a completion, unless the endpoint has been closed.
func (e *endpoint) completed(c *fabric.Completion, now int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	o := &e.ops[c.Op-1]
	o.completed(c)
	pending := &e.sends
	if c.Op == fabric.OpRecv {
		pending = &e.recvs
	}
	if m, _, ok := pending.Done(c, nil); ok {
		o.Times.count(now - m.at)
	}
	return true
}

func (o *Op) completed(c *fabric.Completion) {
	o.Completed++
	if c.Err != nil {
		o.Failed.add(c.Err)
		return
	}
	o.Bytes += uint64(c.Len)
}

// late counts a completion of a closed endpoint.
func (d *Domain) late(c *fabric.Completion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone[c.Op-1].completed(c)
}

// addTo adds the endpoint's numbers up, with what follows from them.
func (e *endpoint) addTo(sum *[ops]Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addLocked(sum)
}

func (e *endpoint) addLocked(sum *[ops]Op) {
	var open [ops]uint64
	count := func(m mark) { open[m.op-1]++ }
	e.sends.Each(count)
	e.recvs.Each(count)
	for i := range sum {
		o := &e.ops[i]
		sum[i].add(o)
		sum[i].Outstanding += open[i]
		if over := o.Completed + open[i]; o.Posted > over {
			sum[i].Silent += o.Posted - over
		}
	}
}

// Close implements fabric.Endpoint. The endpoint's numbers become the domain's.
func (e *endpoint) Close() error {
	err := e.Endpoint.Close()
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	delete(e.d.eps, e)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return err
	}
	e.closed = true
	e.addLocked(&e.d.gone)
	for i := range e.d.gone {
		e.d.gone[i].Outstanding = 0 // they are over, and their completions still count
	}
	e.sends.Clear()
	e.recvs.Clear()
	return err
}
