//go:build cgo && linux && (amd64 || arm64)

package verbs

import "time"

// keepAlive asks every endpoint that heard nothing for a while for a sign of life: a Write of no
// bytes, which the peer's device answers by itself. Where there is no answer the device reports it
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
		d.missDevices()
		for _, e := range d.Endpoints() {
			e.(*endpoint).ask()
		}
	}
}

// ask looks at what came, whoever polls, and asks if it was nothing.
func (e *endpoint) ask() {
	e.sendCQ.drain()
	e.recvCQ.drain()
	if e.heard.Swap(false) || !e.asking.CompareAndSwap(false, true) {
		return
	}
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	if !e.gate.live {
		e.asking.Store(false)
	} else if !e.Dead() {
		_ = postNothing(e.qp, e.sendID(e.numberLocked(&sendSlot{kind: slotAlive})))
	}
}
