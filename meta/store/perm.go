package store

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// Bits of a mode, as in stat(2).
const (
	modeMask = 0o7777
	permMask = 0o0777
	setUID   = 0o4000
	setGID   = 0o2000
	sticky   = 0o1000
	groupX   = 0o0010

	mayRead  = perm.Read
	mayWrite = perm.Write
	maySeek  = perm.Search
)

func isRoot(c *meta.Cred) bool { return c.UID == 0 }

func inGroup(c *meta.Cred, gid uint32) bool { return perm.InGroup(c, gid) }

// allowed is the permission check of POSIX, as clients make it, too.
func allowed(c *meta.Cred, n *inode, want uint32) bool {
	return perm.Allowed(c, perm.Subject{Mode: n.Mode, UID: n.UID, GID: n.GID, Dir: n.isDir(),
		ACL: n.ACL}, want)
}

func isOwner(c *meta.Cred, n *inode) bool { return isRoot(c) || c.UID == n.UID }

// mayTake tells whether the caller may take the name of n out of dir, in which it may write: in a
// sticky directory only its own, or from its own directory.
func mayTake(c *meta.Cred, dir, n *inode) error {
	if dir.Mode&sticky != 0 && !isOwner(c, n) && !isOwner(c, dir) {
		return errs.Perm
	}
	return nil
}

// dropPrivileges takes the set-user-id bit, and the set-group-id bit where it means execution,
// from what is no directory and whose content or owner changes.
func dropPrivileges(n *inode) {
	if n.isDir() {
		return
	}
	n.Mode &^= setUID
	if n.Mode&groupX != 0 {
		n.Mode &^= setGID
	}
}

// inherit finishes a new inode: it belongs to the directory's quota; files and directories begin
// with the hints of the directory; in a
// set-group-id directory the group comes from the directory, and directories pass the bit on.
// Nobody makes set-group-id programs of a group that he is not in. At last the directory's default
// list, or without one the user's mask, takes rights away.
func inherit(c *meta.Cred, dir, n *inode, f *meta.NewFile) {
	inheritGroup(c, dir, n, f.Checked)
	switch {
	case n.Type == meta.Symlink:
	case dir.Default == "":
		n.Mode &^= f.Umask
	default:
		n.ACL, n.Mode = dir.Default.Inherit(n.Mode)
		if n.isDir() {
			n.Default = dir.Default
		}
	}
}

func inheritGroup(c *meta.Cred, dir, n *inode, checked bool) {
	if n.isDir() || n.Type == meta.Regular {
		n.Hints = dir.Hints
	}
	n.Quota = dir.Quota
	n.UID, n.GID = c.UID, c.GID
	if dir.Mode&setGID != 0 {
		n.GID = dir.GID
		if n.isDir() {
			n.Mode |= setGID
			return
		}
	}
	if n.Mode&(setGID|groupX) == setGID|groupX && !checked && !isRoot(c) && !inGroup(c, n.GID) {
		n.Mode &^= setGID
	}
}

func checkCaller(c *meta.Caller) error {
	if len(c.Cred.Groups) > meta.GroupsMax {
		return errs.Newf(errs.Invalid, "meta.cred", "", "%d groups, at most %d",
			len(c.Cred.Groups), meta.GroupsMax)
	}
	return nil
}
