package iod

import "github.com/sluice-storage/sluice/errs"

// Mode is the way that a request's data takes at the server. All are coherent with each other.
type Mode uint8

// The modes.
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
	policiesEnd
)

// Streams of one large direct request, see package relay.
const (
	StreamsDefault  uint8 = iota // the server's choice
	StreamsPlain                 // all of it from the disk, then all of it to the network
	StreamsSingle                // chunk after chunk, each leaves when it is there
	StreamsMultiple              // the members of the store in parallel, in any order
	streamsEnd
)

// Bounds of the sizes in a How.
const (
	UnitMin  = 4 << 10
	UnitMax  = 64 << 10
	ChunkMin = 4 << 10
	ChunkMax = 2 << 20
)

// How are a request's mode and hints. Zero is right for most.
type How struct {
	Mode       Mode
	Policy     uint8 // PolicyScan and so on
	Streams    uint8 // of a direct request: StreamsDefault and so on
	NoSums     bool  // no checksums on the wire; what is at rest has them in any case
	UnitBytes  int   // cache unit of the object: a power of two from UnitMin to UnitMax; 0: as it is
	ChunkBytes int   // of a direct request: a multiple of 4096 up to ChunkMax; 0: the server's choice
}

func (h *How) validate() error {
	bad := func(what string, v int) error {
		return errs.Newf(errs.Invalid, "iod.How", "", "%s is %d", what, v)
	}
	switch {
	case h.Mode >= modesEnd:
		return bad("mode", int(h.Mode))
	case h.Policy >= policiesEnd:
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
func (h *How) DirectFor(read bool) bool {
	return h.Mode == Direct || read && h.Mode == DirectReads
}
