package meta

import "context"

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
	Dirs
	Attrs
	Xattrs
	Files
	Sessions
	Volumes
	Cluster
}

// Names makes and removes names. Each takes effect whole or not at all.
type Names interface {
	// Lookup finds a name in a directory; "." and ".." are names too.
	Lookup(ctx context.Context, c Caller, dir Ino, name string) (Attr, error)

	// Make creates an inode of any type but Regular, or a Regular one that is not opened.
	Make(ctx context.Context, c Caller, dir Ino, name string, f NewFile) (Attr, error)

	// Link gives a second name to what is not a directory.
	Link(ctx context.Context, c Caller, ino, dir Ino, name string) (Attr, error)

	// Remove takes a name away: isDir chooses rmdir(2) over unlink(2). An unlinked file lives on
	// while it is open.
	Remove(ctx context.Context, c Caller, dir Ino, name string, isDir bool) error

	// Rename follows renameat2(2): it replaces atomically, refuses cycles, and does nothing when
	// both names are the same inode.
	Rename(ctx context.Context, c Caller, dir Ino, name string, newDir Ino, newName string,
		flags RenameFlags) error
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
	// GetAttr is exact for all writes that I/O servers have acknowledged.
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
	// OpenExclusive an existing file is opened.
	Create(ctx context.Context, c Caller, dir Ino, name string, f NewFile, flags OpenFlags) (
		Handle, error)

	Open(ctx context.Context, c Caller, ino Ino, flags OpenFlags) (Handle, error)

	// Commit tells what a writer has done: the file is at least size bytes long (as of truncSeq;
	// ignored when the file was truncated since), its data changed at mtime. With sync it is,
	// and everything before it, on stable storage when it returns.
	Commit(ctx context.Context, c Caller, ino Ino, size int64, truncSeq uint64, mtime int64,
		sync bool) (Attr, error)

	// Renew signs fresh capabilities for open handles of the caller's session. A handle that is
	// not known any more has no Caps in the answer.
	Renew(ctx context.Context, c Caller, handles []uint64) ([]Handle, error)

	// Close ends a handle. dirty demands Commit's treatment of size and mtime in the same step.
	Close(ctx context.Context, c Caller, handle uint64, dirty bool, size int64, truncSeq uint64,
		mtime int64) error
}

// Sessions keeps track of living clients. A session that is not kept alive for its lease ends: its
// handles are closed, and what it had open for writing is measured again at the I/O servers.
type Sessions interface {
	NewSession(ctx context.Context, client string) (SessionInfo, error)
	KeepAlive(ctx context.Context, session uint64) error
	EndSession(ctx context.Context, session uint64) error

	// Sync makes every operation that returned before durable.
	Sync(ctx context.Context) error
}

// Volumes keeps block devices. Changes are durable on return.
type Volumes interface {
	CreateVolume(ctx context.Context, c Caller, name string, size int64, f NewFile) (Volume, error)
	ListVolumes(ctx context.Context, c Caller) ([]Volume, error)
	RemoveVolume(ctx context.Context, c Caller, name string) error
	OpenVolume(ctx context.Context, c Caller, name string, flags OpenFlags) (Volume, Handle, error)
}

// Cluster keeps the I/O servers.
type Cluster interface {
	// Join announces a server and is repeated as its heartbeat. mac proves knowledge of the
	// server's key.
	Join(ctx context.Context, s Server, mac [32]byte) error
	Servers(ctx context.Context) ([]Server, error)
	StatFS(ctx context.Context) (FSStat, error)
}

// Objects is what the service needs of the I/O servers: given to it by whoever starts it. All
// methods are idempotent and may take as long as a server that restarts.
type Objects interface {
	// Measure returns the smallest file size that the stripe objects imply.
	Measure(ctx context.Context, f FileRef) (int64, error)

	// Truncate brings all stripe objects to what size means for them, with f.TruncSeq.
	Truncate(ctx context.Context, f FileRef, size int64) error

	// Remove forgets all stripe objects of the file's generation and everything before it.
	Remove(ctx context.Context, f FileRef) error
}

// Collector is what Objects may offer besides: to find and remove objects that no file names.
type Collector interface {
	// ListObjects returns a page of the objects of a server, in order, behind one; none: there are
	// no more.
	ListObjects(ctx context.Context, server uint32, after ObjectRef) ([]ObjectRef, error)
	RemoveObject(ctx context.Context, server uint32, o ObjectRef) error
}
