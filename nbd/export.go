package nbd

import (
	"context"
	"fmt"
	"os"
)

// Export is what the server needs of anything that it serves as a block device. Everything beyond
// this is an optional one-method extra below, asked for once, when the export is opened.
//
// All methods are called concurrently, from many connections. Offsets and lengths are validated
// by the server before the call: 0 <= off, off+len <= Size(). An error's kind (package errs)
// decides the NBD error that the client sees: NoSpace/Quota/TooBig -> ENOSPC,
// Perm/Access/ReadOnly -> EPERM, Invalid -> EINVAL, Unsupported -> ENOTSUP for a fast zero (the
// protocol allows it nowhere else) and EINVAL otherwise, Shutdown -> ESHUTDOWN, everything else
// -> EIO.
type Export interface {
	// Size is the device's size in bytes. It may grow while the export is open: clients that connect
	// from then on are told, others learn it when they connect anew.
	Size() int64

	// ReadAt fills p, all of it, or fails. p belongs to the caller again when it returns.
	ReadAt(ctx context.Context, p []byte, off int64) error

	// WriteAt stores p, all of it, or fails (what is on the device is then undefined between old
	// and new, sector by sector). With fua it returns only after the data is durable. p belongs
	// to the caller again when it returns.
	WriteAt(ctx context.Context, p []byte, off int64, fua bool) error

	// Flush returns when every write that was acknowledged before the call, on any connection, is
	// durable.
	Flush(ctx context.Context) error

	// Close releases the export. No other call is under way or follows.
	Close() error
}

// Trimmer is an Export that can give space back. The content of the range is undefined afterwards.
// The implementation may round inwards.
type Trimmer interface {
	Trim(ctx context.Context, off, length int64, fua bool) error
}

// ZeroFlags modify WriteZeroes.
type ZeroFlags struct {
	FUA    bool // durable on return
	NoHole bool // the range must stay allocated
	Fast   bool // errs.Unsupported, without side effect, unless faster than writing zeroes
}

// Zeroer is an Export that can write zeroes without being sent them. Without it the server writes
// zeroes through WriteAt in bounded pieces, and refuses Fast.
type Zeroer interface {
	WriteZeroes(ctx context.Context, off, length int64, flags ZeroFlags) error
}

// Extent is one run of equal allocation state.
type Extent struct {
	Len  int64
	Hole bool // not allocated
	Zero bool // reads as zeroes
}

// Mapper is an Export that knows its allocation. Map appends extents that start at off and cover
// at least one byte of the range, at most max of them; the last one may reach past the range.
// Without it everything is reported as allocated data.
type Mapper interface {
	Map(ctx context.Context, off, length int64, max int, dst []Extent) ([]Extent, error)
}

// Slicer is an Export whose bytes lie in memory: Slice returns the bytes themselves, valid until
// release is called, so that the server sends them without a copy.
type Slicer interface {
	Slice(off int64, length int) (p []byte, release func(), err error)
}

// Streamer is an Export that delivers large reads in pieces, as its devices or peers have them: the
// first leave for the client while the others are still being read ("synchronized send"), in
// whatever order they come ("multiple streams"). The server asks it for reads of StreamBytes or
// more whose client takes pieces in any order, and ReadAt for all others; the two read the same.
type Streamer interface {
	// Stream delivers every byte of the range once, in pieces of any size and in any order, from any
	// number of goroutines. It returns when nothing of it is under way any more: nil when all has
	// been delivered. An error may come behind some pieces; the client is told so behind them, with
	// the place if it is an OffsetError. An error of Deliver ends it: nobody wants the rest.
	Stream(ctx context.Context, off, length int64, to Sink) error
}

// Sink takes the pieces of one read. Safe for concurrent use.
type Sink interface {
	// Deliver takes a piece over, also when it fails, and sees to it that it leaves. It may wait for
	// the client, so the caller holds no lock. What bounds the memory that waits to be sent is that
	// the export has lent it: it must lend what it can spare, and go on when pieces come back.
	Deliver(p Piece) error
}

// Piece is a part of a read: bytes in memory, or bytes of a file, or with neither a hole, which
// reads as zeroes.
type Piece struct {
	Off int64 // in the export
	Len int64 // above 0

	// Data are the bytes, in order, Len of them. They and the list do not change until Lent is
	// returned.
	Data [][]byte

	// File holds the bytes from At on, if Data is nil. They should be in memory: other replies of
	// the connection wait while they are read. What is missing of them is told as errs.IO.
	File *os.File
	At   int64

	// Lent is returned, once, when the server has no use for Data or File any more, on any
	// goroutine, which may be the one that delivers. That waits for the client only, so that an
	// export may wait for it before it delivers more or ends. nil: they stay as they are until Close.
	Lent Lent
}

// Lent is something that has to be given back.
type Lent interface{ Return() }

// OffsetError is an error of a read, and where in the export it is.
type OffsetError struct {
	Off int64
	Err error
}

// Error is the reason with its place.
func (e *OffsetError) Error() string { return fmt.Sprintf("at offset %d: %v", e.Off, e.Err) }

// Unwrap gives the reason.
func (e *OffsetError) Unwrap() error { return e.Err }

// Starver is a Streamer that tells whether reads wait for memory that it has lent. Connections that
// do not take what was sent to them are closed then, see Config.StallTimeout.
type Starver interface {
	Starving() bool
}

// Ender is an Export that may end by itself, because what it serves was given to somebody else.
// From then on all its requests fail with errs.Shutdown. No further client can choose it; when the
// last one has left it is closed, kept or not, and the next one opens it anew.
type Ender interface {
	Ended() bool
}

// Describer gives the export a description for NBD_OPT_LIST and NBD_INFO_DESCRIPTION.
type Describer interface {
	Description() string
}

// Sizer states the block sizes that suit the export: minimum (a power of two), preferred and
// maximum payload. Without it the server states 1, 4096 and its own limit.
type Sizer interface {
	BlockSizes() (minimum, preferred, maximum uint32)
}

// Unaligner is an Export that serves requests that are smaller than the minimum that its Sizer
// states, or lie anywhere, at a price: its minimum is what suits the device. Without it the server
// refuses them.
type Unaligner interface {
	Unaligned() bool
}

// Instant is an Export none of whose calls waits for a device or a peer. The server then runs its
// requests on the goroutine that reads them, which spares the handing over.
type Instant interface {
	Instant() bool
}

// NowReader is an Export that can tell whether a read needs waiting: ReadNow fills p and returns
// true if that takes no waiting, and otherwise returns false at once with p's content undefined.
// The server asks it for small reads before it calls ReadAt while another goroutine reads on.
type NowReader interface {
	ReadNow(p []byte, off int64) bool
}

// Fixed is an Export that can tell that it takes no changes, whatever its entry says.
type Fixed interface {
	ReadOnly() bool
}

// Status is one run of equal state in a metadata context.
type Status struct {
	Len   int64
	Flags uint32 // what they mean is the context's affair
}

// Context is a metadata context of an export, besides base:allocation.
type Context struct {
	// Name is what clients select, like sluice:placement. The export's Entry names it, too: clients
	// select contexts before the export is open.
	Name string

	// Status appends runs that start at off and cover at least one byte of the range, at most max of
	// them; the last one may reach past the range. It is called concurrently.
	Status func(ctx context.Context, off, length int64, max int, dst []Status) ([]Status, error)
}

// Contexter is an Export with metadata contexts of its own.
type Contexter interface {
	Contexts() []Context
}

// Cacher is an Export that can fetch a range before it is read, which is a hint: it need not wait
// for the data. Without it the server acknowledges such requests and does nothing.
type Cacher interface {
	Cache(ctx context.Context, off, length int64) error
}
