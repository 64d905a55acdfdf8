// Package msg turns a fabric into requests with data segments. A request carries a header
// (wire.Header), control (a small body of one or several pieces), and up to two descriptions of
// memory, each of several pieces: Out, which the server may read, and In, which the server may
// write. The server moves the data. Three protocols carry a segment: inline in the message; by an
// eager slot, that is one-sidedly into memory that the server has set aside for this client;
// by rendezvous, that is read or written one-sidedly by the server, at its pace, in units, into or
// from memory that the server has for it. Remote rights are granted per request and revoked before
// it returns. No message is sent without a credit.
//
// Ownership: what a Request points at belongs to the call until it returns, for whatever reason;
// then nobody touches it any more. What a handler lends to Push belongs to the call until its
// Reply or Fail returns. Domains stay their opener's and are closed after the node.
//
// Blocking: Call, Send, Pull, Push and Dial wait until their context ends; each request has a
// deadline (Options.CallTimeout where its context has none). A peer that is dead, or connected and
// mute, ends all requests on it within Options.KeepAlive + Options.PeerTimeout.
//
// Concurrency: everything may be used by many goroutines, where a type does not say otherwise.
//
// Errors: the server's own kinds and texts cross the wire. Of this layer's own: errs.Disconnected,
// errs.TimedOut, errs.Canceled, errs.Shutdown, errs.Closed, errs.TooBig, errs.Invalid,
// errs.Protocol.
//
// It does not know what the requests mean, does not retry them, and does not choose the provider
// that a peer is reached by: see package peer.
//
// Read types.go first, then conn.go and client.go (life of a request at the client), serving.go,
// serverconn.go and workers.go (at the server), answer.go and move.go (data). Who polls is decided
// by package fabric/progress, who waits by internal/gate; whose eager slot is whose is kept by
// internal/eager.
package msg

import (
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// Memory describes local memory that a request lends to the server.
type Memory = segment.Memory

// Level is the service level of a request: of those who wait for a credit, and of those who wait at
// the server, the higher go first, but not for ever (see Options.Age). Level 0 is for bulk, the
// default.
type Level uint8

// MaxLevels is how many levels there can be.
const MaxLevels = gate.MaxLevels

// Request is one call. The memory belongs to the call until it returns (also by cancellation
// or a dead connection: rights are revoked first, so that nothing is touched afterwards).
type Request struct {
	Op    uint16
	Stamp wire.Stamp
	Level Level
	Body  []byte
	More  [][]byte // further pieces of the body; the server sees one body
	Out   *Memory  // data for the server; nil for none
	In    *Memory  // room for data from the server; nil for none

	// By makes request data travel by one protocol, for measuring. Default ByLimits.
	By Protocol
}

// Protocol is how a request's data travels.
type Protocol uint8

// The protocols.
const (
	ByLimits   Protocol = iota // as Limits say
	Inline                     // inside the message
	Eager                      // through an eager slot, if there is one
	Rendezvous                 // fetched by the server
)

func (p Protocol) String() string {
	switch p {
	case Inline:
		return "inline"
	case Eager:
		return "eager"
	case Rendezvous:
		return "rendezvous"
	}
	return "any"
}

// bodyLen is the number of bytes of control.
func (r *Request) bodyLen() int {
	n := len(r.Body)
	for _, b := range r.More {
		n += len(b)
	}
	return n
}

// Reply is a call's answer. Body is reused: it is cut to length 0 and appended to.
type Reply struct {
	Body   []byte
	InLen  int64  // how many bytes of In's stream the server says it has filled
	Status string // text of the server's error, if there was one
}
