package store

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// Access control lists look like extended attributes to programs. They lie in the inode: every
// permission check needs them, and mode and list change together or not at all.

func isACL(name string) bool { return name == acl.Access || name == acl.Default }

// listOf is where an inode keeps the list of a name.
func (n *inode) listOf(name string) *acl.List {
	if name == acl.Default {
		return &n.Default
	}
	return &n.ACL
}

// checkACL says who may use a list: everybody may read it, as a mode. Links have none, and only
// directories pass one on.
func checkACL(c *meta.Cred, n *inode, name string, write bool) error {
	switch {
	case n.Type == meta.Symlink:
		return errs.Unsupported
	case write && !isOwner(c, n):
		return errs.Perm
	case write && name == acl.Default && !n.isDir():
		return errs.Access
	}
	return nil
}

// getACL is the list that a name stands for.
func (n *inode) getACL(name string) ([]byte, error) {
	l := *n.listOf(name)
	if l == "" {
		return nil, errs.NoData
	}
	return []byte(l), nil
}

// setACL gives an inode a list. The permission bits of its mode become those of the list, and one
// that says no more than they do is not kept. The set-group-id bit goes where chmod(2) would take
// it. A list without entries is removed.
func (t *txn) setACL(c *meta.Cred, ino meta.Ino, n *inode, name string, value []byte,
	create, replace bool) error {

	at := n.listOf(name)
	switch {
	case create && *at != "":
		return errs.Exists
	case replace && *at == "":
		return errs.NoData
	}
	l, err := acl.Parse(value)
	if err != nil {
		return err
	}
	if l == "" {
		t.unsetACL(ino, n, name)
		return nil
	}
	if name == acl.Access {
		n.Mode = n.Mode&^permMask | l.Mode()
		if !isRoot(c) && !inGroup(c, n.GID) {
			n.Mode &^= setGID
		}
		if !l.Extended() {
			l = ""
		}
	}
	*at = l
	n.Ctime = t.now
	t.putInode(ino, n)
	return nil
}

// unsetACL takes a list away. The mode stays, so that what was the mask's is the group's. That
// there was none is fine, as in Linux.
func (t *txn) unsetACL(ino meta.Ino, n *inode, name string) {
	*n.listOf(name) = ""
	n.Ctime = t.now
	t.putInode(ino, n)
}

// capabilities is the attribute by which a program runs with rights that its user lacks.
const capabilities = "security.capability"

// dropCapabilities takes them from a file whose content or owner changes, whoever changes it.
func (t *txn) dropCapabilities(ino meta.Ino, n *inode) error {
	if !n.has(flagWithXattr) || n.isDir() {
		return nil
	}
	key := xattrKey(ino, capabilities)
	old, err := t.read(key)
	if err != nil || old == nil {
		return err
	}
	t.remove(key)
	t.add(xattrBytesKey(ino), -xattrBytes(capabilities, old))
	return nil
}
