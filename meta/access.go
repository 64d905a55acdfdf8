package meta

import (
	"context"

	"github.com/sluice-storage/sluice/wire"
)

// AccessMax is how many accesses one Accessed tells at most.
const AccessMax = 1024

// Access says that an inode was read at At, by who took Was for its time of access before that.
type Access struct {
	Ino     Ino
	Was, At Time

	// Relative: it counts only where AccessDue says so of the inode as the service knows it.
	Relative bool
}

// Accesses keeps the times at which inodes were read. Clients read without asking: they tell that
// when they like, of many inodes at once.
type Accesses interface {
	// Accessed brings times of access up to what clients say, up to AccessMax of them. One that is
	// not Was any more goes forward only, and stays where it was set back behind Was. What is gone,
	// or may not be read by the caller, is passed over. Nothing is recalled because of it, and
	// nothing else of the inode changes: so a time of access is as late in other clients as
	// their leases are old.
	Accessed(ctx context.Context, c Caller, list []Access) error
}

// day is the age at which a time of access is brought up to date whatever else there is.
const day = 24 * 60 * 60

// AccessDue tells whether an access at a time is to be noted, where the time of access need only
// tell whether something was read since it was changed, and to about a day (relatime).
func AccessDue(atime, mtime, ctime, at Time) bool {
	return !atime.After(mtime) || !atime.After(ctime) || atime.Before(Time{at.Sec - day + 1, 0})
}

// Meets tells whether an access changes the time of access of an inode with attributes.
func (x *Access) Meets(a *Attr) bool {
	newer := a.Atime == x.Was && a.Atime != x.At || a.Atime.After(x.Was) && a.Atime.Before(x.At)
	return newer && (!x.Relative || AccessDue(a.Atime, a.Mtime, a.Ctime, x.At))
}

// accessBytes is the size of an encoded Access.
const accessBytes = 8 + 2*TimeBytes + 1

// encAccess: |ino u64 |was |at |relative u8 |.
func encAccess(e *wire.Enc, x *Access) {
	e.U64(uint64(x.Ino))
	x.Was.Append(e)
	x.At.Append(e)
	e.Bool(x.Relative)
}

func decAccess(d *wire.Dec, x *Access) {
	x.Ino = Ino(d.U64())
	x.Was.Decode(d)
	x.At.Decode(d)
	x.Relative = d.Bool()
}

var argAccesses = many(func(a *Args) *[]Access { return &a.Accesses }, AccessMax, accessBytes,
	encAccess, decAccess)
