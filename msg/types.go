// Package msg turns a fabric into requests with data segments. A request carries a header
// (wire.Header), control (a small body of one or several pieces), and up to two descriptions of
// memory, each of several pieces: Out, which the server may read, and In, which the server may
// write. Three protocols carry a segment: inline in the message; by an eager slot, where the client
// writes request data one-sidedly into memory that the server has lent to it; by rendezvous, where
// the server reads or writes the client's memory one-sidedly, in units, when it has memory for the
// data. Rights to a client's memory are granted per request and revoked before the call returns. No
// request is sent without a credit.
//
// Ownership: what a Request points at belongs to the call until it returns, for whatever reason;
// nobody touches it afterwards. What a handler lends to Push belongs to the call until its Reply or
// Fail returns. Domains stay their opener's and are closed after the node.
//
// Blocking: Call, Send, Pull, Push and Dial begin nothing new when their context has ended, but
// first finish what still touches memory; each request has a deadline (Options.CallTimeout where
// its context has none). When a peer is dead, or connected and mute, all requests to it end within
// Options.KeepAlive + Options.PeerTimeout.
//
// Concurrency: everything may be used by many goroutines, unless a type says otherwise.
//
// Errors: the server's own kinds and texts cross the wire. Of this layer's own: errs.Disconnected,
// errs.TimedOut, errs.Canceled, errs.Shutdown, errs.Closed, errs.TooBig, errs.Invalid,
// errs.Protocol.
//
// It does not know what the requests mean, does not retry them, and does not choose the provider
// that a peer is reached by: see package peer.
//
// Read types.go first, then conn.go, client.go and start.go (life of a request at the client),
// serving.go, serverconn.go, workers.go and round.go (at the server), answer.go and move.go (data).
// Package fabric/progress decides which goroutine polls; internal/gate which request waits for a
// credit; msg/internal/eager keeps track of eager slots.
package msg

import (
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// Memory describes local memory that a request lends to the server.
type Memory = segment.Memory

// Level is the service level of a request: requests of higher levels get credits first and are
// admitted by the server first, until others have waited for Options.Age. Level 0, the default, is
// for bulk.
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

	// Patient is for a request that the server parks until there is something to tell. Its caller
	// does not poll meanwhile: others would have to be woken for each of their answers.
	Patient bool

	// Ready, if not nil, is for who sends requests by TryStart and waits for none of them alone: it
	// is called when the reply is here, or when there will be none, so that Finish does not wait. It
	// may be called again, and a moment after Finish, too. It is called on any goroutine, with locks
	// held: it must not block, nor use the connection. Others poll for such a request.
	Ready func()

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
	Map    uint64 // the version of the cluster's map that the server says it knows; see Call.SetMap
}
