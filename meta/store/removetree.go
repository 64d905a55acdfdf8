package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// walksMax is how many trees are looked through for rights at a time; walkPage how many entries of
// a directory are read at a time by that.
const (
	walksMax = 2
	walkPage = 512
)

// RemoveTree implements meta.Trees. It comes to an end in one of three ways: what is no directory,
// or an empty one, goes as by Remove; another directory loses its name, its parent and its link,
// and is listed in 'G', whose background work (trees.go) does the rest.
//
// A directory that loses its parent changes the way up from all that is below it, as a rename does:
// it takes part in the order of those (see Rename).
func (s *Store) RemoveTree(ctx context.Context, c meta.Caller, dir meta.Ino, name string) error {
	err := checkCaller(&c)
	if err == nil {
		err = checkName(name)
	}
	if err == nil && isDots(name) {
		err = dotsRefusal(name, true)
	}
	if err == nil {
		err = s.visitNamed(ctx, &c, dir, name)
	}
	if err == nil {
		err = s.removeTree(ctx, &c, dir, name)
	}
	if err != nil {
		return errs.Wrap("meta.RemoveTree", name, err)
	}
	wake(s.trees.token)
	return nil
}

func (s *Store) removeTree(ctx context.Context, c *meta.Caller, dir meta.Ino, name string) error {
	var seen meta.Ino // the directory whose tree was looked through
	serial := false
	build := func(t *txn) error {
		t.kv.MakesRoom = true
		e, n, err := t.removable(&c.Cred, dir, name)
		if err != nil {
			return err
		}
		if n.isDir() {
			some, err := t.first(entriesOf(e.Ino))
			if err != nil {
				return err
			}
			if some != nil {
				if !serial || seen != e.Ino {
					seen = e.Ino
					return errSerial
				}
				return t.detach(dir, name, e, n)
			}
			t.count(dir, 0, -1)
		}
		t.leave(dir, name, e)
		return t.drop(dir, e.Ino, n)
	}
	_, err := s.update(ctx, c, build)
	for attempt := 0; err == errSerial; attempt++ {
		if attempt == attemptsMax {
			return errs.Newf(errs.Again, "meta.tree", "", "others give the name away all the time")
		}
		if err = pause(ctx, attempt); err == nil {
			err = s.mayEmpty(ctx, &c.Cred, seen)
		}
		if err != nil {
			return err
		}
		if err := takeTurn(ctx, s.serial); err != nil {
			return err
		}
		serial = true
		_, err = s.update(ctx, c, build)
		serial = false
		<-s.serial
	}
	return err
}

// removable reads a name that the caller may take away, and what it stands for.
func (t *txn) removable(c *meta.Cred, dir meta.Ino, name string) (*entry, *inode, error) {
	d, err := t.dir(dir, c, maySeek)
	if err != nil {
		return nil, nil, err
	}
	e, err := t.entry(dir, name)
	if err != nil {
		return nil, nil, err
	}
	if e == nil {
		return nil, nil, errs.NotFound
	}
	if !allowed(c, d, mayWrite) {
		return nil, nil, errs.Access
	}
	n, err := t.inode(e.Ino)
	if err != nil {
		return nil, nil, lost(err, e.Ino)
	}
	return e, n, mayTake(c, d, n)
}

// detach takes a directory out of the name space and lists it as a tree to be removed.
func (t *txn) detach(dir meta.Ino, name string, e *entry, n *inode) error {
	if _, err := t.read([]byte(keyRename)); err != nil {
		return err
	}
	t.put([]byte(keyRename), mark())
	t.moved = true
	t.detachDir(dir, name, e, n)
	return nil
}

func (t *txn) detachDir(dir meta.Ino, name string, e *entry, n *inode) {
	t.leave(dir, name, e)
	t.count(dir, 0, -1)
	n.Nlink, n.Parent, n.Ctime = 0, 0, t.now
	t.putInode(e.Ino, n)
	t.put(treeKey(e.Ino), mark())
}

// mayEmpty tells whether the caller may remove all that is below a directory. Root may. For others
// the whole tree is looked through, in one snapshot, in memory for one path of it; few of these
// walks go on at a time.
func (s *Store) mayEmpty(ctx context.Context, c *meta.Cred, top meta.Ino) error {
	if isRoot(c) {
		return nil
	}
	select {
	case s.trees.walks <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.trees.walks }()
	return s.look(func(t *txn) error {
		w := walk{t: t, c: c}
		err := w.enter(top)
		for err == nil && len(w.path) > 0 {
			if err = ctx.Err(); err == nil {
				err = w.step()
			}
		}
		return err
	})
}

// walk is on its way through a tree.
type walk struct {
	t    *txn
	c    *meta.Cred
	path []walked // the directories from the top down to where it is
}

// walked is a directory that is being looked through.
type walked struct {
	ino    meta.Ino
	dir    *inode
	cookie uint64 // of the last entry that was looked at
	any    bool   // it has an entry
}

func (w *walk) enter(ino meta.Ino) error {
	if len(w.path) >= depthMax {
		return errs.Newf(errs.Corrupt, "meta.tree", "", "the way down to directory %d has no end", ino)
	}
	n, err := w.t.inode(ino)
	if err == nil {
		w.path = append(w.path, walked{ino: ino, dir: n})
	}
	return err
}

// step looks at entries of the last directory until one of them is a directory, or a page of them.
func (w *walk) step() error {
	at := &w.path[len(w.path)-1]
	page, err := w.t.page(at.ino, at.cookie, walkPage)
	if err != nil {
		return err
	}
	if len(page) == 0 {
		w.path = w.path[:len(w.path)-1]
		return nil
	}
	if !at.any {
		at.any = true
		if !allowed(w.c, at.dir, mayRead|mayWrite|maySeek) {
			return errs.Newf(errs.Access, "meta.tree", "", "directory %d is not empty and not to be changed",
				at.ino)
		}
	}
	owned := at.dir.Mode&sticky == 0 || isOwner(w.c, at.dir)
	for i := range page {
		at.cookie = page[i].Cookie
		if !owned {
			n, err := w.t.inode(page[i].Ino)
			if err != nil {
				return lost(err, page[i].Ino)
			}
			if err := mayTake(w.c, at.dir, n); err != nil {
				return err
			}
		}
		if page[i].Type == meta.Directory {
			return lost(w.enter(page[i].Ino), page[i].Ino)
		}
	}
	return nil
}

// treeKey lists a tree that is being removed by its top directory, which has no name.
func treeKey(ino meta.Ino) []byte { return key1(kindTree, uint64(ino)) }

// treesEnd is behind all of them.
func treesEnd() []byte { return kv.PrefixEnd([]byte{kindTree}) }
