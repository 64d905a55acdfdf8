// Package exio moves data between a program's memory and whatever can be opened: another process by
// a fabric provider, another process by a plain socket, or a file. There is one interface for all
// of them, Handle, with Read, Write and Close; the end of each operation is told by a callback.
//
//	handle     one interface, one event for each operation
//	driver     fabric: shm, verbs, tcp | socket: net.Conn | file: anything with ReadAt and WriteAt
//
// Between processes data goes in messages. A message has a tag, and goes to the first read that
// was posted for its tag, or for any:
//
//	eager       short: copied into registered memory and sent, before anybody asks for it. It waits
//	            in the memory that it was received in until a read comes, and is copied from there
//	rendezvous  long: request, acknowledge, one-sided writes from the sender's pieces into the
//	            reader's, done. Nothing is copied by this package, unless package mover packs
//
// The pieces of a write and those of the read need not be equal: n go to m (package mover). Of a
// file the tag is the offset, so that a program that copies blocks by their offsets does the same
// with a file as with a connection.
//
// Everything is bounded: what waits unread (Options.Eager and Requests, by credits: no peer can
// send more), what is posted (Options.Queue). It does not find peers, does not decide who may
// connect, and does not connect again: package transfer does, above it.
//
// Read exio.go first, then engine.go and match.go (the protocol, which does no I/O), header.go (its
// messages in bytes), fabric.go with rendezvous.go, socket.go and file.go (the drivers).
package exio

import (
	"github.com/sluice-storage/sluice/errs"
)

// AnyTag is the tag of a read that takes the next message, whatever its tag is. No message has it.
const AnyTag = ^uint64(0)

// MaxPieces is how many pieces of memory one operation may have: as many grants fit into one
// message.
const MaxPieces = 512

// Op is one read or write. It belongs to the handle, and the memory in Pieces with it, from the
// call until Done is called.
type Op struct {
	// Tag is which message it is or wants; of a file, the offset.
	Tag uint64

	// Pieces is the memory, in the order of the bytes. Memory of a Memory moves without copies.
	Pieces [][]byte

	// Parent, if set, is memory in which all the pieces lie, and with it the permission to let the
	// peer access all of it for as long as the operation lasts: one grant then serves all pieces.
	// Without it each piece is granted by itself. Default nil.
	Parent []byte

	// Note is a word that goes with a message that is written, and is in the event of its read.
	Note uint32

	// Done is told the end, once for each operation that was accepted. It must not wait and must not
	// close the handle, but may begin other operations. It can be called before Read or Write returns.
	Done func(Event)
}

// Event is the end of an operation.
type Event struct {
	Op  *Op
	Tag uint64 // the message's
	Len int    // bytes moved
	How How    // how the message went
	Err error  // nil, or why it failed; the pieces may have been written to then

	Note uint32 // the sender's word
}

// How is how a message went.
type How uint8

// The ways.
const (
	Direct     How = iota // by the kernel: files
	Eager                 // with the data in the message
	Rendezvous            // by one-sided access, or straight from a socket, after an agreement
)

func (h How) String() string {
	switch h {
	case Direct:
		return "direct"
	case Eager:
		return "eager"
	case Rendezvous:
		return "rendezvous"
	}
	return "unknown"
}

// Handle is something open that data is moved from and to. Safe for concurrent use.
type Handle interface {
	// Read begins to fill op.Pieces: with the next message for op.Tag, or with what is at that offset.
	// A message that is shorter ends the read with its length; one that is longer fails both ends with
	// errs.TooBig. At the end of a file less is read. An error says that nothing was begun: errs.Again
	// if too many operations are pending, errs.Invalid or errs.TooBig for what cannot be done, the end
	// of the connection. Short messages that came before the peer ended it can be read after that,
	// until Close.
	Read(op *Op) error

	// Write begins to send op.Pieces as a message, or to write them at an offset. Messages leave in
	// the order of Write. Its end means that the memory is free; whether the peer has read the message
	// only the peer can tell. Between providers a Close does not lose a short one that has ended.
	Write(op *Op) error

	// Info is what the handle is.
	Info() Info

	// Close ends all that is pending with errs.Closed, and waits until nothing touches its memory any
	// more. Closing twice is allowed.
	Close() error
}

// Info is what a handle is.
type Info struct {
	Driver string // "shm", "verbs", "tcp", "socket", "file"
	Name   string // for people: the two ends, or the path
	Peer   string // who is at the other end, and how that is known; empty: a file
}

// bytesOf is how many bytes pieces have.
func bytesOf(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// validate refuses operations that no handle can do.
func (op *Op) validate(what string, write bool) error {
	switch {
	case op.Done == nil:
		return errs.Newf(errs.Invalid, what, "", "nobody is to be told")
	case len(op.Pieces) > MaxPieces:
		return errs.Newf(errs.TooBig, what, "", "%d pieces, at most %d", len(op.Pieces), MaxPieces)
	case write && op.Tag == AnyTag:
		return errs.Newf(errs.Invalid, what, "", "a message needs a tag")
	}
	return nil
}

// head are the first n bytes of pieces, as pieces.
func head(pieces [][]byte, n int) (first [][]byte) {
	for _, p := range pieces {
		p = p[:min(len(p), n)]
		if n -= len(p); len(p) > 0 {
			first = append(first, p)
		}
	}
	return first
}
