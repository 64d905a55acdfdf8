package store

import (
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// reachedMax bounds the directories of which a run remembers that they reach the root.
const reachedMax = 1 << 16

// nodeOf reads an inode and makes the commit of t depend on it; nil if there is none. One that
// cannot be read is told where it is found; nothing else is said about it, nor done to what belongs
// to it: it has no type.
func (t *txn) nodeOf(ino meta.Ino) (*inode, error) {
	n, err := t.inode(ino)
	switch errs.KindOf(err) {
	case errs.NotFound:
		return nil, nil
	case errs.Corrupt, errs.Version:
		return &inode{}, nil
	}
	return n, err
}

// unknown tells whether an inode is there and cannot be read.
func (n *inode) unknown() bool { return n != nil && n.Type == 0 }

// exists tells whether there is a record, and makes the commit of t depend on that.
func (t *txn) exists(key []byte) (bool, error) {
	value, err := t.read(key)
	return value != nil, err
}

func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// unreadable is a record that cannot be parsed. Nothing is known of it, so nothing is done.
func unreadable(key []byte, err error, fresh func() record) flaw {
	key = append([]byte(nil), key...)
	f := flaw{still: func(t *txn) (bool, error) {
		value, err := t.read(key)
		return value != nil && parse(key, value, fresh()) != nil, err
	}}
	f.Kind, f.Text = meta.Unreadable, text("%v", err)
	if len(key) >= 9 {
		f.Ino = meta.Ino(number(key, 0))
	}
	return f
}

func (r *checkRun) examineInode(t *txn, key, value []byte) error {
	ino := meta.Ino(number(key, 0))
	r.inodes++
	n := &inode{}
	if err := parse(key, value, n); err != nil {
		r.add(unreadable(key, err, func() record { return &inode{} }))
		r.blind = true
		return nil
	}
	if ino != meta.RootIno {
		r.links.claim(ino, n.Nlink)
	}
	r.quotas.inode(n)
	queued, err := t.peek(removalKey(ino))
	if err != nil {
		return err
	}
	if queued != nil {
		r.add(queuedAlive(ino))
	}
	if n.has(flagPending) {
		listed, err := t.peek(pendingKey(ino))
		if err != nil {
			return err
		}
		if listed == nil {
			r.add(pendingUnlisted(ino))
		}
	}
	if err := r.examineXattrs(t, ino); err != nil {
		return err
	}
	if n.isDir() {
		return r.examineDir(t, ino, n)
	}
	if n.Nlink == 0 {
		listed, err := t.peek(orphanKey(ino))
		if err == nil && listed == nil {
			r.add(r.s.orphanUnlisted(ino))
		}
		return err
	}
	return nil
}

// examineXattrs looks at the counter of an inode that has no attributes: others are counted where
// these are.
func (r *checkRun) examineXattrs(t *txn, ino meta.Ino) error {
	sum, err := t.peek(xattrBytesKey(ino))
	if err != nil || counter(sum) == 0 {
		return err
	}
	some, err := t.first(xattrsOf(ino))
	if err == nil && some == nil {
		r.add(xattrCount(ino))
	}
	return err
}

func (r *checkRun) examineDir(t *txn, ino meta.Ino, n *inode) error {
	if n.Nlink == 0 {
		listed, err := t.peek(treeKey(ino))
		if err == nil && (listed == nil || n.Parent != 0) {
			r.add(treeUnlisted(ino))
		}
		if err != nil {
			return err
		}
	} else if ok, err := r.reaches(t, ino, n); err != nil {
		return err
	} else if !ok {
		r.add(unreachable(ino))
	}
	sum, err := t.peek(countKey(ino))
	if err != nil || counter(sum) == 0 {
		return err
	}
	some, err := t.first(entriesOf(ino))
	if err == nil && some == nil {
		r.add(dirCount(ino))
	}
	return err
}

// reaches tells whether the way up from a directory ends at the root or at a tree that is being
// removed, and remembers the answer for all that it passes.
func (r *checkRun) reaches(t *txn, ino meta.Ino, n *inode) (bool, error) {
	way := []meta.Ino{ino}
	ok, known := r.reached[ino]
	for on := map[meta.Ino]bool{ino: true}; !known; {
		if ino == meta.RootIno || n.Nlink == 0 && n.Parent == 0 {
			ok = true
			break
		}
		up := n.Parent
		var err error
		if n, err = t.nodeOf(up); err != nil {
			return false, err
		}
		if n.unknown() {
			ok = true
			break
		}
		if n == nil || !n.isDir() || on[up] || len(way) > depthMax {
			break
		}
		on[up] = true
		ino = up
		if ok, known = r.reached[up]; !known {
			way = append(way, up)
		}
	}
	if len(r.reached)+len(way) > reachedMax {
		clear(r.reached)
	}
	for _, x := range way[:min(len(way), reachedMax)] {
		r.reached[x] = ok
	}
	return ok, nil
}

func (r *checkRun) examineVolume(t *txn, key, value []byte) error {
	var v volume
	if err := parse(key, value, &v); err != nil {
		r.add(unreadable(key, err, func() record { return &volume{} }))
		return nil
	}
	r.links.name(v.Ino)
	n, err := t.nodeOf(v.Ino)
	if err == nil && !n.unknown() && (n == nil || !n.has(flagVolume)) {
		r.add(volumeDangling(string(key[1:])))
	}
	return err
}

func (r *checkRun) examineEntry(t *txn, key, value []byte) error {
	dir, name := meta.Ino(number(key, 0)), string(key[9:])
	if err := r.closeGroup(t, kindEntry, dir); err != nil {
		return err
	}
	var e entry
	if err := parse(key, value, &e); err != nil {
		r.add(unreadable(key, err, func() record { return &entry{} }))
		return nil
	}
	r.group.sum++
	at := r.walkDir[dir]
	if at == nil {
		d, err := t.nodeOf(dir)
		if err != nil {
			return err
		}
		if at = (&dirSeen{}); d != nil && d.isDir() || d.unknown() {
			at.dir = d
		}
		r.walkDir[dir] = at
	}
	if at.dir != nil {
		r.links.name(e.Ino) // in what is no directory it is no name, and may be about to go
	}
	n, err := t.nodeOf(e.Ino)
	if err != nil {
		return err
	}
	if isDirEntry(&e, n) {
		r.group.sum += 1 << 32
	}
	switch {
	case at.dir == nil:
		r.add(entryMisplaced(dir, name))
		return nil
	case n == nil:
		r.add(entryDangling(dir, name))
		return nil
	case n.unknown():
	case n.Type != e.Type:
		r.add(entryType(dir, name))
	case n.isDir() && n.Parent != dir:
		r.add(dirParent(dir, name))
	}
	twin, err := t.peek(cookieKey(dir, e.Cookie))
	if err == nil && string(twin) != string(e.encodeNamed(name)) {
		r.add(entryUnlisted(dir, name))
	}
	return err
}

// isDirEntry tells whether an entry counts as a sub-directory: by its inode, if that is there.
func isDirEntry(e *entry, n *inode) bool {
	if n == nil || n.unknown() {
		return e.Type == meta.Directory
	}
	return n.isDir()
}

func (r *checkRun) examineCookie(t *txn, key, value []byte) error {
	var e namedEntry
	if err := parse(key, value, &e); err != nil {
		r.add(unreadable(key, err, func() record { return &namedEntry{} }))
		return nil
	}
	dir, cookie := meta.Ino(number(key, 0)), number(key, 1)
	e.Cookie = cookie
	twin, err := t.peek(entryKey(dir, e.name))
	if err == nil && string(twin) != string(e.encode()) {
		r.add(cookieStray(dir, cookie))
	}
	return err
}

func (r *checkRun) examineXattr(t *txn, key, value []byte) error {
	ino := meta.Ino(number(key, 0))
	if err := r.closeGroup(t, kindXattr, ino); err != nil {
		return err
	}
	r.group.sum += xattrBytes(string(key[9:]), value)
	n, err := t.peek(inodeKey(ino))
	if err != nil || n != nil {
		return err
	}
	queued, err := t.peek(removalKey(ino))
	if err == nil && queued == nil {
		r.add(recordStray(key, "an attribute of inode %d, which is gone", ino))
	}
	return err
}

// closeGroup compares what was counted with the counter when the records of another inode begin.
func (r *checkRun) closeGroup(t *txn, kind byte, next meta.Ino) error {
	g := r.group
	if g.ino == next {
		return nil
	}
	r.group = group{ino: next}
	if g.ino == 0 {
		return nil
	}
	there, err := t.peek(inodeKey(g.ino))
	if err != nil || there == nil {
		return err // the records themselves are wrong, and found
	}
	switch kind {
	case kindEntry:
		value, err := t.peek(countKey(g.ino))
		if err == nil && counter(value) != g.sum && r.walkDir[g.ino].isDir(t, g.ino) {
			r.add(dirCount(g.ino))
		}
		return err
	case kindXattr:
		value, err := t.peek(xattrBytesKey(g.ino))
		if err == nil && counter(value) != g.sum {
			r.add(xattrCount(g.ino))
		}
		return err
	}
	return nil
}

// isDir tells whether a directory is one. What an earlier step has seen is read again.
func (x *dirSeen) isDir(t *txn, ino meta.Ino) bool {
	if x != nil {
		return x.dir != nil
	}
	n, err := t.nodeOf(ino)
	return err == nil && n != nil && (n.isDir() || n.unknown())
}

func (r *checkRun) examineOrphan(t *txn, key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	n, err := t.nodeOf(ino)
	if err != nil {
		return err
	}
	if n.unknown() {
		return nil
	}
	if n == nil || n.Nlink != 0 {
		r.add(recordStray(key, "inode %d is listed without a name, and has one or is gone", ino))
		return nil
	}
	if !r.s.held(ino) {
		r.add(r.s.orphanKept(ino))
	}
	return nil
}

func (r *checkRun) examineTree(t *txn, key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	n, err := t.nodeOf(ino)
	if err == nil && !n.unknown() && (n == nil || !n.isDir() || n.Nlink != 0) {
		r.add(recordStray(key, "directory %d is to be removed, and has a name or is gone", ino))
	}
	return err
}

func (r *checkRun) examinePending(t *txn, key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	n, err := t.nodeOf(ino)
	if err == nil && !n.unknown() && (n == nil || !n.has(flagPending)) {
		r.add(recordStray(key, "inode %d is to be truncated, and is gone or does not know", ino))
	}
	return err
}

// examineOwned looks at records that stand beside an inode.
func (r *checkRun) examineOwned(t *txn, key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	n, err := t.nodeOf(ino)
	if err == nil && !owns(n, key[0]) {
		r.add(recordStray(key, "a record %c of inode %d, which is gone or has no such", key[0], ino))
	}
	return err
}

// owns tells whether an inode may have a record of a kind beside it.
func owns(n *inode, kind byte) bool {
	switch {
	case n == nil:
		return false
	case kind == kindSmall:
		return n.has(flagSmall) || n.unknown()
	}
	return n.isDir() || n.unknown() || kind == kindXattrs
}

// total compares the number of inodes with what is counted.
func (r *checkRun) total() error {
	value, _, err := r.snap.Get([]byte(keyFiles))
	if err == nil && counter(value) != r.inodes {
		r.add(fileCount())
	}
	return err
}
