package store

import (
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// The flaws that records can have: how each is recognised in any snapshot, and how it is repaired.
// still reads, by functions that make the commit depend on what they read, all that it needs: so
// what mend does rests on what is there when it is committed.

// found makes a flaw with what is told of it.
func found(kind meta.FindingKind, ino meta.Ino, format string, args ...any) flaw {
	return flaw{Finding: meta.Finding{Kind: kind, Ino: ino, Text: text(format, args...)}}
}

// foundName is found for a name in a directory.
func foundName(kind meta.FindingKind, dir meta.Ino, name, what string) flaw {
	f := found(kind, 0, "%q in directory %d: %s", name, dir, what)
	f.Dir, f.Name = dir, name
	return f
}

// readName reads an entry with its directory and inode; all may be nil. An entry that cannot be
// read is another flaw's.
func (t *txn) readName(dir meta.Ino, name string) (d *inode, e *entry, n *inode, err error) {
	if d, err = t.nodeOf(dir); err != nil {
		return nil, nil, nil, err
	}
	if d != nil && !d.isDir() && !d.unknown() {
		d = nil
	}
	if e, err = t.entry(dir, name); e == nil || err != nil {
		return d, nil, nil, err
	}
	n, err = t.nodeOf(e.Ino)
	return d, e, n, err
}

// eraseEntry takes an entry away that stands for nothing. Its cookie goes with it if it is its own.
func (t *txn) eraseEntry(dir meta.Ino, name string, counted bool) error {
	_, e, n, err := t.readName(dir, name)
	if err != nil || e == nil {
		return err
	}
	t.remove(entryKey(dir, name))
	key := cookieKey(dir, e.Cookie)
	twin, err := t.read(key)
	if err != nil {
		return err
	}
	if string(twin) == string(e.encodeNamed(name)) {
		t.remove(key)
	}
	t.change(dir)
	if !counted {
		return nil
	}
	subdirs := int64(0)
	if isDirEntry(e, n) {
		subdirs = -1
	}
	t.count(dir, -1, subdirs)
	t.touch(dir)
	return nil
}

func entryDangling(dir meta.Ino, name string) flaw {
	f := foundName(meta.EntryDangling, dir, name, "its inode is not there")
	f.still = func(t *txn) (bool, error) {
		d, e, n, err := t.readName(dir, name)
		return d != nil && e != nil && n == nil, err
	}
	// The data of a file whose inode is lost may be all that is left of it: see numbers.skip.
	f.mend = func(_ *mending, t *txn) error {
		e, err := t.entry(dir, name)
		if err == nil && e.Type == meta.Regular {
			err = t.forget(e.Ino)
		}
		if err != nil {
			return err
		}
		return t.eraseEntry(dir, name, true)
	}
	return f
}

// forget notes that the inode of a number is lost, so that nobody takes its objects for remains.
func (t *txn) forget(ino meta.Ino) error {
	value, err := t.read([]byte(keyForgotten))
	if err != nil {
		return err
	}
	lost := forgotten{uint64(ino), uint64(ino) + 1}
	if old, ok := decodeForgotten(value); ok {
		lost.from, lost.to = min(lost.from, old.from), max(lost.to, old.to)
	}
	t.put([]byte(keyForgotten), lost.encode())
	return nil
}

func entryMisplaced(dir meta.Ino, name string) flaw {
	f := foundName(meta.EntryMisplaced, dir, name, "that is not there, or no directory")
	f.still = func(t *txn) (bool, error) {
		d, e, _, err := t.readName(dir, name)
		return d == nil && e != nil, err
	}
	f.mend = func(_ *mending, t *txn) error { return t.eraseEntry(dir, name, false) }
	return f
}

// entryType: the inode knows better what it is. What is counted by the inode's type stays.
func entryType(dir meta.Ino, name string) flaw {
	f := foundName(meta.EntryType, dir, name, "it is of another type than its inode")
	f.still = func(t *txn) (bool, error) {
		d, e, n, err := t.readName(dir, name)
		return d != nil && n != nil && !n.unknown() && n.Type != e.Type, err
	}
	f.mend = func(_ *mending, t *txn) error {
		_, e, n, err := t.readName(dir, name)
		if err != nil {
			return err
		}
		e.Type = n.Type
		t.change(dir)
		t.put(entryKey(dir, name), e.encode())
		t.put(cookieKey(dir, e.Cookie), e.encodeNamed(name))
		return nil
	}
	return f
}

// entryUnlisted: a cookie that is free is used, one that stands for something else is left to that.
func entryUnlisted(dir meta.Ino, name string) flaw {
	f := foundName(meta.EntryUnlisted, dir, name, "it is not listed by its cookie")
	f.still = func(t *txn) (bool, error) {
		d, e, _, err := t.readName(dir, name)
		if d == nil || e == nil || err != nil {
			return false, err
		}
		twin, err := t.read(cookieKey(dir, e.Cookie))
		return string(twin) != string(e.encodeNamed(name)), err
	}
	f.mend = func(m *mending, t *txn) error {
		e, err := t.entry(dir, name)
		if err != nil {
			return err
		}
		twin, err := t.read(cookieKey(dir, e.Cookie))
		if err != nil {
			return err
		}
		t.change(dir)
		if twin != nil {
			e.Cookie = m.number
			t.put(entryKey(dir, name), e.encode())
		}
		t.put(cookieKey(dir, e.Cookie), e.encodeNamed(name))
		return nil
	}
	return f
}

func cookieStray(dir meta.Ino, cookie uint64) flaw {
	f := found(meta.CookieStray, 0, "cookie %d of directory %d lists what is no entry", cookie, dir)
	f.Dir = dir
	key := cookieKey(dir, cookie)
	f.still = func(t *txn) (bool, error) {
		value, err := t.read(key)
		if value == nil || err != nil {
			return false, err
		}
		var e namedEntry
		if err := parse(key, value, &e); err != nil {
			return false, nil
		}
		e.Cookie = cookie
		twin, err := t.read(entryKey(dir, e.name))
		return string(twin) != string(e.encode()), err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.change(dir)
		t.remove(key)
		return nil
	}
	return f
}

// dirParent: the directory says that it is elsewhere. If it is there too this name is one too many;
// if not, this is where it is.
func dirParent(dir meta.Ino, name string) flaw {
	f := foundName(meta.DirParent, dir, name, "the directory says that it is elsewhere")
	f.still = func(t *txn) (bool, error) {
		d, e, n, err := t.readName(dir, name)
		return d != nil && e != nil && n != nil && n.isDir() && n.Parent != dir, err
	}
	f.mend = func(_ *mending, t *txn) error {
		_, e, n, err := t.readName(dir, name)
		if err != nil {
			return err
		}
		other, _, err := t.nameIn(n.Parent, e.Ino)
		if err != nil {
			return err
		}
		if other != "" {
			if _, err := t.entry(n.Parent, other); err != nil {
				return err
			}
			return t.eraseEntry(dir, name, true)
		}
		if err := t.moves(); err != nil {
			return err
		}
		n.Parent = dir
		t.putInode(e.Ino, n)
		return nil
	}
	return f
}

// moves takes part in the order of changes of parents, see Rename.
func (t *txn) moves() error {
	_, err := t.read([]byte(keyRename))
	t.put([]byte(keyRename), mark())
	t.moved = true
	return err
}

// nameIn finds the name of an inode in a directory; "" if it has none there.
func (t *txn) nameIn(dir, ino meta.Ino) (name string, e *entry, err error) {
	err = t.scan(entriesOf(dir), func(key, value []byte) bool {
		var x entry
		if parse(key, value, &x) == nil && x.Ino == ino {
			name, e = string(key[9:]), &x
		}
		return name == ""
	})
	return name, e, err
}

// dirCount compares a directory's counter with its entries, in one snapshot. What is added is the
// difference, so that whatever is made and removed meanwhile counts, too.
func dirCount(dir meta.Ino) flaw {
	f := found(meta.DirCount, dir, "directory %d has other entries than it counts", dir)
	var delta int64
	f.still = func(t *txn) (bool, error) {
		delta = 0
		n, err := t.peek(inodeKey(dir))
		if n == nil || err != nil {
			return false, err
		}
		var bad error
		err = t.scan(entriesOf(dir), func(key, value []byte) bool {
			var e entry
			if parse(key, value, &e) != nil {
				return true
			}
			target, err := t.peek(inodeKey(e.Ino))
			if bad = err; bad != nil {
				return false
			}
			x := &inode{}
			if target == nil || parse(key, target, x) != nil {
				x = nil
			}
			if delta++; isDirEntry(&e, x) {
				delta += 1 << 32
			}
			return true
		})
		if err = unlessNil(err, bad); err != nil {
			return false, err
		}
		value, err := t.peek(countKey(dir))
		delta -= counter(value)
		return delta != 0, err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.kv.Checks = append(t.kv.Checks, kv.Check{Key: inodeKey(dir), Exists: true})
		t.add(countKey(dir), delta)
		return nil
	}
	return f
}

// xattrCount is the same for the bytes of attributes.
func xattrCount(ino meta.Ino) flaw {
	f := found(meta.XattrCount, ino, "inode %d has other attributes than it counts", ino)
	var delta int64
	f.still = func(t *txn) (bool, error) {
		delta = 0
		n, err := t.peek(inodeKey(ino))
		if n == nil || err != nil {
			return false, err
		}
		err = t.scan(xattrsOf(ino), func(key, value []byte) bool {
			delta += xattrBytes(string(key[9:]), value)
			return true
		})
		if err != nil {
			return false, err
		}
		value, err := t.peek(xattrBytesKey(ino))
		delta -= counter(value)
		return delta != 0, err
	}
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		t.add(xattrBytesKey(ino), delta)
		n.Flags |= flagWithXattr // whoever removes the inode removes the counter
		t.putInode(ino, n)
		return nil
	}
	return f
}

// fileCount is the same for the number of all inodes.
func fileCount() flaw {
	f := found(meta.FileCount, 0, "there are other inodes than are counted")
	var delta int64
	f.still = func(t *txn) (bool, error) {
		delta = 0
		err := t.snap.Scan([]byte{kindInode}, kv.PrefixEnd([]byte{kindInode}),
			func([]byte, []byte, kv.Version) bool {
				delta++
				return true
			})
		if err != nil {
			return false, err
		}
		value, err := t.peek([]byte(keyFiles))
		delta -= counter(value)
		return delta != 0, err
	}
	f.mend = func(_ *mending, t *txn) error {
		t.add([]byte(keyFiles), delta)
		return nil
	}
	return f
}
