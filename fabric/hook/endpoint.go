package hook

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
)

// Endpoint wraps one end of a connection.
type Endpoint struct {
	dom   *Domain
	inner fabric.Endpoint
	depth int

	// held is how many requests and receives were posted and have not completed, the silent ones
	// for ever. At 0 no completion can come that names this endpoint.
	held   atomic.Int64
	closed atomic.Bool

	mu    sync.Mutex
	wrs   []fabric.WR // copies of what is being posted, with the regions below
	sges  []fabric.Sge
	recvs []fabric.Recv
}

// Inner is the endpoint below.
func (e *Endpoint) Inner() fabric.Endpoint { return e.inner }

// Peer implements fabric.Endpoint.
func (e *Endpoint) Peer() fabric.Peer { return e.inner.Peer() }

// Name implements fabric.Endpoint. It is the same through all layers.
func (e *Endpoint) Name() string { return e.inner.Name() }

// Post implements fabric.Endpoint. The lock is held while the endpoint below takes the chain over,
// which blocks for nobody: its copy lives here.
func (e *Endpoint) Post(wrs []fabric.WR) error {
	e.held.Add(int64(len(wrs)))
	e.mu.Lock()
	err := e.inner.Post(e.unwrapLocked(wrs))
	e.cleanLocked()
	e.mu.Unlock()
	if err != nil {
		e.held.Add(-int64(len(wrs)))
	}
	return err
}

// unwrapLocked copies a chain into the endpoint's own room.
func (e *Endpoint) unwrapLocked(wrs []fabric.WR) []fabric.WR {
	pieces := 0
	for i := range wrs {
		pieces += len(wrs[i].Local)
	}
	if cap(e.sges) < pieces { // at once, because the copies of requests point into it
		e.sges = make([]fabric.Sge, 0, pieces)
	}
	e.wrs = append(e.wrs[:0], wrs...)
	for i := range e.wrs {
		from := len(e.sges)
		for _, s := range e.wrs[i].Local {
			s.Reg = e.dom.unwrapRegion(s.Reg)
			e.sges = append(e.sges, s)
		}
		e.wrs[i].Local = e.sges[from:len(e.sges):len(e.sges)]
	}
	return e.wrs
}

// PostRecv implements fabric.Endpoint.
func (e *Endpoint) PostRecv(recvs []fabric.Recv) error {
	e.held.Add(int64(len(recvs)))
	e.mu.Lock()
	e.recvs = append(e.recvs[:0], recvs...)
	for i := range e.recvs {
		e.recvs[i].Reg = e.dom.unwrapRegion(e.recvs[i].Reg)
	}
	err := e.inner.PostRecv(e.recvs)
	e.cleanLocked()
	e.mu.Unlock()
	if err != nil {
		e.held.Add(-int64(len(recvs)))
	}
	return err
}

// cleanLocked lets go of the user's memory. Room for chains that no queue takes is not kept.
func (e *Endpoint) cleanLocked() {
	clear(e.wrs)
	clear(e.sges)
	clear(e.recvs)
	e.wrs, e.sges, e.recvs = e.wrs[:0], e.sges[:0], e.recvs[:0]
	const piecesKept = 4 // on average, per request
	if cap(e.wrs) > 2*e.depth || cap(e.recvs) > 2*e.depth || cap(e.sges) > piecesKept*2*e.depth {
		e.wrs, e.sges, e.recvs = nil, nil, nil
	}
}

// Close implements fabric.Endpoint.
func (e *Endpoint) Close() error {
	err := e.inner.Close()
	if e.closed.Swap(true) {
		return err
	}
	if e.held.Load() == 0 {
		e.dom.eps.Delete(e.inner)
	} else {
		e.dom.retire(e)
	}
	return err
}

// settle counts a completion that was handed out.
func (e *Endpoint) settle() {
	if e.held.Add(-1) == 0 && e.closed.Load() {
		e.dom.eps.Delete(e.inner)
	}
}

// endpointBase is found in whatever embeds an Endpoint.
func (e *Endpoint) endpointBase() *Endpoint { return e }

// unwrapEndpoint gives the endpoint below, of an endpoint of this domain.
func (d *Domain) unwrapEndpoint(ep fabric.Endpoint) fabric.Endpoint {
	if w, ok := ep.(interface{ endpointBase() *Endpoint }); ok {
		if e := w.endpointBase(); e.dom == d {
			return e.inner
		}
	}
	return ep
}
