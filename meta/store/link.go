package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Link implements meta.Names. A repetition is answered with the inode as it is now.
func (s *Store) Link(ctx context.Context, c meta.Caller, ino, dir meta.Ino, name string) (
	meta.Attr, error) {

	var a meta.Attr
	var cookie meta.Ino
	err := checkCaller(&c)
	if err == nil {
		err = checkName(name)
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	if err == nil {
		_, err = s.update(ctx, &c, func(t *txn) error {
			n, err := t.link(&c.Cred, ino, dir, name)
			if err != nil {
				return err
			}
			if err := s.number(ctx, &cookie); err != nil {
				return err
			}
			t.putInode(ino, n)
			t.enter(dir, name, &entry{Type: n.Type, Ino: ino, Cookie: uint64(cookie)}, true)
			return nil
		})
	}
	if err == nil {
		a, err = s.tell(ctx, &c, ino)
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.Link", name, err)
	}
	return a, nil
}

// link checks everything and returns the inode with one link more.
func (t *txn) link(c *meta.Cred, ino, dir meta.Ino, name string) (*inode, error) {
	n, err := t.inode(ino)
	if err != nil {
		return nil, err
	}
	d, err := t.dir(dir, c, maySeek)
	if err != nil {
		return nil, err
	}
	old, err := t.entry(dir, name)
	switch {
	case err != nil:
		return nil, err
	case old != nil || isDots(name):
		return nil, errs.Exists
	case !allowed(c, d, mayWrite):
		return nil, errs.Access
	case n.isDir() || n.has(flagVolume):
		return nil, errs.Perm
	case n.Nlink == 0 && !n.has(flagNameless): // an orphan: as in link(2), no way back to a name
		return nil, errs.NotFound
	case n.Nlink >= meta.LinkMax:
		return nil, errs.TooManyLinks
	}
	n.Nlink++
	n.Ctime = t.now
	if n.has(flagNameless) {
		n.homes.only(dir)
		return n, t.firstName(ino, n, d)
	}
	n.homes.add(dir)
	return n, t.linkTree(n, d)
}
