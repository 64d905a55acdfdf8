package meta

// Grounds is what a guard needs to know of the service that it stands before (see package guard).
// It is answered from records and memory alone: nothing of it waits for leases, for clients or for
// the end of a grace time, because clients that claim what they had open pass the guard, too.
type Grounds interface {
	// Resolve finds a directory by its path from the root: names with slashes between them, of which
	// none is a symbolic link. errs.NotFound and errs.NotDir are what they always are.
	Resolve(path string) (Ino, error)

	// Stand tells where an inode is, seen from a directory: errs.NotFound if there is none.
	Stand(top, ino Ino) (Standing, error)

	// Peek returns the stored attributes of an inode. Nothing is measured.
	Peek(ino Ino) (Attr, error)

	// Opener tells on whose behalf an inode is open by a client whose name begins so: of one who
	// writes, if there is one.
	Opener(ino Ino, prefix string) (uid uint32, open bool)

	// ClientOf is the name that a session's client gave itself; known is false for a session that is
	// not there any more.
	ClientOf(session uint64) (name string, known bool)
}

// Standing is where an inode is.
type Standing uint8

// The standings.
const (
	Outside   Standing = iota // of the tree
	Inside                    // it is the top, or has a name below it
	Scattered                 // none of the names that are known is inside, and not all are known
	IsVolume                  // it has no place in any tree
)

// HomesMax is in how many directories an inode may have names that are known. One with names in
// more is Scattered, seen from where it has others.
const HomesMax = 8
