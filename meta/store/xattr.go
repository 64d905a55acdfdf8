package store

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// xattrRule says who may use the attributes whose names start with prefix.
type xattrRule struct {
	prefix string
	check  func(c *meta.Cred, n *inode, write bool) error
}

// The name spaces of xattr(7). For access control lists see acl.go.
var xattrRules = []xattrRule{
	{"user.", func(c *meta.Cred, n *inode, write bool) error {
		want := uint32(mayRead)
		switch {
		case n.Type != meta.Regular && !n.isDir():
			return refused(write)
		case write && n.isDir() && n.Mode&sticky != 0 && !isOwner(c, n):
			return errs.Perm
		case write:
			want = mayWrite
		}
		if !allowed(c, n, want) {
			return errs.Access
		}
		return nil
	}},
	{"trusted.", func(c *meta.Cred, _ *inode, write bool) error {
		if !isRoot(c) {
			return refused(write)
		}
		return nil
	}},
	{"security.", func(c *meta.Cred, _ *inode, write bool) error {
		if write && !isRoot(c) {
			return errs.Perm
		}
		return nil
	}},
}

// refused: writers are told that they may not, readers that there is nothing.
func refused(write bool) error {
	if write {
		return errs.Perm
	}
	return errs.NoData
}

func checkXattr(c *meta.Cred, n *inode, name string, write bool) error {
	switch {
	case len(name) > meta.XattrName:
		return errs.OutOfRange
	case strings.IndexByte(name, 0) >= 0:
		return errs.Invalid
	}
	if isACL(name) {
		return checkACL(c, n, name, write)
	}
	for _, r := range xattrRules {
		if strings.HasPrefix(name, r.prefix) {
			if len(name) == len(r.prefix) {
				return errs.Invalid
			}
			return r.check(c, n, write)
		}
	}
	return errs.Unsupported
}

// GetXattr implements meta.Xattrs.
func (s *Store) GetXattr(_ context.Context, c meta.Caller, ino meta.Ino, name string) (
	[]byte, error) {

	var value []byte
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if err := checkXattr(&c.Cred, n, name, false); err != nil {
			return err
		}
		if isACL(name) {
			value, err = n.getACL(name)
			return err
		}
		if layout.IsAttr(name) {
			value, err = s.getPolicy(n, name)
			return err
		}
		if strings.HasPrefix(name, hint.Prefix) {
			text, ok := n.Hints.Get(name)
			if value = []byte(text); !ok {
				return errs.NoData
			}
			return nil
		}
		key := xattrKey(ino, name)
		stored, err := t.read(key)
		if err != nil {
			return err
		}
		if stored == nil {
			return errs.NoData
		}
		var x xattr
		err = parse(key, stored, &x)
		value = x.Value
		return err
	})
	return value, errs.Wrap("meta.GetXattr", name, err)
}

// ListXattr implements meta.Xattrs. It leaves out names that the caller must not read, and hints
// that have their default values, so that a copy of a file gets the attributes that somebody set.
func (s *Store) ListXattr(_ context.Context, c meta.Caller, ino meta.Ino) ([]string, error) {
	var names []string
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		names = append(n.Hints.Changed(&hint.Hints{}), s.policyNames(n)...)
		for _, name := range []string{acl.Access, acl.Default} {
			if *n.listOf(name) != "" {
				names = append(names, name)
			}
		}
		return t.scan(xattrsOf(ino), func(key, _ []byte) bool {
			name := string(key[9:])
			if isRoot(&c.Cred) || !strings.HasPrefix(name, "trusted.") {
				names = append(names, name)
			}
			return true
		})
	})
	return names, errs.Wrap("meta.ListXattr", "", err)
}

// SetXattr implements meta.Xattrs. It writes the inode too (ctime), so that whoever removes the
// inode knows of the attribute.
func (s *Store) SetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string,
	value []byte, create, replace bool) error {

	if len(value) > meta.XattrValue {
		return errs.New(errs.TooBig, "meta.SetXattr", name, nil)
	}
	err := s.relay(ctx, &c, ino, func(t *txn, n *inode) error {
		if err := checkXattr(&c.Cred, n, name, true); err != nil {
			return err
		}
		if layout.IsAttr(name) {
			return s.setPolicyXattr(t, &c, ino, n, name, string(value), create, replace)
		}
		if isACL(name) {
			return t.setACL(&c.Cred, ino, n, name, value, create, replace)
		}
		if strings.HasPrefix(name, hint.Prefix) {
			return t.setHint(ino, n, name, string(value), create, replace)
		}
		old, err := t.read(xattrKey(ino, name))
		switch {
		case err != nil:
			return err
		case create && old != nil:
			return errs.Exists
		case replace && old == nil:
			return errs.NoData
		}
		if err := t.xattrRoom(ino, name, value, old); err != nil {
			return err
		}
		n.Ctime = t.now
		n.Flags |= flagWithXattr
		t.putInode(ino, n)
		t.put(xattrKey(ino, name), (&xattr{value}).encode())
		return nil
	})
	return errs.Wrap("meta.SetXattr", name, err)
}

// setHint changes a hint. They lie in the inode, so that whoever opens the file is told them with
// its handle, and whoever makes one in a directory finds what it begins with.
func (t *txn) setHint(ino meta.Ino, n *inode, name, value string, create, replace bool) error {
	set := slices.Contains(n.Hints.Changed(&hint.Hints{}), name)
	switch {
	case create && set:
		return errs.Exists
	case replace && !set:
		return errs.NoData
	}
	if err := n.Hints.Set(name, value); err != nil {
		return err
	}
	n.Ctime = t.now
	t.putInode(ino, n)
	return nil
}

// unsetHint makes a hint the default again.
func (t *txn) unsetHint(ino meta.Ino, n *inode, name string) error {
	if !slices.Contains(n.Hints.Changed(&hint.Hints{}), name) {
		return errs.NoData
	}
	if err := n.Hints.Unset(name); err != nil {
		return err
	}
	n.Ctime = t.now
	t.putInode(ino, n)
	return nil
}

// xattrShift is where the bytes of values begin in 'Y'; those of names are below.
const xattrShift = 24

// xattrBytes is what one stored attribute counts in 'Y'; absent ones count nothing.
func xattrBytes(name string, stored []byte) int64 {
	if stored == nil {
		return 0
	}
	return int64(len(stored)-1)<<xattrShift + int64(len(name)+1)
}

// xattrRoom keeps the names within what listxattr(2) can return, and the values within a bound.
// Whoever changes attributes writes the inode, so the sum does not change before the commit.
func (t *txn) xattrRoom(ino meta.Ino, name string, value, old []byte) error {
	key := xattrBytesKey(ino)
	stored, err := t.peek(key)
	if err != nil {
		return err
	}
	delta := xattrBytes(name, (&xattr{value}).encode()) - xattrBytes(name, old)
	total := counter(stored) + delta
	if delta > 0 && (total&(1<<xattrShift-1) > xattrsMax || total>>xattrShift > valuesMax) {
		return errs.NoSpace
	}
	t.add(key, delta)
	return nil
}

// RemoveXattr implements meta.Xattrs.
func (s *Store) RemoveXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string) error {
	err := s.relay(ctx, &c, ino, func(t *txn, n *inode) error {
		t.kv.MakesRoom = true
		if err := checkXattr(&c.Cred, n, name, true); err != nil {
			return err
		}
		if layout.IsAttr(name) {
			return s.unsetPolicyXattr(t, &c, ino, n, name)
		}
		if isACL(name) {
			t.unsetACL(ino, n, name)
			return nil
		}
		if strings.HasPrefix(name, hint.Prefix) {
			return t.unsetHint(ino, n, name)
		}
		key := xattrKey(ino, name)
		old, err := t.read(key)
		if err != nil {
			return err
		}
		if old == nil {
			return errs.NoData
		}
		n.Ctime = t.now
		t.putInode(ino, n)
		t.remove(key)
		t.add(xattrBytesKey(ino), -xattrBytes(name, old))
		return nil
	})
	return errs.Wrap("meta.RemoveXattr", name, err)
}
