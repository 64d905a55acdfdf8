package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Lookup implements meta.Names. When I/O servers do not tell the size of a file that is open for
// writing in time, the last size that is known is given: a name must be found even then.
func (s *Store) Lookup(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	meta.Attr, error) {

	var a meta.Attr
	err := checkCaller(&c)
	if err == nil {
		err = checkName(name)
	}
	if err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	for err == nil {
		var ino meta.Ino
		err = s.look(func(t *txn) (err error) {
			ino, err = t.lookup(&c.Cred, dir, name)
			return err
		})
		if err != nil {
			break
		}
		// What is gone by now has lost its name: that is looked for again.
		if a, err = s.tell(ctx, &c, ino); errs.KindOf(err) != errs.NotFound {
			break
		}
		err = ctx.Err()
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.Lookup", name, err)
	}
	return a, nil
}

// lookup finds a name, dots included.
func (t *txn) lookup(c *meta.Cred, dir meta.Ino, name string) (meta.Ino, error) {
	d, err := t.dir(dir, c, maySeek)
	if err != nil {
		return 0, err
	}
	switch name {
	case ".":
		return dir, nil
	case "..":
		return d.Parent, nil
	}
	e, err := t.entry(dir, name)
	if err != nil {
		return 0, err
	}
	if e == nil {
		return 0, errs.NotFound
	}
	return e.Ino, nil
}

// attrOf reads an inode and puts its attributes together.
func (t *txn) attrOf(ino meta.Ino) (meta.Attr, error) {
	n, err := t.inode(ino)
	if err != nil {
		return meta.Attr{}, err
	}
	return t.attr(ino, n)
}
