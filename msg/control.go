package msg

import (
	"github.com/sluice-storage/sluice/errs"
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
