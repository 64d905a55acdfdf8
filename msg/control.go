package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Control messages have a header and nothing else: header.Kind is KindControl, header.Op one
// of these.
const (
	opCancel  = 1 // client: the request RequestID is not wanted any more
	opAck     = 2 // server: a cancellation was taken; its receive is posted again
	opGoodbye = 3 // server: shutting down; send no new requests on this connection
	opCredit  = 4 // server: header.Credits more requests may be sent
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
