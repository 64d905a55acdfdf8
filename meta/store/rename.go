package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// depthMax bounds the way up from a directory; a longer one is taken for damage.
const depthMax = 1 << 16

// place is one of the two names of a rename.
type place struct {
	dir  meta.Ino
	name string
	d    *inode // the directory
	e    *entry // nil: the name is free
	n    *inode // what the name stands for
}

func (p *place) isDir() bool { return p.n != nil && p.n.isDir() }

// Rename implements meta.Names.
//
// Cycles. A directory that goes to another parent must not go below itself. Whether it would is
// seen by walking up from the new parent. All that can make the walk's result wrong before the
// commit is another change of parents, and every such change writes one key, keyRename, whose
// version it checks: of two of them that read the same world, one conflicts. (Removing a
// directory on the way is impossible, it is not empty.) The token s.serial only keeps them from
// disturbing each other in vain; renames of files, and of directories within one parent, take
// neither.
func (s *Store) Rename(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	newDir meta.Ino, newName string, flags meta.RenameFlags) (at meta.Time, err error) {

	if err = checkRename(&c, name, newName, flags); err == nil {
		err = s.visitNames(ctx, &c, dir)
	}
	if err == nil {
		err = s.visitNamed(ctx, &c, newDir, newName)
	}
	if err != nil {
		return meta.Time{}, errs.Wrap("meta.Rename", name, err)
	}
	serial := false
	var white meta.Ino
	rename := func(t *txn) error {
		from, to := place{dir: dir, name: name}, place{dir: newDir, name: newName}
		if err := t.renameCheck(&c.Cred, &from, &to, flags); err != nil {
			return err
		}
		if dir != newDir && (from.isDir() || flags&meta.RenameExchange != 0 && to.isDir()) {
			if !serial {
				return errSerial
			}
			if err := t.moveCheck(&c.Cred, &from, &to, flags); err != nil {
				return err
			}
		}
		if err := t.moveTrees(&from, &to, flags); err != nil {
			return err
		}
		if flags&meta.RenameExchange != 0 {
			t.exchange(&from, &to)
			return nil
		}
		var left *entry
		if flags&meta.RenameWhiteout != 0 {
			var err error
			if left, err = s.whiteout(ctx, t, &c, &from, &white); err != nil {
				return err
			}
		}
		return t.move(&from, &to, left)
	}
	if at, err = s.when(ctx, &c, rename); err == errSerial {
		if err := takeTurn(ctx, s.serial); err != nil {
			return meta.Time{}, errs.Wrap("meta.Rename", name, err)
		}
		serial = true
		at, err = s.when(ctx, &c, rename)
		<-s.serial
	}
	return at, errs.Wrap("meta.Rename", name, err)
}

func checkRename(c *meta.Caller, name, newName string, flags meta.RenameFlags) error {
	if err := checkCaller(c); err != nil {
		return err
	}
	for _, n := range []string{name, newName} {
		if err := checkName(n); err != nil {
			return err
		}
		if isDots(n) {
			return errs.Busy
		}
	}
	const all = meta.RenameNoReplace | meta.RenameExchange | meta.RenameWhiteout
	if flags&^all != 0 || flags&meta.RenameExchange != 0 && flags != meta.RenameExchange {
		return errs.Newf(errs.Invalid, "meta.flags", "", "rename flags %#x", flags)
	}
	return nil
}

// find reads all that belongs to a place.
func (t *txn) find(p *place, c *meta.Cred) (err error) {
	if p.d, err = t.dir(p.dir, c, maySeek); err != nil {
		return err
	}
	if p.e, err = t.entry(p.dir, p.name); p.e == nil || err != nil {
		return err
	}
	p.n, err = t.inode(p.e.Ino)
	return lost(err, p.e.Ino)
}

// renameCheck is what renameat2(2) demands, except where a directory goes to another parent.
func (t *txn) renameCheck(c *meta.Cred, from, to *place, flags meta.RenameFlags) error {
	if err := t.find(from, c); err != nil {
		return err
	}
	if err := t.find(to, c); err != nil {
		return err
	}
	exchange := flags&meta.RenameExchange != 0
	switch {
	case from.e == nil || exchange && to.e == nil:
		return errs.NotFound
	case flags&meta.RenameNoReplace != 0 && to.e != nil:
		return errs.Exists
	case to.e != nil && to.e.Ino == from.e.Ino:
		return errNothing
	case !allowed(c, from.d, mayWrite) || !allowed(c, to.d, mayWrite):
		return errs.Access
	}
	if err := mayTake(c, from.d, from.n); err != nil {
		return err
	}
	if to.e == nil {
		return nil
	}
	if err := mayTake(c, to.d, to.n); err != nil {
		return err
	}
	switch {
	case exchange:
		return nil
	case from.isDir() && !to.isDir():
		return errs.NotDir
	case !from.isDir() && to.isDir():
		return errs.IsDir
	}
	return nil
}

// moveCheck looks at directories that change their parent: the caller must be allowed to change
// their "..", and neither may go below itself.
func (t *txn) moveCheck(c *meta.Cred, from, to *place, flags meta.RenameFlags) error {
	if _, err := t.read([]byte(keyRename)); err != nil {
		return err
	}
	t.put([]byte(keyRename), mark())
	t.moved = true
	if from.isDir() {
		if err := t.moveDirCheck(c, from, to.dir); err != nil {
			return err
		}
	}
	if to.isDir() && flags&meta.RenameExchange != 0 {
		return t.moveDirCheck(c, to, from.dir)
	}
	return nil
}

func (t *txn) moveDirCheck(c *meta.Cred, p *place, newDir meta.Ino) error {
	if !allowed(c, p.n, mayWrite) {
		return errs.Access
	}
	for range depthMax {
		if newDir == p.e.Ino {
			return errs.Newf(errs.Invalid, "meta.move", "", "the directory would go below itself")
		}
		switch newDir {
		case meta.RootIno:
			return nil
		case 0: // the tree that it would go to is being removed
			return errs.NotFound
		}
		key := inodeKey(newDir)
		value, err := t.peek(key)
		if err != nil {
			return err
		}
		var n inode
		if err := parse(key, value, &n); err != nil {
			return err
		}
		newDir = n.Parent
	}
	return errs.Newf(errs.Corrupt, "meta.move", "", "the way up from %q has no end", p.name)
}

// move takes the inode to its new name. A name that is replaced keeps its cookie, because it
// exists all the time; otherwise the entry brings its own along, so that reading a directory
// while renaming what is read comes to an end. left, if not nil, gets the old name.
func (t *txn) move(from, to *place, left *entry) error {
	e := *from.e
	if to.e != nil {
		if err := t.drop(to.dir, to.e.Ino, to.n); err != nil {
			return err
		}
		if to.isDir() {
			t.count(to.dir, 0, -1)
		}
		e.Cookie = to.e.Cookie
	}
	if left == nil {
		t.remove(entryKey(from.dir, from.name))
		t.count(from.dir, -1, 0)
	} else {
		t.enter(from.dir, from.name, left, false)
	}
	if from.dir != to.dir || e.Cookie != from.e.Cookie {
		t.remove(cookieKey(from.dir, from.e.Cookie))
	}
	t.touch(from.dir)
	t.enter(to.dir, to.name, &e, to.e == nil)
	t.resettle(from, to.dir)
	return nil
}

// whiteout makes what a rename leaves behind. *ino holds its number from one attempt to the next.
func (s *Store) whiteout(ctx context.Context, t *txn, c *meta.Caller, at *place,
	ino *meta.Ino) (*entry, error) {

	if err := s.number(ctx, ino); err != nil {
		return nil, err
	}
	f := meta.NewFile{Type: meta.CharDevice}
	n, err := s.newInode(t, nil, &f)
	if err != nil {
		return nil, err
	}
	inherit(&c.Cred, at.d, n, &f)
	n.homes.only(at.dir)
	t.putInode(*ino, n)
	t.add([]byte(keyFiles), 1)
	return &entry{Type: n.Type, Ino: *ino, Cookie: uint64(*ino)}, nil
}

// exchange swaps what two names stand for.
func (t *txn) exchange(from, to *place) {
	a, b := *to.e, *from.e
	a.Cookie, b.Cookie = from.e.Cookie, to.e.Cookie
	t.enter(from.dir, from.name, &a, false)
	t.enter(to.dir, to.name, &b, false)
	t.resettle(from, to.dir)
	t.resettle(to, from.dir)
}

// resettle tells the inode about its new place, and both parents if it is a directory.
func (t *txn) resettle(p *place, newDir meta.Ino) {
	p.n.Ctime = t.now
	if p.n.isDir() {
		p.n.Parent = newDir
		t.count(p.dir, 0, -1)
		t.count(newDir, 0, 1)
	} else {
		p.n.homes.remove(p.dir)
		p.n.homes.add(newDir)
	}
	t.putInode(p.e.Ino, p.n)
}
