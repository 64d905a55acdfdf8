package unifier

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
	"github.com/sluice-storage/sluice/unifier/internal/writeback"
)

// Names of the parts below that users of a cache need.
type (
	Key       = index.Key         // what is cached: units of objects
	Policy    = index.Policy      // how units of an object are kept
	Hint      = index.Hint        // what a caller knows about an object
	Loan      = index.Loan        // an access, lent to a reader
	Draft     = writeback.Draft   // memory for one write that nobody else can see
	Backing   = writeback.Backing // what the cache needs of a store
	Registrar = memory.Registrar  // who is told of all memory
)

// The policies: see package index.
const (
	Scan   = index.Scan   // what is used again stays, and no scan sweeps it out
	LRU    = index.LRU    // the longest unused goes first
	Stream = index.Stream // read once, in order: read ahead at once, dropped behind the reader
	Keep   = index.Keep   // evicted last; at most half of the memory is kept so
	None   = index.None   // gone when the last loan ends
)

// Config of a cache.
type Config struct {
	// MemoryBytes bounds all data memory: cached, lent, drafted, pending and taken for direct
	// transfers. What the cache notes about it comes on top: half a
	// percent with units of 64 KiB, three with units of 4 KiB. Default 256 MiB, at least 1 MiB.
	MemoryBytes int64

	// ReadyBytes of the memory are resident and registered from the start; the rest is mapped and
	// registered when it is needed. Negative: none. Default: the requests that a busy server has
	// under way (requestsExpected) of the usual size (requestBytes), 64 MiB, but at most half of
	// MemoryBytes: the other half costs the host nothing until it is used.
	ReadyBytes int64

	// UnitBytes is the unit of objects for which no hint tells another, a power of two from 4 KiB
	// to 64 KiB. Default 64 KiB.
	UnitBytes int

	// DraftShare is how much of the memory writes under way may hold, above 0 and at most 0.5.
	// Default 0.25.
	DraftShare float64

	// DirtyBytes bounds acknowledged data that the backing does not have yet; at most a quarter of
	// the memory. Default 0: none, every write goes through.
	DirtyBytes int64

	// DirtyAge is how long such data may wait. Default 500 ms.
	DirtyAge time.Duration

	// ReadaheadBytes is the largest window ahead of a stream. Negative: no readahead. Default: a
	// 32nd of the memory, but at most 8 MiB.
	ReadaheadBytes int64

	// OnLoss is told when pending writes could not be written, with the object that failed. All
	// pending writes are lost then. Default nil: nobody.
	OnLoss func(id Key, err error)

	// Registrar is told of all memory before it is used. Default nil: nobody needs to know.
	Registrar Registrar

	// Source is where all memory comes from. Default nil: memory of this process alone.
	Source mem.Source

	// HugePages says how much huge pages are wanted for ready memory. Up to the source if there is
	// one. Default mem.Wish.
	HugePages mem.Want
}

const (
	memoryLeast      = 16 * memory.SlabBytes // two slabs of drafts and of rooms by default
	requestsExpected = 64
	requestBytes     = 1 << 20
	hugeBytes        = 2 << 20
	chunksMost       = 15 // raw ones: a network looks through all of them for each piece
)

func (c Config) withDefaults() Config {
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 256 << 20
	}
	if c.UnitBytes == 0 {
		c.UnitBytes = memory.SlabBytes
	}
	if c.DraftShare == 0 {
		c.DraftShare = 0.25
	}
	if c.ReadyBytes == 0 {
		c.ReadyBytes = min(requestsExpected*requestBytes, c.MemoryBytes/2)
	}
	c.ReadyBytes = roundDown(max(c.ReadyBytes, 0))
	if c.ReadaheadBytes == 0 {
		c.ReadaheadBytes = min(8<<20, c.MemoryBytes/32)
	}
	if c.DirtyAge == 0 {
		c.DirtyAge = 500 * time.Millisecond
	}
	return c
}

// roundDown leaves whole slabs, and whole huge pages where there is one.
func roundDown(n int64) int64 {
	if n >= hugeBytes {
		return n &^ (hugeBytes - 1)
	}
	return n &^ (memory.SlabBytes - 1)
}

func (c Config) validate() error {
	const op = "unifier.New"
	switch {
	case !index.UnitOK(c.UnitBytes):
		return errs.Newf(errs.Invalid, op, "", "UnitBytes is %d", c.UnitBytes)
	case c.MemoryBytes < memoryLeast:
		return errs.Newf(errs.Invalid, op, "", "MemoryBytes is %d, at least %d are needed",
			c.MemoryBytes, memoryLeast)
	case !(c.DraftShare > 0 && c.DraftShare <= 0.5):
		return errs.Newf(errs.Invalid, op, "", "DraftShare is %v", c.DraftShare)
	case c.DirtyBytes < 0 || c.DirtyBytes > c.MemoryBytes/4:
		return errs.Newf(errs.Invalid, op, "", "DirtyBytes is %d of %d", c.DirtyBytes, c.MemoryBytes)
	case c.DirtyBytes > 0 && c.DirtyBytes < 4*memory.SlabBytes:
		return errs.Newf(errs.Invalid, op, "", "DirtyBytes is %d", c.DirtyBytes)
	case c.ReadyBytes > c.MemoryBytes:
		return errs.Newf(errs.Invalid, op, "", "ReadyBytes is %d of %d", c.ReadyBytes, c.MemoryBytes)
	case c.DirtyAge < 0:
		return errs.Newf(errs.Invalid, op, "", "DirtyAge is %v", c.DirtyAge)
	}
	return nil
}

func (c Config) slabs(share float64, least int64) int64 {
	return max(int64(float64(c.MemoryBytes>>memory.SlabShift)*share), least) << memory.SlabShift
}

// Shares are how a cache divides its memory: no more than that is in use for each purpose at once.
// What nobody uses holds cached units.
type Shares struct {
	Loans  int64 // units that readers hold
	Drafts int64 // writes that are not published
	Rooms  int64 // direct transfers
	Dirty  int64 // acknowledged and not written back
	Fetch  int64 // units that are being read, so that a miss always finds some

	// Chunk is the longest contiguous access that fits, whatever its alignment. It is no share.
	Chunk int64
}

// Shares tells how a cache with this configuration divides its memory.
func (c Config) Shares() Shares {
	c = c.withDefaults()
	loans, drafts := c.readBytes(), c.draftBytes()
	return Shares{Loans: loans, Drafts: drafts, Rooms: c.takeBytes(), Dirty: c.DirtyBytes,
		Fetch: c.fetchBytes(),
		Chunk: max(min(loans, drafts)-2*memory.SlabBytes, memory.SlabBytes)}
}

func (c Config) draftBytes() int64 { return c.slabs(c.DraftShare, 2) }
func (c Config) takeBytes() int64  { return c.slabs(1.0/8, 2) }
func (c Config) fetchBytes() int64 { return c.slabs(1.0/16, 1) }

// readBytes is what is left for loans.
func (c Config) readBytes() int64 {
	total := c.MemoryBytes &^ (memory.SlabBytes - 1)
	return total - c.draftBytes() - c.takeBytes() - c.DirtyBytes - c.fetchBytes()
}

// chunkBytes keeps raw chunks few.
func (c Config) chunkBytes() int64 {
	n := max((c.MemoryBytes-c.ReadyBytes)/chunksMost, memory.SlabBytes)
	if n >= hugeBytes {
		return (n + hugeBytes - 1) &^ (hugeBytes - 1)
	}
	return (n + memory.SlabBytes - 1) &^ (memory.SlabBytes - 1)
}

func (c Config) memory() memory.Config {
	return memory.Config{Bytes: c.MemoryBytes, ReadyBytes: c.ReadyBytes, ChunkBytes: c.chunkBytes(),
		LoanBytes: c.readBytes(), Registrar: c.Registrar, Source: c.Source,
		HugePages: c.HugePages}
}

func (c Config) index() index.Config {
	return index.Config{UnitBytes: c.UnitBytes, LoanMax: c.readBytes(), DirtyMax: c.DirtyBytes,
		AheadMax: max(c.ReadaheadBytes, 0), AheadAll: c.MemoryBytes / 8}
}

func (c Config) writeback() writeback.Config {
	return writeback.Config{DraftBytes: c.draftBytes(), DirtyBytes: c.DirtyBytes,
		DirtyAge: c.DirtyAge, OnLoss: c.OnLoss}
}
