package nbd

import "context"

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
	// Size is the device's size in bytes. It does not change while the export is open.
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

// Describer gives the export a description for NBD_OPT_LIST and NBD_INFO_DESCRIPTION.
type Describer interface {
	Description() string
}

// Sizer states the block sizes that suit the export: minimum (a power of two), preferred and
// maximum payload. Without it the server states 1, 4096 and its own limit.
type Sizer interface {
	BlockSizes() (minimum, preferred, maximum uint32)
}

// Instant is an Export none of whose calls waits for a device or a peer. The server then runs its
// requests on the goroutine that reads them, which spares the handing over.
type Instant interface {
	Instant() bool
}

// NowReader is an Export that can tell whether a read needs waiting: ReadNow fills p and returns
// true if that takes no waiting, and otherwise returns false at once with p's content undefined.
// The server asks it for small reads before it hands them to ReadAt on another goroutine.
type NowReader interface {
	ReadNow(p []byte, off int64) bool
}
