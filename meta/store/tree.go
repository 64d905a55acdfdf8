package store

import (
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// inode reads an inode; errs.NotFound if it is gone.
func (t *txn) inode(ino meta.Ino) (*inode, error) {
	key := inodeKey(ino)
	value, err := t.read(key)
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, errs.NotFound
	}
	n := &inode{}
	err = parse(key, value, n)
	n.was = n.charge()
	return n, err
}

// putInode writes an inode, and notes what it takes of its quota. Without writers nothing is
// promised to any.
func (t *txn) putInode(ino meta.Ino, n *inode) {
	if !n.has(flagWriters) {
		n.Reserved = 0
	}
	t.account(ino, n, n.charge())
	t.put(inodeKey(ino), n.encode())
	t.change(ino)
}

// dir reads a directory that the caller may use in the ways of want.
func (t *txn) dir(ino meta.Ino, c *meta.Cred, want uint32) (*inode, error) {
	n, err := t.inode(ino)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, errs.NotDir
	}
	if n.Nlink == 0 { // the top of a tree that is being removed
		return nil, errs.NotFound
	}
	if !allowed(c, n, want) {
		return nil, errs.Access
	}
	return n, nil
}

// entry reads a name; nil if there is none. Either way the commit depends on it.
func (t *txn) entry(dir meta.Ino, name string) (*entry, error) {
	key := entryKey(dir, name)
	value, err := t.read(key)
	if value == nil || err != nil {
		return nil, err
	}
	e := &entry{}
	return e, parse(key, value, e)
}

// enter gives a name to an inode, and tells the directory. fresh: the name was not there before.
func (t *txn) enter(dir meta.Ino, name string, e *entry, fresh bool) {
	t.put(entryKey(dir, name), e.encode())
	t.put(cookieKey(dir, e.Cookie), e.encodeNamed(name))
	if fresh {
		t.count(dir, 1, 0)
	}
	t.touch(dir)
}

// leave takes a name away, and tells the directory.
func (t *txn) leave(dir meta.Ino, name string, e *entry) {
	t.remove(entryKey(dir, name))
	t.remove(cookieKey(dir, e.Cookie))
	t.count(dir, -1, 0)
	t.touch(dir)
}

// count adds to the directory's entries and sub-directories, which share one counter: so each
// operation adds once. The halves cannot run into each other, because both are counts of keys that
// exist and stay far below 2^32.
func (t *txn) count(dir meta.Ino, entries, subdirs int64) {
	t.add(countKey(dir), subdirs<<32+entries)
}

// touch says that the directory's content changed now. It is put without a look at what was there.
func (t *txn) touch(dir meta.Ino) {
	t.put(timesKey(dir), (&times{Mtime: t.now, Ctime: t.now}).encode())
	t.change(dir)
}

// attr puts together what programs see of an inode. A file's size is the stored one.
func (t *txn) attr(ino meta.Ino, n *inode) (meta.Attr, error) {
	a := fileAttr(ino, n)
	if n.isDir() {
		return a, t.dirAttr(ino, &a)
	}
	return a, nil
}

// fileAttr is attr for what is no directory.
func fileAttr(ino meta.Ino, n *inode) meta.Attr {
	a := meta.Attr{
		Ino: ino, Type: n.Type, Mode: n.Mode, UID: n.UID, GID: n.GID, Nlink: n.Nlink, Rdev: n.Rdev,
		Size: n.Size, Atime: n.Atime, Mtime: n.Mtime, Ctime: n.Ctime, Btime: n.Btime,
		Gen: n.Gen, TruncSeq: n.TruncSeq, DataVersion: n.DataVersion,
		Layout: n.Layout,
		// A volume's size is fixed: there is nothing to measure.
		Writers: n.has(flagWriters) && !n.has(flagVolume),
		Holes:   n.has(flagHoles),
		Small:   n.has(flagSmall),
		Xattrs:  n.has(flagWithXattr),
		ACL:     n.ACL, Default: n.Default,
		Parent: n.Parent, Scattered: n.scattered(),
	}
	if a.Holes {
		a.Allocated = -1
	}
	if n.Type == meta.Symlink {
		a.Size = int64(len(n.Target))
	}
	return a
}

// dirAttr adds what is kept apart because every operation in the directory changes it. The size
// of a directory is the number of its entries.
func (t *txn) dirAttr(ino meta.Ino, a *meta.Attr) error {
	value, err := t.peek(countKey(ino))
	if err != nil {
		return err
	}
	sum := counter(value)
	a.Size = sum & (1<<32 - 1)
	a.Nlink = uint32(2 + sum>>32)
	key := timesKey(ino)
	if value, err = t.peek(key); value == nil || err != nil {
		return err
	}
	var when times
	err = parse(key, value, &when)
	a.Mtime = when.Mtime
	a.Ctime = meta.Later(a.Ctime, when.Ctime)
	return err
}

// drop takes one link from an inode whose name in dir goes away. A directory must be empty and stay
// so until the commit. What has no link left is destroyed, or becomes an orphan while it is open.
func (t *txn) drop(dir, ino meta.Ino, n *inode) error {
	if n.isDir() {
		return t.dropDir(ino, n)
	}
	n.Nlink--
	n.Ctime = t.now
	if n.Nlink > 0 {
		n.homes.remove(dir)
		t.putInode(ino, n)
		return nil
	}
	if !t.dropping(ino) {
		t.destroy(ino, n)
		return nil
	}
	t.putInode(ino, n)
	t.put(orphanKey(ino), mark())
	return nil
}

// dropping begins to take the last name of an inode, and tells whether somebody has it open: then
// it becomes an orphan. Until the commit nobody opens one that is not.
func (t *txn) dropping(ino meta.Ino) (open bool) {
	d := dropped{ino: ino, open: t.open.dropping(ino)}
	t.drops = append(t.drops, d)
	return d.open
}

func (t *txn) dropDir(ino meta.Ino, n *inode) error {
	some, err := t.first(entriesOf(ino))
	if err != nil {
		return err
	}
	if some != nil {
		return errs.NotEmpty
	}
	t.demandNone(entriesOf(ino))
	t.remove(countKey(ino))
	t.remove(timesKey(ino))
	t.destroy(ino, n)
	return nil
}

// destroy forgets an inode and leaves what remains of it to the deletion queue.
func (t *txn) destroy(ino meta.Ino, n *inode) {
	t.change(ino)
	t.gone = append(t.gone, ino)
	t.remove(inodeKey(ino))
	if n.has(flagSmall) {
		t.remove(smallKey(ino))
	}
	t.account(ino, n, charge{})
	t.add([]byte(keyFiles), -1)
	if n.has(flagPending) {
		t.remove(pendingKey(ino))
	}
	if n.has(flagWithXattr) {
		t.remove(xattrBytesKey(ino))
	}
	if n.has(flagData | flagWithXattr) {
		r := removal{n.ref(ino)}
		if !n.has(flagData) {
			r.Layout.Servers, r.Layout.Unit = nil, 0
		}
		t.put(removalKey(ino), r.encode())
		if t.queued == 0 || ino < t.queued {
			t.queued = ino
		}
	}
}

// checkName refuses what cannot be a name. Dots are names, but not ones that can be made or
// removed.
func checkName(name string) error {
	switch {
	case name == "":
		return errs.NotFound
	case len(name) > meta.NameMax:
		return errs.NameTooLong
	case strings.ContainsAny(name, "/\x00"):
		return errs.Newf(errs.Invalid, "meta.name", "", "a name holds neither / nor NUL")
	}
	return nil
}

func isDots(name string) bool { return name == "." || name == ".." }
