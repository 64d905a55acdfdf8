package meta

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Service is the metadata service. It is cut into small interfaces so that a user can name what
// it needs. All methods are safe for concurrent use. Errors carry errs kinds with their POSIX
// meaning.
//
// Promises. An operation that returned survives the death of the service's process. It survives
// a power cut once Sync, a synced Commit or a synced Volumes call that began after it has
// returned; what is left after a power cut is a prefix of the operations in the order in which
// they took effect. Operations are linearizable. POSIX permission checks are made with
// Caller.Cred.
type Service interface {
	Names
	Finds
	Scans
	Dirs
	Attrs
	Accesses
	Xattrs
	Files
	Batches
	Deferrals
	Smalls
	Appends
	Locks
	Sessions
	Successions
	Leases
	Volumes
	VolumeChanges
	Quotas
	Tokens
	Members
	Denials
	ServerKeys
	Layouts
	Pools
	Cluster
	Membership
	Trees
	Upkeep
}

// Names makes and removes names. Each takes effect whole or not at all.
type Names interface {
	// Lookup finds a name in a directory; "." and ".." are names too.
	Lookup(ctx context.Context, c Caller, dir Ino, name string) (Attr, error)

	// Make creates an inode of any type but Regular, or a Regular one that is not opened.
	Make(ctx context.Context, c Caller, dir Ino, name string, f NewFile) (Attr, error)

	// Link gives a second name to what is not a directory, and a first one to what was made
	// without (OpenNameless).
	Link(ctx context.Context, c Caller, ino, dir Ino, name string) (Attr, error)

	// Remove takes a name away: isDir chooses rmdir(2) over unlink(2). An unlinked file lives on
	// while it is open. at is the time that the directory has by it, 0 where that is not known:
	// the request had been carried out before.
	Remove(ctx context.Context, c Caller, dir Ino, name string, isDir bool) (at Time, err error)

	// Rename follows renameat2(2): it replaces atomically, refuses cycles, and does nothing when
	// both names are the same inode. at is the time that both directories and what was moved have by
	// it, as for Remove.
	Rename(ctx context.Context, c Caller, dir Ino, name string, newDir Ino, newName string,
		flags RenameFlags) (at Time, err error)
}

// Finds is Lookup for clients that keep what they are told.
type Finds interface {
	// Find looks for a name in a directory; "." and ".." are names too. A name that is not there is
	// an answer, not an error.
	Find(ctx context.Context, c Caller, dir Ino, name string) (Found, error)
}

// Scans reads much of a directory at once, for clients that keep what they are told and fetch what
// programs are about to ask for.
type Scans interface {
	// Scan reads a page of a directory, with a lease on it. It waits for nobody and recalls nothing:
	// an entry whose attributes could not be told without (somebody writes the file) has none, and
	// who needs them asks for them alone. Data of small files comes with a lease only, to who may
	// read them. What ReadDir promises of pages and cookies holds here, too; a page that is not the
	// end has at least one entry.
	Scan(ctx context.Context, c Caller, dir Ino, w Scan) (Scanned, error)
}

// Dirs reads directories and links.
type Dirs interface {
	// ReadDir returns up to max entries behind the cookie (0: from the start; "." and ".." are
	// not among them). Cookies stay valid whatever happens to the directory: an entry that
	// existed all the time is returned exactly once. An empty page is the end.
	ReadDir(ctx context.Context, c Caller, dir Ino, cookie uint64, max int, withAttr bool) (
		[]Entry, error)
	ReadLink(ctx context.Context, c Caller, ino Ino) (string, error)
}

// Attrs reads and changes attributes.
type Attrs interface {
	// GetAttr is exact for all writes that I/O servers have acknowledged. It is the only operation
	// that asks I/O servers what a file with holes takes: others tell what GetAttr found out last
	// of the same data, if it did. Allocated stays unknown while a server does not answer.
	GetAttr(ctx context.Context, c Caller, ino Ino) (Attr, error)

	// SetAttr changes the fields in mask. A new size raises TruncSeq and is carried out at the
	// I/O servers before it returns; if the service dies in between it is carried out at its
	// next start.
	SetAttr(ctx context.Context, c Caller, ino Ino, mask SetMask, a Attr) (Attr, error)
}

// Xattrs keeps extended attributes.
type Xattrs interface {
	GetXattr(ctx context.Context, c Caller, ino Ino, name string) ([]byte, error)
	ListXattr(ctx context.Context, c Caller, ino Ino) ([]string, error)

	// SetXattr stores a value; create and replace demand absence and presence.
	SetXattr(ctx context.Context, c Caller, ino Ino, name string, value []byte,
		create, replace bool) error
	RemoveXattr(ctx context.Context, c Caller, ino Ino, name string) error
}

// Files opens and closes.
type Files interface {
	// Create makes and opens a file in one step and contacts no I/O server. Without
	// OpenExclusive an existing file is opened. With OpenNameless the name is empty: the file has
	// none, counts in the directory's quota, and is gone with its last handle, unless Link has given
	// it a name before.
	Create(ctx context.Context, c Caller, dir Ino, name string, f NewFile, flags OpenFlags) (
		Handle, error)

	Open(ctx context.Context, c Caller, ino Ino, flags OpenFlags) (Handle, error)

	// Commit tells what a writer has done. With sync it is, and everything before it, on stable
	// storage when it returns. The caller's session must have the file open for writing
	// (errs.Closed).
	Commit(ctx context.Context, c Caller, w Change, sync bool) (Attr, error)

	// Renew signs fresh capabilities for open handles of the caller's session. A handle that is
	// not known any more has no Caps in the answer.
	Renew(ctx context.Context, c Caller, handles []uint64) ([]Handle, error)

	// Close ends a handle, with Commit's treatment of what was written in the same step. Where that
	// is refused (errs.Fenced) the handle stays open. A Close of HandleOf an opening's request id
	// that carries that id itself takes the opening back: whether it was done or is still on its way,
	// it leaves no handle. It succeeds if there is none.
	Close(ctx context.Context, c Caller, w Closing) error
}

// Batches closes files in batches.
type Batches interface {
	// CloseMany closes up to CloseMax handles in few steps. The answer has what Close would have
	// returned for each. An error means that some may be closed, and that it may be repeated.
	CloseMany(ctx context.Context, c Caller, list []Closing) ([]Ended, error)
}

// Ended is what came of one of many closings.
type Ended struct {
	Kind errs.Kind

	// Version is the data version that telling what was written has made of the one before it, so that
	// the caller knows of each version whether it is its own. 0: nothing was told, or a repetition
	// cannot say any more.
	Version uint64
}

// Small files. A regular file is born small: its data, at most SmallMax bytes, lies with its
// metadata. Only the holder of LeaseWrite changes it (Commit, Close). Before the file grows, gets a
// hole, or is written by a second client, it is moved out: the holder of LeaseWrite writes all of
// its data to the I/O servers, syncs it there, and then calls MoveOut. A file never becomes small
// again.
type Smalls interface {
	// ReadSmall returns the data of a small file. errs.Invalid: it is not small (any more). The
	// caller must be allowed to read, or its session have the file open.
	ReadSmall(ctx context.Context, c Caller, ino Ino) (Attr, SmallData, error)

	// MoveOut says that the I/O servers have the data that Change describes, which began with the
	// stored data of dataVersion. Change.Epoch is required. A file that is moved out already stays as
	// it is, with success.
	MoveOut(ctx context.Context, c Caller, w Change, dataVersion uint64) (Attr, error)
}

// Appends lets several clients append to one file.
type Appends interface {
	// Append reserves the next n bytes at the end of a file for a handle that is open for writing,
	// and tells where they begin: behind everything that I/O servers have acknowledged and behind
	// all other reservations, so that appends of several clients never meet. The size of the file
	// does not change by it, the write into the reserved range does that. A truncation voids all
	// reservations; the answer's TruncSeq tells which ones the reservation knows of. With n 0 the
	// handle gives its latest reservation back: one that it will certainly never write into. That
	// has an effect unless something was reserved behind it. A handle has one reservation under
	// way at a time.
	Append(ctx context.Context, c Caller, handle uint64, n int64) (int64, Attr, error)

	// Appended says that the I/O servers have what the handle's latest reservation is for, or that
	// nobody knows. Until then the size that others are told ends before the reservation. It returns
	// when the same is said of all earlier reservations, or LeaseTime is over since they were made: an
	// append that has returned lies behind no zeroes that somebody else is about to fill. A session
	// that holds LeaseWrite need not say it.
	Appended(ctx context.Context, c Caller, handle uint64) error
}

// Sessions keeps track of living clients. A session that is not kept alive for its lease ends: its
// handles are closed, and what it had open for writing is measured again at the I/O servers.
// Sessions of one name are sessions of one client, which has replaced the ones that it lost: names
// must be unique.
type Sessions interface {
	NewSession(ctx context.Context, client string) (SessionInfo, error)
	KeepAlive(ctx context.Context, session uint64) error
	EndSession(ctx context.Context, session uint64) error

	// EndClient ends all sessions of a client by the name that it gave to NewSession. It is for who
	// knows that the client is dead and can write nothing any more: its handles are closed at once,
	// without waiting until its capabilities have run out. A client whose process the service itself
	// sees alive is errs.Perm, one that was heard of a moment ago errs.Again.
	EndClient(ctx context.Context, client string) error

	// Sync makes every operation that returned before durable.
	Sync(ctx context.Context) error
}

// Successions are for a client whose process has died and runs again: it begins a new session under
// the name that it had, and takes over what the session of the dead process has.
type Successions interface {
	// Succeed says that the process behind old, a session of the same client as the caller's, is dead
	// and will write nothing any more. From then on old is refused (errs.Stale) and has no leases, but
	// its handles stay open, so that files without a name are there to be opened again, and so do its
	// locks, until they are claimed (ClaimLocks). With done the caller has opened what it needs:
	// handles of old are closed, and locks that were not claimed are released. Without it that happens
	// when the last capability of old has run out. errs.NotFound: there is no such session any more.
	// errs.Perm: it belongs to another client.
	Succeed(ctx context.Context, c Caller, old uint64, done bool) error

	// HeldLocks lists what the caller's session has locked, up to LockClaimMax of it, in the order of
	// inode, kind, owner and first byte, behind the given lock; the zero Lock stands before all. An
	// empty page is the end.
	HeldLocks(ctx context.Context, c Caller, after Lock) ([]Lock, error)
}

// Leases let clients answer by themselves. A session that has listened once gets leases on inodes
// with the answers to requests that ask for them (Caller.Leases). Before an operation of another
// session takes effect that contradicts a lease, the service recalls it, and waits until the client
// has said that it does not use it any more; at most LeaseTime (SessionInfo), after which the lease
// has run out. A session's own operations leave its leases alone: it learns their effect from the
// answers.
//
// All leases of a session are valid until LeaseTime after the client has sent the last Listen that
// was answered with Extended, by the client's own steady clock. While a client owes an answer to a
// recall that it was told of, nothing is extended.
//
// Grants and recalls are numbered, in one order, which goes on with higher numbers after a restart.
// A client uses no answer whose Serial is not above that of the last recall of the inode, and above
// the last Epoch that it has heard; nor an answer that may be older than a change of its own.
//
// Leases are not kept over a restart of the service. A client that hears of another Life drops all
// leases and claims the files that it has open. Until all sessions that were there before have done
// so, or LeaseTime is over, operations that change something wait. Handles of a session that has
// not claimed them are not known yet: whoever names one, or commits, gets errs.Again.
type Leases interface {
	// Listen renews the session and its leases, acknowledges recalls, and returns recalls that the
	// client has not seen. It waits for them for a while. It may be repeated freely, and several may
	// be under way.
	Listen(ctx context.Context, l Listening) (Heard, error)

	// Claim names handles that the session had open in earlier lives of the service. The list may
	// come in parts, the last one says so. errs.Conflict: the service lives another life than the
	// given one.
	Claim(ctx context.Context, session uint64, life uint32, list []Claimed, last bool) (
		[]Regained, error)
}

// Volumes keeps block devices. Changes are durable on return. A volume is open for writing by one
// client at a time, unless all of them say OpenShared; to others opening it is errs.Busy. Only who
// wrote can send again what a server lost before it was synced, so only with a single writer does a
// sync cover all writes that are not durable.
type Volumes interface {
	CreateVolume(ctx context.Context, c Caller, name string, size int64, f NewFile) (Volume, error)

	// ListVolumes returns up to max volumes (VolumePageMax at the most) in the order of their names,
	// beginning with the name from, or with the next one if there is no such volume. An empty page is
	// the end; the next page begins with NextVolume of the last one.
	ListVolumes(ctx context.Context, c Caller, from string, max int) ([]Volume, error)
	RemoveVolume(ctx context.Context, c Caller, name string) error

	// OpenVolume opens a volume. Who writes gets a generation of writers, Handle.Epoch: a new one,
	// unless he has it open already, or again. Before he is answered every I/O server that holds a
	// part of the volume refuses all earlier generations, durably: nothing of them is under way any
	// more, and one that is away is waited for. epoch, if not 0, is the generation that a client had
	// in a session that it has lost, and has again; errs.Fenced: there was another writer since.
	//
	// Who shares the volume begins a new generation too, whether he joins others or joins them again,
	// so that nothing lands later which a dead client had under way. The others stay what they are.
	// Their requests are refused once, as those of an earlier generation; their handles are open, and
	// Renew gives them the present one.
	OpenVolume(ctx context.Context, c Caller, name string, flags OpenFlags, epoch uint32) (
		Volume, Handle, error)
}

// VolumeChanges changes volumes that may be in use, and tells who uses them.
type VolumeChanges interface {
	// ResizeVolume gives a volume another size. What lies behind a smaller one is gone, so that
	// shrink must say that this is meant (errs.Invalid), and nobody may write to it (errs.Busy). It
	// grows while it is used: AwaitVolume tells.
	ResizeVolume(ctx context.Context, c Caller, name string, size int64, shrink bool) (Volume, error)

	// HandOver asks whoever writes to a volume to give it up, which AwaitVolume tells him, and
	// returns at once. force: he is not asked. When it returns without an error all that he still
	// sends is refused at every I/O server, durably.
	HandOver(ctx context.Context, c Caller, name string, force bool) (Volume, error)

	// AwaitVolume returns what is known of a volume as soon as it differs from what the caller has
	// seen, or after wait, which may be shortened to VolumeAwaitMax. errs.NotFound: it is gone.
	AwaitVolume(ctx context.Context, c Caller, name string, seen VolumeState, wait time.Duration) (
		Volume, error)
}

// Cluster keeps the I/O servers.
type Cluster interface {
	// Join announces a server and is repeated as its heartbeat; see Membership. mac proves knowledge
	// of the server's key. A server chooses an incarnation above the one that Servers tells of it.
	// errs.Stale: a later start of it was heard of, or another process has chosen the same one.
	// errs.NotFound: it was removed, and has not been started since.
	Join(ctx context.Context, s Server, mac [32]byte) error
	Servers(ctx context.Context) ([]Server, error)

	// StatFS tells the room of all servers that are up; for an inode whose policy names a pool that of
	// the pool's. Free is what new files can have: a server that gets none, because it is nearly full,
	// has nothing free. For an inode that belongs to a tree with a quota it is what the tree has left.
	// An inode that does not exist has neither.
	StatFS(ctx context.Context, ino Ino) (FSStat, error)

	// Time is the clock by which the service measures capabilities. It is not set while the service
	// runs, and what it shows need not be the time of day.
	Time(ctx context.Context) (time.Time, error)
}

// Objects is what the service needs of the I/O servers: given to it by whoever starts it. All
// methods are idempotent and may take as long as a server that restarts.
type Objects interface {
	// Measure returns the smallest file size that the stripe objects imply.
	Measure(ctx context.Context, f FileRef) (int64, error)

	// Truncate brings all stripe objects to what size means for them, with f.TruncSeq. errs.Stale: a
	// later truncation was there before.
	Truncate(ctx context.Context, f FileRef, size int64) error

	// Remove forgets one stripe object of the file's generation and everything before it. Stripes are
	// removed one by one, so that a server that is away keeps nobody from removing the others.
	Remove(ctx context.Context, f FileRef, stripe int) error
}

// WriterFencer is what Objects may offer besides: to keep deposed writers off.
type WriterFencer interface {
	// FenceWriters has every server of the file refuse writers of epochs below the given one, durably.
	// errs.Stale: one of them refuses this epoch already.
	FenceWriters(ctx context.Context, f FileRef, epoch uint32) error
}

// Allocator is what Objects may offer besides: to tell the space of files that have holes.
type Allocator interface {
	// Allocated returns the bytes of space that the stripe objects take, data that their servers
	// have acknowledged and not written yet included.
	Allocated(ctx context.Context, f FileRef) (int64, error)
}

// Collector is what Objects may offer besides: to find and remove objects that no file names.
type Collector interface {
	// ListObjects returns a page of the objects of a server, in order, behind one; none: there are
	// no more.
	ListObjects(ctx context.Context, server uint32, after ObjectRef) ([]ObjectRef, error)
	RemoveObject(ctx context.Context, server uint32, o ObjectRef) error
}
