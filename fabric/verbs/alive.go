//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// keepAlive probes the peer of every endpoint that has received nothing for a while, by a Write of
// no bytes, which the peer's device acknowledges. Without an answer the device reports an error
// after Options.PeerTimeout, and the endpoint dies.
func (d *domain) keepAlive() {
	tick := time.NewTicker(d.opts.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.Context().Done():
			return
		}
		d.retireMissing()
		for _, e := range d.Endpoints() {
			e.(*endpoint).probe()
		}
	}
}

// probe drains the queues, although others may poll them too, and probes if nothing has come.
func (e *endpoint) probe() {
	e.sendCQ.drain()
	e.recvCQ.drain()
	if e.heard.Swap(false) || !e.probing.CompareAndSwap(false, true) {
		return
	}
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	if !e.gate.live {
		e.probing.Store(false)
	} else if !e.Dead() {
		id := e.sendID(e.numberLocked(&sendSlot{kind: slotAlive}))
		if err := postNothing(e.qp, id); err != nil { // there would be no probe any more
			e.Die(errs.Disconnected, "the device takes no requests: "+err.Error())
		}
	}
}
