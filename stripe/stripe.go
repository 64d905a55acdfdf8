// Package stripe is the contract of an I/O server's local store: sparse objects, each one stripe
// of one file, that come to life with their first write. A store keeps bytes, sizes and the few
// numbers that fence old writers; it knows neither files nor layouts nor the network.
//
// Engines live below it (logstore: log, index and checksums on direct I/O; memstore: memory, for
// tests and clusters without disks). stripetest is the definition of what an engine must do;
// hook/fault wraps an engine with faults and delays for the tests of others.
//
// Read stripe.go first, then stripetest.
package stripe

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// ObjectID names an object: stripe Stripe of file File in its generation Gen. A file whose id is
// reused, or that is fenced, gets a new generation, so that old requests never meet new bytes.
type ObjectID struct {
	File   uint64
	Gen    uint32
	Stripe uint32
}

// String is the id as logs and tools show it: file.generation.stripe in decimal.
func (id ObjectID) String() string { return fmt.Sprintf("%d.%d.%d", id.File, id.Gen, id.Stripe) }

// Compare orders ids by file, generation and stripe.
func (id ObjectID) Compare(other ObjectID) int {
	return cmp.Or(cmp.Compare(id.File, other.File), cmp.Compare(id.Gen, other.Gen),
		cmp.Compare(id.Stripe, other.Stripe))
}

// MaxObjectBytes is the largest offset plus length in an object.
const MaxObjectBytes = 1 << 60

// SessionsMax is how many slots of sessions a store remembers at least.
const SessionsMax = 4096

// GrainBytes is the most space that a byte may take: who promises room for a write counts the write
// rounded outward to that.
const GrainBytes = 64 << 10

// StampsMax is how many requests besides the first one write may include.
const StampsMax = 256

// Durability says when a write may be acknowledged.
type Durability uint8

// The classes of durability.
const (
	Volatile Durability = iota // survives the death of the server process, not a power cut, until Sync
	Durable                    // on stable storage before the call returns, as soon as possible
	Grouped                    // the same, but may wait a moment for others to share the disk's sync
)

// Info is what a store knows of one object.
type Info struct {
	ID        ObjectID
	Size      int64  // one past the highest byte ever written since the last truncation below it
	Allocated int64  // bytes that hold data or are reserved, in whole blocks of the engine
	TruncSeq  uint64 // of the last truncation applied
	Epoch     uint32 // of the last change; 0 where the engine keeps none
	Lives     Lives  // in which it was changed
}

// Extent is a run of an object that is either data or a hole.
type Extent struct {
	Off, Len int64
	Hole     bool
	Reserved bool // a hole that has its space, see Reserver
}

// Space is the store's room, in bytes.
type Space struct {
	Total, Free int64
	Shared      int64 // the part of Free that others on the same file system can take as well
}

// Store is an engine. All methods are safe for concurrent use, on the same object too: writes that
// do not overlap keep all their bytes; where they overlap each byte is one writer's. Buffers belong
// to the caller again when a call returns. Errors: errs.Stale (the stamp's TruncSeq is older than
// the object's: refresh and retry), errs.Fenced (below the file's minimal generation or epoch; that
// is looked at first), errs.NoSpace (writing what is allocated never fails with it), errs.Corrupt
// (concerns the read only), errs.IO (a failed read concerns that read; after a failed write or sync
// the store refuses writes with this kind: a state that nobody knows must not be built upon),
// errs.Closed.
//
// Stamps: Gen is the id's business; TruncSeq is checked as said below; Epoch is kept with what was
// written; the Life is noted with it, see Keeper. A stamp with Session and Seq above 0 numbers its
// request, which is then one call: a store remembers, with the data, the last Seq that it applied
// for each slot of a session, and acknowledges a request with that or a lower one without applying
// it again, and before it looks at TruncSeq: what was applied before a truncation is not stale. It
// may forget the sessions that were quiet for longest when there are more than SessionsMax of them.
//
// Blocking: every call may wait for the disk; the context is asked before something is changed, and
// while a call waits for memory or room. A change that has begun is carried out.
type Store interface {
	// ReadAt fills the buffers, all of them, with the object's bytes from off on. What was never
	// written, an absent object included, reads as zeroes.
	ReadAt(ctx context.Context, id ObjectID, bufs [][]byte, off int64) error

	// WriteAt stores the buffers at off. The object comes to life if it does not exist.
	WriteAt(ctx context.Context, id ObjectID, bufs [][]byte, off int64, st wire.Stamp,
		d Durability) error

	// Truncate cuts or extends the object to size and remembers the stamp's TruncSeq: writes that
	// carry an older one are refused from then on, so that bytes from before never come back.
	// Repeating it is harmless: a TruncSeq above 0 that the object has applied already changes
	// nothing, whatever was written since. An older TruncSeq is refused with errs.Stale. An
	// absent object comes to life only when TruncSeq is above 0 (somebody must remember it).
	// Durable on return.
	Truncate(ctx context.Context, id ObjectID, size int64, st wire.Stamp) error

	// Sync returns when every write of the object that was acknowledged before is on stable
	// storage. The zero ObjectID means all objects.
	Sync(ctx context.Context, id ObjectID) error

	// Close syncs everything and releases the store.
	Close() error
}

// Remover can forget objects. Removing what does not exist succeeds. Durable on return.
type Remover interface {
	Remove(ctx context.Context, id ObjectID) error
}

// Puncher can turn a range into a hole that reads as zeroes. The size does not change. Subject to
// the same stamp checks as a write. An absent object comes to life only when the stamp numbers the
// request (somebody must remember it).
type Puncher interface {
	Punch(ctx context.Context, id ObjectID, off, length int64, st wire.Stamp, d Durability) error
}

// Zeroer can write zeroes without being given any: as WriteAt of that many, the size included, but
// in the time of a small request. Space for them may stay free.
type Zeroer interface {
	Zero(ctx context.Context, id ObjectID, off, length int64, st wire.Stamp, d Durability) error
}

// Reservation asks for space in advance.
type Reservation struct {
	Off, Len  int64
	Extend    bool  // the object's size becomes Off+Len, unless it is larger
	Leave     int64 // bytes that stay free on every member: somebody has promised them
	PiecesMax int   // how many pieces the answer may name; 0: it names none, and the request is done
}

// Reserver gives ranges their space before they are written.
//
// What is reserved reads as zeroes until it is written, counts as allocated, and is a hole that
// says so in maps. Writing it never fails with errs.NoSpace. It has its space until it is punched
// or zeroed, until a truncation ends before it, be it one that extends the object, or until the
// object is removed. Reservations are in whole blocks of the engine, outward.
type Reserver interface {
	// Reserve gives space to what has none of a range, and tells what that was: pieces in order,
	// whole blocks. With an error nothing has changed. end is how far it came: less than asked for
	// where PiecesMax are named. Subject to the checks of a write, but numbers are not looked at:
	// to repeat it is harmless. The object comes to life. Durable on return.
	Reserve(ctx context.Context, id ObjectID, r Reservation, st wire.Stamp) (end int64,
		fresh []seg.Piece, err error)

	// Release takes the space back from all blocks that a range touches and that were reserved and
	// never written. It undoes a Reserve by the pieces that it has named. Otherwise as Reserve.
	Release(ctx context.Context, id ObjectID, off, length int64, st wire.Stamp) error

	// Blank is Punch that gives no space back: what was data is reserved afterwards.
	Blank(ctx context.Context, id ObjectID, off, length int64, st wire.Stamp, d Durability) error
}

// Summer takes and gives the plain CRC-32C of whole blocks of crc32c.BlockBytes, 4096, so that data
// is summed once on its way, by whoever made it. Sums are of blocks of the object: off and the
// length of all buffers together are multiples of 4096, the buffers themselves need not be.
type Summer interface {
	// ReadSums is ReadAt that also gives the sums, one for each block read; what comes from a disk
	// has been verified against them. Holes have crc32c.ZeroBlock.
	ReadSums(ctx context.Context, id ObjectID, bufs [][]byte, off int64, sums []uint32) error

	// WriteSums is WriteAt whose data is summed already; with nil sums the engine sums, and any off
	// and length will do. The engine keeps the sums as they are: the caller has computed them of
	// these very bytes, or compared. Bytes that do not fit them are an error for whoever reads
	// them, and a restart may take them for bytes that never arrived, and what came behind too.
	//
	// stamps[0], or the zero stamp when there is none, is the write's as in WriteAt. stamps[1:], at
	// most StampsMax, are further numbered requests that this data includes: a cache that writes
	// back merges. Their Session, Slot and Seq are remembered with the data, there when the data is
	// and not when the call fails; nobody checks whether they are repeats. Who merges gives no
	// number in stamps[0], lest a repeat of one request takes the others along.
	WriteSums(ctx context.Context, id ObjectID, bufs [][]byte, off int64, sums []uint32,
		stamps []wire.Stamp, d Durability) error
}

// Admitter tells in advance what a write of [off, off+length) with that stamp would be told:
// errs.Closed, errs.Fenced, errs.IO (writes are refused), errs.Stale; repeated, when it was applied
// already; errs.NoSpace, when there is less room than space. It changes nothing and promises
// nothing: space is the most that this write and everything else that the caller has promised may
// need, each piece rounded outward to GrainBytes, on whichever member. So NoSpace may come too
// early, for an overwrite say, which needs none: then the write itself tells the truth.
type Admitter interface {
	Admit(ctx context.Context, id ObjectID, off, length int64, st wire.Stamp,
		space int64) (repeated bool, err error)
}

// Placer tells how objects lie on members, so that whoever moves a large piece can have all of them
// work: which member holds the byte at off, and how many bytes from there on, at least 1, it holds
// together. An engine that is one place has one member. It never blocks and never fails.
type Placer interface {
	Place(id ObjectID, off int64) (member int, run int64)
	Members() int
}

// Stater tells about objects. An absent object gives Info{ID: id} and no error: it has size 0.
type Stater interface {
	Stat(ctx context.Context, id ObjectID) (Info, error)
}

// Mapper tells which parts of [off, off+length) are data and which are holes: extents in order
// that cover the range exactly, at most max of them (the rest is left out).
type Mapper interface {
	Map(ctx context.Context, id ObjectID, off, length int64, max int) ([]Extent, error)
}

// Lister walks all objects in no particular order until fn returns false.
type Lister interface {
	List(ctx context.Context, fn func(Info) bool) error
}

// Fencer refuses all requests for generations of the file below gen from now on, durably. It
// never goes back: a smaller gen changes nothing. When it returns no older request is under way
// any more. Remove and List still work: somebody must clean up.
type Fencer interface {
	SetMinGeneration(ctx context.Context, file uint64, gen uint32) error

	// SetMinEpoch refuses, in the same way, all writes, punches and reservations of the file whose
	// stamp has a lower epoch: those of writers that another one has taken over from. Its objects
	// stay as they are, and Truncate goes by its TruncSeq alone.
	SetMinEpoch(ctx context.Context, file uint64, epoch uint32) error

	// MinEpoch is what was set, 0 for nothing. It never blocks and never fails.
	MinEpoch(file uint64) uint32
}

// Keeper tells what a restart means to volatile writes. The verifier stays the same as long as
// every acknowledged volatile write is still there: a store on files keeps it until the host
// reboots, a store in memory until the process ends. A client whose writes were acknowledged
// under one verifier and who syncs under another knows that they may be lost.
//
// What is lost is sent again, and must not lie over what was written later. So a store also numbers
// the lives of its users and notes with every change of an object, in the same step as the data, in
// which life it was made: the stamp's Life, or the present one if that is 0.
type Keeper interface {
	Verifier() uint64

	// Life is the number of the present life, above 0. Opening the store begins one whose number is
	// higher than all before, whatever has happened to the host.
	Life() uint64

	// NewLife begins the next one; it never waits. Who loses acknowledged changes calls it before
	// anybody is told.
	NewLife()
}

// Spacer tells the room.
type Spacer interface {
	Space() (Space, error)
}

// Stats count what an engine has done since it was opened, and what it holds. Engines leave at 0
// what they do not know.
type Stats struct {
	Reads, Writes           uint64 // requests
	ReadBytes, WriteBytes   uint64 // of requests
	DiskReads, DiskWrites   uint64 // operations on the disk
	DiskReadBytes           uint64
	DiskWriteBytes          uint64 // over WriteBytes: the write amplification
	Syncs                   uint64 // flushes of the disk, and stable writes
	Groups                  uint64 // commits that served one or more requests
	Checkpoints             uint64
	Repeats                 uint64 // requests recognised and not applied again
	ChecksumErrors          uint64 // blocks that did not verify
	Objects                 uint64 // alive now
	LogBytes, LogUsed       int64  // the log, and what a restart would read of it
	MemoryBytes, MemoryUsed int64  // bound of index and unapplied data, and what they take now
	MapBytes                int64  // maps of objects, about: they grow with the data, not bounded
	CopiedBytes             uint64 // payload copied by the engine: small writes, unaligned pieces
}

// Counter tells what an engine does.
type Counter interface {
	Stats() Stats
}

// Engine is everything an I/O server asks of its store.
type Engine interface {
	Store
	Remover
	Puncher
	Zeroer
	Reserver
	Summer
	Admitter
	Placer
	Counter
	Stater
	Mapper
	Lister
	Fencer
	Keeper
	Spacer
}
