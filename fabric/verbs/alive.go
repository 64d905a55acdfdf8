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
	if e.dev.info.soft && e.stopped(time.Now()) {
		e.Die(errs.Disconnected, "the device has stopped sending, and does not say so")
		return
	}
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

// oldest is the oldest request of an endpoint that will have a completion. It belongs to keepAlive.
type oldest struct {
	number uint32
	bytes  int       // of it, and of those before it
	seen   time.Time // first; zero: there was none
}

// slowest is how many bytes a second a device moves at least.
const slowest = 1 << 20

// stopped tells whether the device has neither carried out a request nor given it up in a time in
// which it must have. Soft-RoCE sends again what has no answer in time, and with it carries out
// once more the binding of a window that stands behind; that fails, because the window is bound.
// Then it sends nothing any more, takes no answers, and tells nobody, while what the peer sends is
// answered as ever.
func (e *endpoint) stopped(now time.Time) bool {
	e.sendCQ.mu.Lock()
	defer e.sendCQ.mu.Unlock()
	o := &e.oldest
	if !o.seen.IsZero() && int32(o.number-e.sq.next) >= 0 {
		most := 2*e.d.opts.PeerTimeout + time.Duration(o.bytes)*time.Second/slowest
		return now.Sub(o.seen) > most
	}
	*o = oldest{}
	for n, end := e.sq.next, e.sendNext.Load(); n != end; n++ {
		slot := &e.sends[n&uint32(len(e.sends)-1)]
		o.bytes += slot.length
		if slot.kind != slotSilent {
			o.number, o.seen = n, now
			break
		}
	}
	return false
}
