package meta

import (
	"context"
	"time"
)

// Trees removes whole trees.
type Trees interface {
	// RemoveTree takes a name away with all that is below it, as rm -r would. What is no directory is
	// unlinked. Of a directory the name is gone when it returns, in one step; what was below it is
	// removed in the background, also after a restart. Until the background work has come to them,
	// directories below the one that was named can be used by who knows their inodes; what is made
	// there is removed too, what is moved out of there stays. Files that are open live on until they
	// are closed; files with names elsewhere keep those.
	//
	// Rights are looked at before anything changes, as of one moment: the caller needs what Remove
	// demands for the name itself, and must be allowed to read, write and search every directory in
	// the tree that is not empty (else errs.Access), whoever owns the files in it. In a sticky
	// directory that is not the caller's every entry must be (else errs.Perm). It is all or nothing,
	// where rm -r would have removed a part.
	RemoveTree(ctx context.Context, c Caller, dir Ino, name string) error
}

// Upkeep is what administrators need: the caller must be root or own the root directory, else
// errs.Perm. Both operations work by pages, so that no request takes long and no side needs memory
// for more than a page; what a run needs between its pages is kept by the service for UpkeepIdle
// after the last one, and not across its restarts.
type Upkeep interface {
	// Check does the next step of a run that compares all records with each other, and with the
	// objects of the I/O servers that are up. The caller chooses the number of the run and counts the
	// steps from 0; the latest step may be repeated. There is one run at a time (else errs.Busy);
	// errs.Stale means that the service does not know the run: begin another one.
	//
	// A finding was seen twice: once in the run's view of the store, which is of one moment, and
	// again in what was there later. With Repair it is repaired where that loses nothing.
	Check(ctx context.Context, c Caller, s CheckStep) (CheckPage, error)

	// Dump returns a page of all records behind a key, as they were when the view was begun. The
	// caller chooses the number of the view and begins it by asking for what is behind no key.
	// errs.Stale means that the service does not know the view: begin another one. There are at most
	// ViewsMax views at a time (else errs.Busy).
	Dump(ctx context.Context, c Caller, view uint64, after []byte) (DumpPage, error)
}

// Limits of Upkeep.
const (
	FindingsMax  = 256     // of one page
	DumpKeyMax   = 1 << 10 // bytes of a key
	DumpPageMax  = 1 << 20 // bytes of the records of a page
	CheckStepMax = 1 << 16 // records of one step
	ViewsMax     = 4

	UpkeepIdle = 2 * time.Minute
)

// CheckStep says what a step of a check is to do.
type CheckStep struct {
	Run    uint64 // not 0
	Step   uint64 // 0 begins the run
	Repair bool   // of the whole run
	Max    uint32 // how many records to look at, at most CheckStepMax; 0: that many
}

// CheckPage is what a step has found.
type CheckPage struct {
	Stage    string // what is looked at now
	Stages   uint32 // how many stages there are
	At       uint32 // which of them it is, from 0
	Looked   uint64 // records and objects that the run has looked at so far
	End      bool   // the run is over
	Findings []Finding
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind   FindingKind
	State  FindingState
	Ino    Ino
	Dir    Ino    // of a name
	Name   string // of an entry, an attribute or a volume
	Server uint32 // of an object
	Text   string // what is wrong, for people
}

// FindingKind says what sort of thing is wrong.
type FindingKind string

// The kinds.
const (
	Unreadable     FindingKind = "unreadable"       // a record cannot be read
	EntryDangling  FindingKind = "entry-dangling"   // an entry whose inode is not there
	EntryMisplaced FindingKind = "entry-misplaced"  // an entry in what is no directory
	EntryType      FindingKind = "entry-type"       // an entry of another type than its inode
	EntryUnlisted  FindingKind = "entry-unlisted"   // an entry that is not listed by its cookie
	CookieStray    FindingKind = "cookie-stray"     // a cookie of no entry
	DirCount       FindingKind = "directory-count"  // a directory that counts its entries wrongly
	DirParent      FindingKind = "directory-parent" // a directory that says it is elsewhere
	Unreachable    FindingKind = "unreachable"      // a directory without a way to the root: a cycle
	LinkCount      FindingKind = "link-count"       // an inode that counts its names wrongly
	Nameless       FindingKind = "nameless"         // an inode without a name that should have one
	OrphanKept     FindingKind = "orphan-kept"      // an inode without name that nobody has open
	XattrCount     FindingKind = "xattr-count"      // attributes that are counted wrongly
	RecordStray    FindingKind = "record-stray"     // a record that belongs to no inode
	QueuedAlive    FindingKind = "queued-alive"     // an inode whose objects are about to be removed
	FileCount      FindingKind = "file-count"       // the number of all inodes
	QuotaCount     FindingKind = "quota-count"      // a quota that counts its inodes wrongly
	ObjectsMissing FindingKind = "objects-missing"  // a file whose data is not at a server that is up
	ObjectUnnamed  FindingKind = "object-unnamed"   // an object that no file names
	ObjectsLong    FindingKind = "objects-long"     // objects that reach beyond their file's size
)

// FindingState is what has become of a finding.
type FindingState uint8

// The states.
const (
	Reported FindingState = iota + 1 // repair was not asked for
	Repaired                         //
	Left                             // repair was asked for, and is not possible without loss
)

// DumpPage is a page of records.
type DumpPage struct {
	// Records is as many records as fit, in the order of their keys; package meta/dump says how they
	// are written down.
	Records []byte
	Count   uint64 // of records
	Last    []byte // the key of the last one: ask for what is behind it
	End     bool   // there are no more
	Version uint64 // of the store, the same on all pages of a view
}

// Examiner is what Objects may offer besides: to look at single stripe objects.
type Examiner interface {
	// ObjectSize returns the length of a file's stripe object, data that its server has acknowledged
	// and not written yet included; 0 if there is none.
	ObjectSize(ctx context.Context, f FileRef, stripe int) (int64, error)
}
