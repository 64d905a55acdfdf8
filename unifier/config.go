package unifier

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Key names what is cached: units of objects.
type Key = stripe.ObjectID

// Backing is what the cache needs of a store, with the meaning that package stripe gives it.
// Buffers belong to the backing only during a call. A backing that is a stripe.Admitter too can be
// written back to, and tells repeated requests; the end of objects, where readahead stops, is known
// of one that is a stripe.Stater.
type Backing interface {
	ReadSums(ctx context.Context, id Key, bufs [][]byte, off int64, sums []uint32) error
	WriteSums(ctx context.Context, id Key, bufs [][]byte, off int64, sums []uint32,
		stamps []wire.Stamp, d stripe.Durability) error
	Sync(ctx context.Context, id Key) error
}

// Registrar registers memory with whoever moves it; a msg.Node is one. Attach comes before the
// memory is used, Detach when nobody uses it any more. Neither may call the cache.
type Registrar interface {
	Attach(a *mem.Arena) error
	Detach(a *mem.Arena)
}

// Config of a cache.
type Config struct {
	// MemoryBytes bounds all data memory: cached, lent, drafted, pending, taken for direct
	// transfers, and reserved by the server. What the cache notes about it comes on top: half a
	// percent with units of 64 KiB, three with units of 4 KiB. Default 256 MiB, at least 1 MiB.
	MemoryBytes int64

	// ReadyBytes of the memory are resident and registered from the start; the rest is mapped and
	// registered when it is needed. Negative: none. Default: the requests that a busy server has
	// under way (requestsExpected) of the usual size (requestBytes), 64 MiB, but at most half of
	// MemoryBytes, so that as much can be reserved or given back.
	ReadyBytes int64

	// UnitBytes is the unit of objects for which no hint tells another, a power of two from 4 KiB to
	// 64 KiB. Default 64 KiB.
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

	// Patience is how long a writer waits for a reader before it goes on without the reader's
	// memory. Default 2 ms.
	Patience time.Duration

	// OnLoss is told when pending writes could not be written, with the object that failed. All
	// pending writes are lost then. Default nil: nobody.
	OnLoss func(id Key, err error)

	// Registrar is told of all memory before it is used. Default nil: nobody needs to know.
	Registrar Registrar

	// HugePages says how much huge pages are wanted for ready memory. Default mem.Wish.
	HugePages mem.Want

	// Source is where the memory comes from. Default nil: anonymous memory of the process.
	Source mem.Source
}

const (
	memoryLeast      = 16 * slabBytes // with the default shares two slabs of drafts and of rooms
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
		c.UnitBytes = slabBytes
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
	if c.Patience == 0 {
		c.Patience = 2 * time.Millisecond
	}
	return c
}

// roundDown leaves whole slabs, and whole huge pages where there is one.
func roundDown(n int64) int64 {
	if n >= hugeBytes {
		return n &^ (hugeBytes - 1)
	}
	return n &^ (slabBytes - 1)
}

func (c Config) validate() error {
	const op = "unifier.New"
	switch {
	case !unitOK(c.UnitBytes):
		return errs.Newf(errs.Invalid, op, "", "UnitBytes is %d", c.UnitBytes)
	case c.MemoryBytes < memoryLeast:
		return errs.Newf(errs.Invalid, op, "", "MemoryBytes is %d, at least %d are needed",
			c.MemoryBytes, memoryLeast)
	case !(c.DraftShare > 0 && c.DraftShare <= 0.5):
		return errs.Newf(errs.Invalid, op, "", "DraftShare is %v", c.DraftShare)
	case c.DirtyBytes < 0 || c.DirtyBytes > c.MemoryBytes/4:
		return errs.Newf(errs.Invalid, op, "", "DirtyBytes is %d of %d", c.DirtyBytes, c.MemoryBytes)
	case c.DirtyBytes > 0 && c.DirtyBytes < 4*slabBytes:
		return errs.Newf(errs.Invalid, op, "", "DirtyBytes is %d", c.DirtyBytes)
	case c.ReadyBytes > c.MemoryBytes:
		return errs.Newf(errs.Invalid, op, "", "ReadyBytes is %d of %d", c.ReadyBytes, c.MemoryBytes)
	case c.DirtyAge < 0 || c.Patience < 0:
		return errs.Newf(errs.Invalid, op, "", "DirtyAge %v, Patience %v", c.DirtyAge, c.Patience)
	}
	return nil
}

func (c Config) slabs(share float64, least int64) int64 {
	return max(int64(float64(c.MemoryBytes>>slabShift)*share), least) << slabShift
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
		Fetch: c.fetchBytes(), Chunk: max(min(loans, drafts)-2*slabBytes, slabBytes)}
}

func (c Config) draftBytes() int64 { return c.slabs(c.DraftShare, 2) }
func (c Config) takeBytes() int64  { return c.slabs(1.0/8, 2) }
func (c Config) fetchBytes() int64 { return c.slabs(1.0/16, 1) }

// readBytes is what is left for loans.
func (c Config) readBytes() int64 {
	total := c.MemoryBytes &^ (slabBytes - 1)
	return total - c.draftBytes() - c.takeBytes() - c.DirtyBytes - c.fetchBytes()
}

// chunkBytes keeps raw chunks few.
func (c Config) chunkBytes() int64 {
	n := max((c.MemoryBytes-c.ReadyBytes)/chunksMost, slabBytes)
	if n >= hugeBytes {
		return (n + hugeBytes - 1) &^ (hugeBytes - 1)
	}
	return (n + slabBytes - 1) &^ (slabBytes - 1)
}
