// Package perm is the permission check of POSIX. The metadata service makes it for every request,
// and a client makes the same one where it answers from what it knows under a lease: one client
// serves several users. It knows neither records nor caches: only modes, lists, owners and groups.
package perm

import (
	"slices"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// What somebody may want to do.
const (
	Read   = 4
	Write  = 2
	Search = 1 // search a directory, execute a file
)

const (
	anyX     = 0o0111
	groupRWX = 0o0070
)

// Subject is what a check needs to know of an inode.
type Subject struct {
	Mode uint32
	UID  uint32
	GID  uint32
	Dir  bool
	ACL  acl.List
}

// Of is the subject that attributes describe.
func Of(a *meta.Attr) Subject {
	return Subject{Mode: a.Mode, UID: a.UID, GID: a.GID, Dir: a.Type == meta.Directory, ACL: a.ACL}
}

// Allowed tells whether the user may: the first of owner, group and others that fits decides, or an
// access control list for those who do not own it. Root may do everything but execute what nobody
// may. Linux does not look at a list whose mask allows nothing, and nor does this: kernels and
// clients of the library must agree.
func Allowed(c *meta.Cred, s Subject, want uint32) bool {
	if c.UID == 0 {
		return want&Search == 0 || s.Dir || s.Mode&anyX != 0
	}
	bits := s.Mode
	switch {
	case c.UID == s.UID:
		bits >>= 6
	case s.ACL != "" && s.Mode&groupRWX != 0:
		in := func(gid uint32) bool { return InGroup(c, gid) }
		return s.ACL.Allows(c.UID, s.GID, in, want)
	case InGroup(c, s.GID):
		bits >>= 3
	}
	return bits&want == want
}

// InGroup tells whether a group is one of the user's.
func InGroup(c *meta.Cred, gid uint32) bool {
	return c.GID == gid || slices.Contains(c.Groups, gid)
}
