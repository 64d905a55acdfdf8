package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Find implements meta.Finds. As with Lookup, a size that I/O servers do not tell in time is the
// last one that is known.
func (s *Store) Find(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	meta.Found, error) {

	err := checkCaller(&c)
	if err == nil {
		err = checkName(name)
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	for err == nil {
		var f meta.Found
		var ino meta.Ino
		if f.Dir, ino, f.Cookie, err = s.findIn(&c, dir, name); err != nil {
			break
		}
		if ino == 0 {
			return f, nil
		}
		// What is gone by now has lost its name: that is looked for again.
		if err = s.findInode(ctx, &c, ino, &f); errs.KindOf(err) != errs.NotFound {
			return f, errs.Wrap("meta.Find", name, err)
		}
		err = ctx.Err()
	}
	return meta.Found{}, errs.Wrap("meta.Find", name, err)
}

// findIn finds a name, with a lease on the directory; 0: there is none.
func (s *Store) findIn(c *meta.Caller, dir meta.Ino, name string) (a meta.Attr, ino meta.Ino,
	cookie uint64, err error) {

	serial := s.borrow(c, dir)
	var d *inode
	err = s.look(func(t *txn) (err error) {
		if d, err = t.dir(dir, &c.Cred, maySeek); err != nil {
			return err
		}
		if a, err = t.attr(dir, d); err != nil {
			return err
		}
		switch name {
		case ".":
			ino = dir
			return nil
		case "..":
			ino = d.Parent
			return nil
		}
		e, err := t.entry(dir, name)
		if e != nil {
			ino, cookie = e.Ino, e.Cookie
		}
		return err
	})
	if err != nil {
		if serial != 0 {
			s.leases.Release(c.Session, dir, serial)
		}
		return meta.Attr{}, 0, 0, err
	}
	s.settle(c, &a, d, serial)
	return a, ino, cookie, nil
}

// findInode tells about the inode of a name.
func (s *Store) findInode(ctx context.Context, c *meta.Caller, ino meta.Ino,
	f *meta.Found) error {

	got, err := s.lookInto(ctx, c, ino)
	if err != nil {
		return err
	}
	f.Present, f.Attr, f.Target = true, got.a, got.n.Target
	if allowed(&c.Cred, got.n, mayRead) {
		f.Data = got.data.Bytes
	}
	if !f.Attr.Small {
		s.measure(ctx, &f.Attr)
	}
	return nil
}
