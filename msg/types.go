// Package msg turns a fabric into requests and replies with data segments. A request carries
// a header (wire.Header), a small body, and up to two descriptions of memory: Out, which the
// server may read, and In, which the server may write. The server moves the data: small data
// rides inline in the message, larger data is pulled or pushed by one-sided operations at the
// server's pace. Remote rights are granted per request and revoked before the request
// returns. No message is sent without a credit.
//
// It does not know what the requests mean and does not retry them: services do. It does not
// resolve names; Pool asks a function for the address of a peer.
//
// Read types.go first, then client.go (life of a request at the client) and server.go.
package msg

import (
	"context"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// Memory describes local memory that a request lends to the server: windows, laid end to end
// into one address space that starts at 0, and the bytes of that space that are meant, in
// stream order. Byte k of a segment is byte k of the Access' stream. On the wire each window
// costs one fabric.Remote and the Access its own compact form, however many pieces it has.
type Memory struct {
	Windows []fabric.Sge // Reg may be nil where the provider's Caps.AnyMemory allows it
	Access  seg.Access   // over the concatenation of the windows
}

// Len is the number of bytes that the segment carries; 0 for a nil Memory.
func (m *Memory) Len() int64 {
	if m == nil {
		return 0
	}
	return m.Access.Len()
}

// Request is one call. The memory belongs to the call until it returns (also by cancellation
// or a dead connection: rights are revoked first, so that nothing is touched afterwards).
type Request struct {
	Op    uint16
	Stamp wire.Stamp
	Body  []byte
	Out   *Memory // data for the server; nil for none
	In    *Memory // room for data from the server; nil for none
}

// Reply is a call's answer. Body is reused: it is cut to length 0 and appended to.
type Reply struct {
	Body   []byte
	InLen  int64 // how many bytes of In's stream the server says it has filled
	Stamp  wire.Stamp
	Status string // text of the server's error, if there was one
}

// Handler serves requests. Serve is called on a goroutine of its own, for at most as many
// calls of one connection at once as there are credits. It must end the call with exactly one
// Reply or Fail. c must not be used afterwards. A panic in Serve fails the call and closes
// the connection, no more.
type Handler interface {
	Serve(ctx context.Context, c *Call)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, c *Call)

// Serve calls f.
func (f HandlerFunc) Serve(ctx context.Context, c *Call) { f(ctx, c) }
