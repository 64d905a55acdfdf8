package meta

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Bounds of what is told later.
const (
	NumbersMax = 4096 // inode numbers that one Numbers returns at most
	TellMax    = 512  // operations that one TellMany carries at most
)

// HoldMax is how many files one Hold asks for at most.
const HoldMax = TellMax - 1

// Deferrals let a session that holds LeaseSole on directories make and remove names there by
// itself, and tell it later, in order.
type Deferrals interface {
	// Numbers returns inode numbers that nobody has had, and that are the session's from now on: it
	// gives them to what it makes, in order. They are never given out again, whether it uses them or
	// not.
	Numbers(ctx context.Context, c Caller, n int) (first Ino, count int, err error)

	// Hold asks for LeaseSole on a directory that is there already. Others who know it are asked
	// first. Files are those in it, all with one name, whose leases the session has and which it
	// would like to remove by itself: that is granted where nobody else has a lease on one, or has it
	// open. The first of the answers is about the directory, the others about the files in their
	// order: LeaseSole and LeaseWrite where it is granted, LeaseNone where not, as of a directory
	// from which more than an owner is inherited, or that others use as well at this time. It may be
	// repeated, for other files of the same directory.
	//
	// A file that was granted is the session's to remove until its lease is recalled, or it is opened
	// for writing: before anybody else looks at it that is recalled.
	Hold(ctx context.Context, c Caller, dir Ino, files []Ino) ([]Settled, error)

	// TellMany carries out, in order, what the caller has done in directories that it holds alone, in
	// this epoch of its leases. errs.Fenced: it has lost one of those leases, and nothing was done. If
	// it loses one in the middle, what was done is the beginning of the list. Otherwise the answer
	// tells what came of each; one that was refused has changed nothing, and those that depend on it
	// are refused for that. Each takes effect whole or not at all, and in the order of the list.
	//
	// What the session has done before a restart of the service it tells the next life, under the
	// epoch that it was done in, before it claims: until then nobody can have changed anything.
	TellMany(ctx context.Context, c Caller, epoch uint64, list []Deferred) ([]Settled, error)
}

// DeferredKind tells what was done.
type DeferredKind uint8

// The kinds.
const (
	DeferMake   DeferredKind = iota + 1 // something was made
	DeferRemove                         // a name was taken away: unlink(2), or rmdir(2) with File.Type
	DeferTouch                          // something was made and removed: the directory has changed
)

// Deferred is something that a session has done in Dir, at At by its clock. The session has checked
// that its user may do so.
type Deferred struct {
	Kind DeferredKind
	Dir  Ino
	Name string
	Ino  Ino // what was made, by a number of the session's, or what was removed
	At   Time

	// Of what was made: Type, Mode, without Umask, Rdev and Target count. Of what was removed: Type
	// says whether it is a directory.
	File NewFile
	UID  uint32
	GID  uint32
	Gen  uint32 // of a regular file

	// Open, if not 0, says that a file is still open, by Handle. Otherwise Change is what was written
	// to it before it was closed, if Dirty.
	Open   OpenFlags
	Handle uint64
	Dirty  bool
	Change Change
}

// Settled is what came of something that was told. Lease is on what was made: LeaseSole on a
// directory, LeaseWrite on a file that is open for writing, LeaseRead on others.
type Settled struct {
	Kind   errs.Kind
	Lease  LeaseMode
	Serial uint64
}

// The smallest items.
const (
	deferredBytes = 1 + 8 + 4 + 8 + TimeBytes
	settledBytes  = 2 + 1 + 8
)

// encDeferred: |kind u8 |dir u64 |name |ino u64 |at |, then of what was made |type u8 |mode u32 |
// |rdev u32 |target |uid u32 |gid u32 |gen u32 |open u8 |handle u64 |dirty u8 |change |, the change
// only if dirty is set, and of what was removed |type u8 |.
func encDeferred(e *wire.Enc, w *Deferred) {
	e.U8(uint8(w.Kind))
	e.U64(uint64(w.Dir))
	e.String(w.Name)
	e.U64(uint64(w.Ino))
	w.At.Append(e)
	switch w.Kind {
	case DeferRemove:
		e.U8(uint8(w.File.Type))
	case DeferMake:
		e.U8(uint8(w.File.Type))
		e.U32(w.File.Mode)
		e.U32(w.File.Rdev)
		e.String(w.File.Target)
		e.U32(w.UID)
		e.U32(w.GID)
		e.U32(w.Gen)
		e.U8(uint8(w.Open))
		e.U64(w.Handle)
		if e.Bool(w.Dirty); w.Dirty {
			encChange(e, &w.Change)
		}
	}
}

func decDeferred(d *wire.Dec, w *Deferred) {
	w.Kind = DeferredKind(d.U8())
	w.Dir = Ino(d.U64())
	w.Name = d.String(NameMax)
	w.Ino = Ino(d.U64())
	w.At.Decode(d)
	switch w.Kind {
	case DeferTouch:
	case DeferRemove:
		w.File.Type = Type(d.U8())
	case DeferMake:
		w.File.Type = Type(d.U8())
		w.File.Mode = d.U32()
		w.File.Rdev = d.U32()
		w.File.Target = d.String(SymlinkMax)
		w.UID, w.GID, w.Gen = d.U32(), d.U32(), d.U32()
		w.Open = OpenFlags(d.U8())
		w.Handle = d.U64()
		if w.Dirty = d.Bool(); w.Dirty {
			decChange(d, &w.Change)
		}
	default:
		d.Fail("an unknown kind of operation")
	}
}

// Append encodes something that was done, as TellMany sends it.
func (w *Deferred) Append(e *wire.Enc) { encDeferred(e, w) }

// Decode is the inverse of Append.
func (w *Deferred) Decode(d *wire.Dec) { decDeferred(d, w) }

// encSettled: |kind u16 |lease u8 |serial u64 |.
func encSettled(e *wire.Enc, s *Settled) {
	e.U16(uint16(s.Kind))
	e.U8(uint8(s.Lease))
	e.U64(s.Serial)
}

func decSettled(d *wire.Dec, s *Settled) {
	s.Kind = errs.Kind(d.U16())
	s.Lease = LeaseMode(d.U8())
	s.Serial = d.U64()
}

var (
	argDeferred = many(func(a *Args) *[]Deferred { return &a.Deferred }, TellMax, deferredBytes,
		encDeferred, decDeferred)
	resSettled = many(func(r *Result) *[]Settled { return &r.Settled }, TellMax, settledBytes,
		encSettled, decSettled)
	argFiles = many(func(a *Args) *[]Ino { return &a.Files }, HoldMax, 8,
		func(e *wire.Enc, i *Ino) { e.U64(uint64(*i)) }, func(d *wire.Dec, i *Ino) { *i = Ino(d.U64()) })
	resFirst = u64(func(r *Result) *uint64 { return &r.First })
)
