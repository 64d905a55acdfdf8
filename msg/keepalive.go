package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// alive is what the sweep knows about the other side: a peer may be connected, with a provider that
// acknowledges everything, and still never answer. It belongs to the sweep's goroutine.
type alive struct {
	heard  uint64    // of the link, at the last sweep
	since  time.Time // when the sweep last saw it change
	asked  bool      // an inquiry has no answer yet
	buffer int       // send buffer of inquiries; that of answers follows it
}

// keepAlive asks a silent peer whether it is there, and ends the link if it does not say.
func (l *link) keepAlive(now time.Time) {
	a := &l.alive
	if heard := l.heard.Load(); heard != a.heard || a.since.IsZero() {
		a.heard, a.since, a.asked = heard, now, false
		return
	}
	opts, silent := &l.node.opts, now.Sub(a.since)
	switch {
	case !a.asked && silent > opts.KeepAlive:
		a.asked = true
		a.since = now.Add(-opts.KeepAlive) // a sweep that comes late is not the peer's fault
		_ = l.sendControl(l.sendBuf(a.buffer), opPing, 0)
	case a.asked && silent > opts.KeepAlive+opts.PeerTimeout:
		l.node.silent.Warn(l.peerAddr, "peer is stuck: it is connected and answers nothing",
			"link", l.name, "after", silent)
		l.fail(errs.Newf(errs.TimedOut, "msg", l.name, "nothing was heard of the peer for %v", silent))
	}
}

// alivePing handles the inquiries of the peer, and its answers, which have done all they are for
// by being heard. It tells whether the message was one of them.
func (l *link) alivePing(buf int, h *wire.Header) bool {
	switch h.Op {
	case opPing:
		l.repost(buf)
		_ = l.sendControl(l.sendBuf(l.alive.buffer+1), opPong, 0) // a failure has ended the link
	case opPong:
		l.repost(buf)
	default:
		return false
	}
	return true
}
