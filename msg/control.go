package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg/internal/silence"
	"github.com/sluice-storage/sluice/wire"
)

// Control messages have a header and, but for opGive, nothing else: header.Kind is KindControl,
// header.Op one of these.
const (
	opCancel  = 1 // client: the request RequestID is not wanted any more
	opAck     = 2 // server: a cancellation was taken; its receive is posted again
	opGoodbye = 3 // server: shutting down; send no new requests on this connection
	opPing    = 4 // either: are you there?
	opPong    = 5 // either: yes
	opWant    = 6 // client: header.Credits more eager slots, please
	opGive    = 7 // server: the body names eager slots that may be used, see eager.go
	opTake    = 8 // server: give back the eager slots that you do not use
	opBack    = 9 // client: RequestID is a set of slots, by bit, that it will not use any more
)

// sendControl posts a control message. It always fits MaxInline or is copied into the
// caller's buf.
func (l *link) sendControl(buf []byte, op uint16, id uint64) error {
	h := wire.Header{Kind: wire.KindControl, Op: op, RequestID: id}
	return l.sendPlain(&parcel{}, h.Append(buf[:0]))
}

// unexpected ends the link because of a message that the protocol forbids.
func (l *link) unexpected(h *wire.Header) {
	l.fail(errs.Newf(errs.Protocol, "msg", l.name, "unexpected message: kind %d op %d id %d",
		h.Kind, h.Op, h.RequestID))
}

// keepAlive pings a silent peer, and ends the link if it does not answer.
func (l *link) keepAlive(now time.Time) {
	o := &l.node.opts
	switch v, silent := l.silence.Check(now, l.heard.Load(), o.KeepAlive, o.PeerTimeout); v {
	case silence.Ask:
		_ = l.sendControl(l.bufs.Send(l.aliveBuf), opPing, 0)
	case silence.Stuck:
		l.node.silent.Warn(l.peerAddr, "peer is stuck: it is connected and answers nothing",
			"link", l.name, "after", silent)
		l.fail(errs.Newf(errs.TimedOut, "msg", l.name, "nothing was heard of the peer for %v", silent))
	}
}

// alivePing handles pings of the peer, and pongs, which need nothing but to be received. It tells
// whether the message was one of them.
func (l *link) alivePing(buf int, h *wire.Header) bool {
	switch h.Op {
	case opPing:
		l.repost(buf)
		_ = l.sendControl(l.bufs.Send(l.aliveBuf+1), opPong, 0) // a failure has ended the link
	case opPong:
		l.repost(buf)
	default:
		return false
	}
	return true
}
