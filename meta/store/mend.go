package store

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// mending is what repairs need besides a transaction.
type mending struct {
	number uint64   // that nobody has: for a cookie
	found  meta.Ino // /lost+found
}

// mendFlaw repairs a flaw and says in it what came of that. Its transaction looks once more whether
// there is something to be repaired; if not, it is not there any more.
func (s *Store) mendFlaw(ctx context.Context, f *flaw) (there bool, err error) {
	f.State = meta.Left
	if f.act != nil {
		if err = f.act(ctx); err == nil {
			f.State = meta.Repaired
		}
		return true, err
	}
	if f.mend == nil {
		return true, nil
	}
	var m mending
	if m.number, err = s.numbers.take(ctx); err == nil && f.adopts() {
		m.found, err = s.lostFound(ctx)
	}
	if err != nil {
		return true, err
	}
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) (err error) {
		t.kv.MakesRoom = true
		if there, err = f.still(t); err != nil {
			return err
		}
		if !there {
			return errNothing
		}
		return f.mend(&m, t)
	})
	if err != nil {
		return true, err
	}
	f.State = meta.Repaired
	wake(s.trees.token)
	return there, nil
}

// adopts tells whether the repair needs /lost+found.
func (f *flaw) adopts() bool { return f.Kind == meta.Nameless || f.Kind == meta.Unreachable }

// lostFound finds or makes /lost+found.
func (s *Store) lostFound(ctx context.Context) (meta.Ino, error) {
	root := meta.Caller{}
	for range attemptsMax {
		a, err := s.Lookup(ctx, root, meta.RootIno, lostDir)
		if errs.KindOf(err) == errs.NotFound {
			a, err = s.Make(ctx, root, meta.RootIno, lostDir,
				meta.NewFile{Type: meta.Directory, Mode: 0o700})
			if errs.KindOf(err) == errs.Exists {
				continue
			}
		}
		if err == nil && a.Type != meta.Directory {
			err = errs.Newf(errs.NotDir, "meta.check", "", "/%s is no directory: rename it", lostDir)
		}
		return a.Ino, err
	}
	return 0, errs.Again
}

// adopt gives an inode a name in /lost+found. One that stood there keeps its own.
func (t *txn) adopt(m *mending, ino meta.Ino, n *inode) error {
	if _, err := t.dir(m.found, &meta.Cred{}, mayWrite); err != nil {
		return err
	}
	name := fmt.Sprintf("inode-%d", ino)
	old, err := t.entry(m.found, name)
	if err != nil {
		return err
	}
	if old != nil {
		name = fmt.Sprintf("inode-%d-%d", ino, m.number)
	}
	t.enter(m.found, name, &entry{Type: n.Type, Ino: ino, Cookie: m.number}, true)
	n.Nlink, n.Ctime = 1, t.now
	if n.isDir() {
		if err := t.moves(); err != nil {
			return err
		}
		n.Parent = m.found
		t.count(m.found, 0, 1)
	} else {
		n.homes.only(m.found)
	}
	t.putInode(ino, n)
	return nil
}

// nameless is an inode that says it has names, and none was counted. Whoever makes or removes a
// name of an inode writes the inode, so that it has none as long as its version is what it was.
func nameless(ino meta.Ino, c *counted) flaw {
	f := found(meta.Nameless, ino, "inode %d says it has %d names, and has none", ino, c.nlink)
	f.still = unchanged(ino, c)
	f.mend = func(m *mending, t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.has(flagVolume) { // it has no place in the tree
			n.Flags &^= flagVolume
		}
		return t.adopt(m, ino, n)
	}
	return f
}

func linkCount(ino meta.Ino, c *counted) flaw {
	f := found(meta.LinkCount, ino, "inode %d says it has %d names, and has %d", ino, c.nlink, c.names)
	f.still = unchanged(ino, c)
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.Nlink == 0 { // it is listed as being removed, and it is not
			list := orphanKey(ino)
			if n.isDir() {
				list = treeKey(ino)
			}
			t.remove(list)
		}
		n.Nlink, n.homes = c.names, homes{} // where they are was not noted
		t.putInode(ino, n)
		return nil
	}
	if c.dir && c.names > 1 {
		f.mend = nil // which of the names is the right one is told by its parent: see dirParent
	}
	return f
}

// unchanged tells whether an inode is still what its names were counted for.
func unchanged(ino meta.Ino, c *counted) func(t *txn) (bool, error) {
	return func(t *txn) (bool, error) {
		_, version, err := t.snap.Get(inodeKey(ino))
		if err != nil || version != c.version {
			return false, err
		}
		_, err = t.read(inodeKey(ino))
		return true, err
	}
}

// unreachable is a directory whose way up does not end at the root: its parent is not there, or it
// is in a cycle. It goes to /lost+found, which opens the cycle.
func unreachable(ino meta.Ino) flaw {
	f := found(meta.Unreachable, ino, "directory %d has no way to the root", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil || !n.isDir() || n.Nlink == 0 {
			return false, err
		}
		if _, err := t.read([]byte(keyRename)); err != nil {
			return false, err
		}
		return t.astray(ino, n)
	}
	f.mend = func(m *mending, t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		name, _, err := t.nameIn(n.Parent, ino)
		if err != nil {
			return err
		}
		if name != "" {
			up, err := t.nodeOf(n.Parent)
			if err == nil {
				err = t.eraseEntry(n.Parent, name, up != nil)
			}
			if err != nil {
				return err
			}
		}
		return t.adopt(m, ino, n)
	}
	return f
}

// astray tells whether the way up from a directory does not end. The commit need not depend on what
// is on the way: changes of parents have an order, see Rename.
func (t *txn) astray(ino meta.Ino, n *inode) (bool, error) {
	look := txn{snap: t.snap, view: true}
	for range depthMax {
		if ino == meta.RootIno || n.Nlink == 0 && n.Parent == 0 {
			return false, nil
		}
		ino = n.Parent
		var err error
		if n, err = look.nodeOf(ino); err != nil {
			return false, err
		}
		if n.unknown() {
			return false, nil
		}
		if n == nil || !n.isDir() {
			return true, nil
		}
	}
	return true, nil
}

// held tells whether somebody has an inode open, or may have, because not all clients have claimed
// yet; or the service is about to destroy it.
func (s *Store) held(ino meta.Ino) bool {
	_, known := s.sessions.writers(ino)
	return !known || s.sessions.tracks(ino)
}

// orphanKept is an inode without a name that nobody has open, and that is there all the same.
func (s *Store) orphanKept(ino meta.Ino) flaw {
	f := found(meta.OrphanKept, ino, "inode %d has no name, and nobody has it open", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil || n.Nlink != 0 || n.isDir() {
			return false, err
		}
		listed, err := t.exists(orphanKey(ino))
		if !listed || err != nil {
			return false, err
		}
		return !s.held(ino), nil
	}
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(ino)
		switch {
		case err != nil:
			return err
		case t.dropping(ino):
			return errNothing // somebody has opened it since
		}
		t.remove(orphanKey(ino))
		t.destroy(ino, n)
		return nil
	}
	return f
}

// orphanUnlisted is an inode without a name that no list knows: nobody would ever remove it.
func (s *Store) orphanUnlisted(ino meta.Ino) flaw {
	f := found(meta.OrphanKept, ino, "inode %d has no name, and is not listed as such", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil || n.Nlink != 0 || n.isDir() {
			return false, err
		}
		listed, err := t.exists(orphanKey(ino))
		return !listed, err
	}
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(ino)
		switch {
		case err != nil:
			return err
		case t.dropping(ino):
			t.put(orphanKey(ino), mark())
		default:
			t.destroy(ino, n)
		}
		return nil
	}
	return f
}

// treeUnlisted is a directory without a name that is not being removed.
func treeUnlisted(ino meta.Ino) flaw {
	f := found(meta.OrphanKept, ino, "directory %d has no name, and is not being removed", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil || n.Nlink != 0 || !n.isDir() {
			return false, err
		}
		listed, err := t.exists(treeKey(ino))
		return !listed || n.Parent != 0, err
	}
	// Whether it has a name after all is what the links tell; then it needs its parent.
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.Parent != 0 {
			name, _, err := t.nameIn(n.Parent, ino)
			if err != nil {
				return err
			}
			if name != "" {
				n.Nlink = 1
				t.putInode(ino, n)
				return nil
			}
		}
		if err := t.moves(); err != nil {
			return err
		}
		n.Parent = 0
		t.putInode(ino, n)
		t.put(treeKey(ino), mark())
		return nil
	}
	return f
}

// recordStray is a record beside an inode that is not there, or has no such record.
func recordStray(key []byte, format string, args ...any) flaw {
	key = append([]byte(nil), key...)
	ino := meta.Ino(number(key, 0))
	f := found(meta.RecordStray, ino, format, args...)
	f.still = func(t *txn) (bool, error) {
		there, err := t.exists(key)
		if !there || err != nil {
			return false, err
		}
		n, err := t.nodeOf(ino)
		if err != nil || n.unknown() {
			return false, err
		}
		switch key[0] {
		case kindOrphan:
			return n == nil || n.Nlink != 0, nil
		case kindTree:
			return n == nil || !n.isDir() || n.Nlink != 0, nil
		case kindPending:
			return n == nil || !n.has(flagPending), nil
		case kindXattr:
			queued, err := t.exists(removalKey(ino))
			return n == nil && !queued, err
		}
		return !owns(n, key[0]), nil
	}
	f.mend = func(_ *mending, t *txn) error {
		t.remove(key)
		return nil
	}
	return f
}

func pendingUnlisted(ino meta.Ino) flaw {
	f := found(meta.RecordStray, ino, "inode %d is to be truncated, and not listed for it", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil || !n.has(flagPending) {
			return false, err
		}
		listed, err := t.exists(pendingKey(ino))
		return !listed, err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.put(pendingKey(ino), mark())
		return nil
	}
	return f
}

// queuedAlive is an inode in the deletion queue: its objects may be gone already.
func queuedAlive(ino meta.Ino) flaw {
	f := found(meta.QueuedAlive, ino, "inode %d is there, and its objects are to be removed", ino)
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(ino)
		if n == nil || err != nil {
			return false, err
		}
		return t.exists(removalKey(ino))
	}
	f.mend = func(_ *mending, t *txn) error {
		t.remove(removalKey(ino))
		return nil
	}
	return f
}

func volumeDangling(name string) flaw {
	f := found(meta.EntryDangling, 0, "volume %q stands for no inode", name)
	f.Name = name
	f.still = func(t *txn) (bool, error) {
		key := volumeKey(name)
		value, err := t.read(key)
		var v volume
		if value == nil || err != nil || parse(key, value, &v) != nil {
			return false, err
		}
		n, err := t.nodeOf(v.Ino)
		return !n.unknown() && (n == nil || !n.has(flagVolume)), err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.remove(volumeKey(name))
		return nil
	}
	return f
}
