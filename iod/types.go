// Package iod is the contract of an I/O server: it keeps stripe objects and moves their bytes
// between its cache and its clients' memory. Every request shows a capability, names the object,
// and describes both sides of the transfer as structured accesses; the server moves the data.
//
// iod/server serves it over package msg; iod/remote asks one. The server knows nothing of names,
// layouts or other servers.
//
// Read types.go first, then how.go (modes and hints, which are package hint's) and codec.go (bodies
// drawn in bytes).
package iod

import (
	"context"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Limits of one request.
const (
	TransferMax = 8 << 20  // bytes
	PiecesMax   = 64 << 10 // pieces after expansion, on each side
	ExtentsMax  = 512      // extents that one Map returns at most
	InfosMax    = 256      // objects that one List page holds at most
	ReserveMax  = 1 << 30  // bytes that one Reserve looks at
)

// SumChunk is how many bytes of a transfer's stream one checksum covers; the last one covers what
// is left. A checksum is a plain CRC-32C (Castagnoli).
const SumChunk = 64 << 10

// SumsMax is how many checksums a request or a reply has at most.
const SumsMax = (TransferMax + SumChunk - 1) / SumChunk

// Sums is how many checksums a transfer of n bytes has.
func Sums(n int64) int { return int((n + SumChunk - 1) / SumChunk) }

// Target is what a request is about and by what right. Stamp.Gen must equal Object.Gen; the session
// in the stamp must be the capability's, and so must the layout: errs.Stale where it is another
// one, because then the sender has cut its file by a layout that the file has no longer.
type Target struct {
	Server uint32 // id, resolved to an address by the remote
	Object stripe.ObjectID
	Layout uint32 // version of the file's layout
	Cap    [capability.Bytes]byte
	Stamp  wire.Stamp
	How    How // of reads and writes; zero is right for most
}

// Mark is the server's answer to a change: which volatile state it went into. A client that
// collected marks with one verifier and gets another one from Sync knows that writes in between may
// be lost. When it sends them again it names the life, see stripe.Keeper: by that the server finds
// out what was written later.
type Mark struct{ Verifier, Life uint64 }

// Data moves bytes. Both accesses have equal length, at most TransferMax, so that a server reserves
// the memory of a request as a whole and no two of them wait for each other. The memory is the
// call's until it returns. Holes and what lies behind the object's end read as zeroes. Requests are
// idempotent: a lost answer is cured by asking again. An object that was removed is errs.NotFound
// to whoever still has a right to it, never zeroes. A change whose stamp numbers it (Session and
// Seq above 0) is carried out once, however often it comes.
//
// Order: a change lies over every change that was acknowledged before it began. A crash of the
// server takes volatile changes that were not synced; their clients send them again, as such
// (Args.Again), under their numbers, in their order, before anything else of the object. Then, too:
//
//   - what is sent again lies below every durable change that began after it was acknowledged,
//     and below every change that began after the crash, whenever it comes;
//   - the changes that one crash has taken have an order among each other only where they are of
//     one client, or where one was synced before the other began;
//   - a server that cannot tell what was written since refuses what is sent again, and its client
//     is told by the next Sync. It can tell for the life that has ended last. A client that was
//     away for longer, because the server died again before it was back, is refused what it wrote
//     to an object that was changed in a life that it has missed. One that cannot use its numbers
//     any more, because its session has ended, or because the server went on after it could not
//     write to its disk, is refused what it wrote to an object of which anything has reached the
//     store since the life began in which it was acknowledged.
//
// Data is summed on both ways (unless How.NoSums): the server checks what it receives before
// anybody can see it, the receiver of a read what has arrived; errs.Corrupt where they differ.
type Data interface {
	Read(ctx context.Context, t Target, object seg.Access, m *msg.Memory) (Mark, error)

	// Write is volatile or durable as a whole when it returns; when it fails each piece is old or
	// new.
	Write(ctx context.Context, t Target, object seg.Access, m *msg.Memory,
		d stripe.Durability) (Mark, error)

	// Sync makes all acknowledged writes of the object durable.
	Sync(ctx context.Context, t Target) (Mark, error)
}

// Starter is what a Data offers that can begin requests without waiting: one goroutine has several
// of them under way.
type Starter interface {
	// TryRead is the first half of Read, TryWrite of Write. nil: something would have to be waited
	// for, or it fails; Read or Write does it. full says that it is a credit, memory or a number
	// that is missing, which requests under way give back: who has some under way may try again when
	// one of them was finished, and must not wait for it before.
	//
	// ready, if not nil, is called when Finish will not wait: see msg.Request.
	TryRead(ctx context.Context, t Target, object seg.Access, m *msg.Memory, ready func()) (
		s Started, full bool)
	TryWrite(ctx context.Context, t Target, object seg.Access, m *msg.Memory,
		d stripe.Durability, ready func()) (s Started, full bool)
}

// Started is a request that is under way. The memory is its own until it is over.
type Started interface {
	// Finish waits for the answer to the one attempt that was made. It is called once. If it says
	// again, the server was lost, or the data arrived damaged: the request is not over, and Complete
	// must follow.
	Finish(ctx context.Context) (m Mark, again bool, err error)

	// Complete carries the same request out to its end, as Read and Write do.
	Complete(ctx context.Context) (Mark, error)
}

// Room is memory of a Keeper. It belongs to who has reserved it, until it is written by WriteKept
// or given back by Return.
type Room interface {
	// Bytes is the memory, of the length that was reserved.
	Bytes() []byte
	Return()
}

// Keeper is what a Data offers that keeps volatile writes until they are durable: whoever gathers
// data gathers it in the memory from which it is sent and in which it is kept, so that it is not
// copied once more.
type Keeper interface {
	// Reserve waits for room for n bytes, while older writes become durable. It returns nil without
	// an error where there is none to be had: then Write takes any memory.
	Reserve(ctx context.Context, n int) (Room, error)

	// WriteKept is Write of the first n bytes of a room to one place, volatile. If it succeeds the
	// room is the Keeper's; if it fails it stays the caller's, who may write it again.
	WriteKept(ctx context.Context, t Target, off int64, room Room, n int) (Mark, error)
}

// Space looks after allocation.
type Space interface {
	Punch(ctx context.Context, t Target, off, length int64, d stripe.Durability) (Mark, error)

	// Map returns the extents of [off, off+length), at most ExtentsMax; the rest is left out.
	Map(ctx context.Context, t Target, off, length int64) ([]stripe.Extent, error)
	Stat(ctx context.Context, t Target) (stripe.Info, error)
}

// Reserver gives ranges their space before they are written, see stripe.Reserver.
type Reserver interface {
	// ReserveSpace reserves a range, or the first part of it: it tells how far it came, and the
	// pieces that had no space before, by which ReleaseSpace undoes it. What volatile writes were
	// promised, it leaves to them. extend: the object becomes as long as the range reaches.
	ReserveSpace(ctx context.Context, t Target, off, length int64, extend bool) (end int64,
		fresh []seg.Piece, err error)
	ReleaseSpace(ctx context.Context, t Target, off, length int64) error

	// Blank is Punch that gives no space back, durable on return.
	Blank(ctx context.Context, t Target, off, length int64) (Mark, error)
}

// Manager is for the metadata service: it needs capability.Manage.
type Manager interface {
	Truncate(ctx context.Context, t Target, size int64) error
	Remove(ctx context.Context, t Target) error

	// Fence refuses every generation of the object's file below the object's own, durably. If the
	// stamp has an epoch it refuses writers of lower epochs instead: what they have written and was
	// acknowledged is in the store then, and nothing of them is under way any more. errs.Stale: this
	// epoch is refused itself.
	Fence(ctx context.Context, t Target) error
}

// Lister is for the metadata service, too.
type Lister interface {
	// List returns the objects behind t.Object in the order of file, generation and stripe, at most
	// InfosMax of them; none: there are no more.
	List(ctx context.Context, t Target) ([]stripe.ObjectID, error)
}

// Status is what an I/O server says of itself.
type Status struct {
	ID       uint32
	StoreID  uint64
	Verifier uint64
	UptimeMs uint64
	Space    stripe.Space
	Counts   []Count // in a fixed order, for people and metrics
}

// Count is one named number of a Status.
type Count struct {
	Name  string
	Value uint64
}

// Op is the number of a request on the wire: append, never renumber.
type Op uint16

// The requests.
const (
	OpRead Op = iota + 1
	OpWrite
	OpSync
	OpPunch
	OpMap
	OpStat
	OpTruncate
	OpRemove
	OpFence
	OpStatus
	OpList
	OpReserve
)
