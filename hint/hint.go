// Package hint is what users tell I/O servers about the use of a file's data: whether it goes
// through the servers' caches, what the caches keep of it and in what units, and how large direct
// transfers are cut. Hints change how fast something is done, never what is read or written.
//
// A file has hints of its own, as extended attributes (attr.go); whoever opens it may use others;
// every request carries them. This package only names and checks them: the metadata service keeps
// them, clients send them, I/O servers follow them.
//
// Read hint.go first, then attr.go.
package hint

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Mode is the way that a request's data takes at the server. All are coherent with each other.
type Mode uint8

// The modes. Values are stored: append, never renumber. So are those of policies and streams.
const (
	Cached      Mode = iota // through the server's cache
	Direct                  // between disk and network, chunk by chunk, past the cache
	DirectReads             // writes by way of the cache, reads past it
	modesEnd
)

// Policies of the server's cache for what a request touches, see package unifier.
const (
	PolicyScan   uint8 = iota // what is used once does not displace what is used often: the default
	PolicyLRU                 // the least recently used goes first
	PolicyStream              // read or written once, in order: goes soon
	PolicyKeep                // goes last
	PolicyNone                // is not kept
	Policies                  // how many there are
)

// Streams of one large direct request, see package relay.
const (
	StreamsDefault  uint8 = iota // the server's choice
	StreamsPlain                 // all of it from the disk, then all of it to the network
	StreamsSingle                // chunk after chunk, each leaves when it is there
	StreamsMultiple              // the members of the store in parallel, in any order
	streamsEnd
)

// Bounds of the sizes.
const (
	UnitMin  = 4 << 10
	UnitMax  = 64 << 10
	ChunkMin = 4 << 10
	ChunkMax = 2 << 20
)

// Hints are those of a file, of an open handle, or of one request. Zero is right for most.
type Hints struct {
	Mode       Mode
	Policy     uint8 // PolicyScan and so on
	Streams    uint8 // of a direct request: StreamsDefault and so on
	NoSums     bool  // no checksums on the wire; what is at rest has them in any case. Never stored
	UnitBytes  int   // cache unit of the object: a power of two from UnitMin to UnitMax; 0: as it is
	ChunkBytes int   // of a direct request: a multiple of 4096 up to ChunkMax; 0: the server's choice
}

// Validate refuses with errs.Invalid what means nothing.
func (h *Hints) Validate() error {
	bad := func(what string, v int) error {
		return errs.Newf(errs.Invalid, "hint", "", "%s is %d", what, v)
	}
	switch {
	case h.Mode >= modesEnd:
		return bad("mode", int(h.Mode))
	case h.Policy >= Policies:
		return bad("policy", int(h.Policy))
	case h.Streams >= streamsEnd:
		return bad("streams", int(h.Streams))
	case h.UnitBytes != 0 && (h.UnitBytes < UnitMin || h.UnitBytes > UnitMax ||
		h.UnitBytes&(h.UnitBytes-1) != 0):
		return bad("cache unit", h.UnitBytes)
	case h.ChunkBytes != 0 && (h.ChunkBytes < ChunkMin || h.ChunkBytes > ChunkMax ||
		h.ChunkBytes%4096 != 0):
		return bad("chunk", h.ChunkBytes)
	}
	return nil
}

// DirectFor tells whether a read, or else a write, goes past the cache.
func (h *Hints) DirectFor(read bool) bool {
	return h.Mode == Direct || read && h.Mode == DirectReads
}

// Bytes is how long encoded hints are.
const Bytes = 3 + 2*4

// Append encodes what is stored: |mode u8 |policy u8 |streams u8 |unit u32 |chunk u32 |.
func (h *Hints) Append(e *wire.Enc) {
	e.U8(uint8(h.Mode))
	e.U8(h.Policy)
	e.U8(h.Streams)
	e.U32(uint32(h.UnitBytes))
	e.U32(uint32(h.ChunkBytes))
}

// Decode takes hints off a message or a record, which malformed ones fail.
func Decode(d *wire.Dec) Hints {
	h := Hints{Mode: Mode(d.U8()), Policy: d.U8(), Streams: d.U8()}
	h.UnitBytes, h.ChunkBytes = int(d.U32()), int(d.U32())
	if d.Err() == nil {
		if err := h.Validate(); err != nil {
			d.Fail(err.Error())
			return Hints{}
		}
	}
	return h
}
