package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Remove implements meta.Names.
func (s *Store) Remove(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	isDir bool) (at meta.Time, err error) {

	err = checkCaller(&c)
	if err == nil {
		err = checkName(name)
	}
	if err == nil && isDots(name) {
		err = dotsRefusal(name, isDir)
	}
	if err == nil {
		err = s.visitNamed(ctx, &c, dir, name)
	}
	if err == nil {
		at, err = s.when(ctx, &c, func(t *txn) error {
			t.kv.MakesRoom = true
			return t.unlink(&c.Cred, dir, name, isDir)
		})
	}
	return at, errs.Wrap("meta.Remove", name, err)
}

// dotsRefusal is what rmdir(2) and unlink(2) say to dots.
func dotsRefusal(name string, isDir bool) error {
	switch {
	case !isDir:
		return errs.IsDir
	case name == ".":
		return errs.Invalid
	}
	return errs.NotEmpty
}

func (t *txn) unlink(c *meta.Cred, dir meta.Ino, name string, isDir bool) error {
	e, n, err := t.removable(c, dir, name)
	if err != nil {
		return err
	}
	switch {
	case isDir && !n.isDir():
		return errs.NotDir
	case !isDir && n.isDir():
		return errs.IsDir
	}
	if err := t.drop(dir, e.Ino, n); err != nil {
		return err
	}
	if n.isDir() {
		t.count(dir, 0, -1)
	}
	t.leave(dir, name, e)
	return nil
}

// lost turns "no such inode" into what it is when a name points there: damage, not a race, because
// both were read from one snapshot.
func lost(err error, ino meta.Ino) error {
	if errs.KindOf(err) != errs.NotFound {
		return err
	}
	return errs.Newf(errs.Corrupt, "meta.entry", "", "a name points to inode %d, which is gone", ino)
}

// wake leaves a token for a background loop, unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
