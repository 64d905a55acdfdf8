package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// verifier holds what the records say about each other. It needs some 100 bytes for each inode.
type verifier struct {
	t       *txn
	report  func(problem string)
	inodes  map[meta.Ino]*inode
	names   map[meta.Ino]int   // names that point to an inode
	sums    map[meta.Ino]int64 // entries and sub-directories, as in 'N'
	readers map[meta.Ino]int   // open handles
	writers map[meta.Ino]int   // those of them that write
	xattrs  map[meta.Ino]int64 // bytes of attributes, as in 'Y'
	quotas  recount
}

// Verify reads all records of one moment and reports every contradiction between them. It changes
// nothing, and operations go on meanwhile.
func (s *Store) Verify(_ context.Context, report func(problem string)) error {
	return s.look(func(t *txn) error { return VerifySnapshot(t.snap, report) })
}

// VerifySnapshot is Verify for a store that nobody serves.
func VerifySnapshot(snap kv.Snapshot, report func(problem string)) error {
	verify := func(t *txn) error {
		v := &verifier{t: t, report: report,
			inodes: map[meta.Ino]*inode{}, names: map[meta.Ino]int{}, sums: map[meta.Ino]int64{},
			readers: map[meta.Ino]int{}, writers: map[meta.Ino]int{}, xattrs: map[meta.Ino]int64{},
			quotas: newRecount(t)}
		for _, step := range []struct {
			kind byte
			fn   func(key, value []byte) error
		}{
			{kindQuota, v.quotas.quota},
			{kindInode, v.inode}, {kindVolume, v.volume}, {kindEntry, v.entry}, {kindCookie, v.cookie},
			{kindOpen, v.open}, {kindWriter, v.writer}, {kindHandle, v.handle}, {kindOrphan, v.orphan},
			{kindPending, v.pending}, {kindReserve, v.reserved}, {kindXattr, v.xattr},
			{kindTree, v.tree}, {kindTimes, v.dirOnly},
			{kindCount, v.dirOnly},
		} {
			if err := v.each(step.kind, step.fn); err != nil {
				return err
			}
		}
		return v.finish()
	}
	return errs.Wrap("meta.Verify", "", verify(&txn{snap: snap, view: true}))
}

// each calls fn for all keys of a kind; an unreadable record is a problem, not the end.
func (v *verifier) each(kind byte, fn func(key, value []byte) error) error {
	prefix := []byte{kind}
	return v.t.snap.Scan(prefix, kv.PrefixEnd(prefix), func(key, value []byte, _ kv.Version) bool {
		if err := fn(key, value); err != nil {
			v.say("%v", err)
		}
		return true
	})
}

func (v *verifier) say(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

func (v *verifier) inode(key, value []byte) error {
	n := &inode{}
	v.inodes[meta.Ino(number(key, 0))] = n
	err := parse(key, value, n)
	v.quotas.inode(n)
	return err
}

func (v *verifier) volume(key, value []byte) error {
	var vol volume
	err := parse(key, value, &vol)
	v.names[vol.Ino]++
	if n := v.inodes[vol.Ino]; err == nil && (n == nil || !n.has(flagVolume)) {
		v.say("volume %q points to inode %d, which is none", key[1:], vol.Ino)
	}
	return err
}

func (v *verifier) entry(key, value []byte) error {
	var e entry
	if err := parse(key, value, &e); err != nil {
		return err
	}
	dir, name := meta.Ino(number(key, 0)), string(key[9:])
	v.names[e.Ino]++
	v.sums[dir]++
	n, d := v.inodes[e.Ino], v.inodes[dir]
	if n == nil || d == nil || !d.isDir() || n.Type != e.Type {
		v.say("entry %q of directory %d: inode %d or the directory is missing or of another type",
			name, dir, e.Ino)
		return nil
	}
	if n.isDir() {
		v.sums[dir] += 1 << 32
		if n.Parent != dir {
			v.say("directory %d is in %d and says it is in %d", e.Ino, dir, n.Parent)
		}
		if !v.quotas.agree(d, e.Ino, n) {
			v.say("directory %d belongs to quota %d, directory %d in it to %d", dir, d.Quota, e.Ino, n.Quota)
		}
	}
	twin, err := v.t.peek(cookieKey(dir, e.Cookie))
	if err == nil && string(twin) != string(e.encodeNamed(name)) {
		v.say("entry %q of directory %d is not listed under its cookie", name, dir)
	}
	return err
}

func (v *verifier) cookie(key, value []byte) error {
	var e namedEntry
	if err := parse(key, value, &e); err != nil {
		return err
	}
	dir := meta.Ino(number(key, 0))
	e.Cookie = number(key, 1)
	twin, err := v.t.peek(entryKey(dir, e.name))
	if err == nil && string(twin) != string(e.encode()) {
		v.say("cookie %d of directory %d lists %q, which is another entry", e.Cookie, dir, e.name)
	}
	return err
}

func (v *verifier) open(key, value []byte) error {
	var h handle
	if err := parse(key, value, &h); err != nil {
		return err
	}
	ino := meta.Ino(number(key, 0))
	v.readers[ino]++
	if h.writes() {
		v.writers[ino]++
	}
	writer, err := v.t.peek(writerKey(ino, number(key, 1), h.UID, number(key, 2)))
	if err == nil && (writer != nil) != h.writes() {
		v.say("handle of inode %d is listed with the writers, or should be", ino)
	}
	if err != nil {
		return err
	}
	twin, err := v.t.peek(handleKey(number(key, 1), number(key, 2)))
	if err == nil && string(twin) != string(value) || h.Ino != ino {
		v.say("handle of inode %d is not known to its session", ino)
	}
	return err
}

func (v *verifier) writer(key, _ []byte) error {
	ino, id := meta.Ino(number(key, 0)), binary.BigEndian.Uint64(key[21:])
	open, err := v.t.peek(openKey(ino, number(key, 1), id))
	if err == nil && open == nil {
		v.say("inode %d lists a writer whose handle is gone", ino)
	}
	return err
}

func (v *verifier) handle(key, value []byte) error {
	var h handle
	if err := parse(key, value, &h); err != nil {
		return err
	}
	session := number(key, 0)
	twin, err := v.t.peek(openKey(h.Ino, session, number(key, 1)))
	if err == nil && string(twin) != string(value) {
		v.say("handle of session %x is not known to inode %d", session, h.Ino)
	}
	owner, err2 := v.t.peek(sessionKey(session))
	if err2 == nil && owner == nil {
		v.say("handle of session %x, which does not exist", session)
	}
	return unlessNil(err, err2)
}

func (v *verifier) orphan(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	if n := v.inodes[ino]; n == nil || n.Nlink != 0 || v.readers[ino] == 0 {
		v.say("orphan %d has a name, no handle, or does not exist", ino)
	}
	return nil
}

func (v *verifier) tree(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	if n := v.inodes[ino]; n == nil || !n.isDir() || n.Nlink != 0 || n.Parent != 0 {
		v.say("directory %d, which is being removed, has a name or does not exist", ino)
	}
	return nil
}

func (v *verifier) pending(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	if n := v.inodes[ino]; n == nil || !n.has(flagPending) {
		v.say("truncation of inode %d is pending, and the inode does not know", ino)
	}
	return nil
}

func (v *verifier) reserved(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	if n := v.inodes[ino]; n == nil || !n.has(flagAppended) || v.writers[ino] == 0 {
		v.say("inode %d has reservations of appends, and no writer, or does not know", ino)
	}
	return nil
}

func (v *verifier) xattr(key, value []byte) error {
	ino := meta.Ino(number(key, 0))
	v.xattrs[ino] += xattrBytes(string(key[9:]), value)
	if v.inodes[ino] != nil {
		return nil
	}
	queued, err := v.t.peek(removalKey(ino))
	if err == nil && queued == nil {
		v.say("attribute %q of inode %d, which is gone", key[9:], ino)
	}
	return err
}

func (v *verifier) dirOnly(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	if n := v.inodes[ino]; n == nil || !n.isDir() {
		v.say("%c of inode %d, which is no directory", key[0], ino)
	}
	return nil
}

// reaches tells whether the way up from a directory ends at the root, or at a tree that is being
// removed.
func (v *verifier) reaches(n *inode) bool {
	for range depthMax {
		if n == v.inodes[meta.RootIno] || n.Nlink == 0 && n.Parent == 0 {
			return true
		}
		if n = v.inodes[n.Parent]; n == nil {
			return false
		}
	}
	return false
}

// finish looks at every inode with all that was gathered.
func (v *verifier) finish() error {
	for ino, n := range v.inodes {
		names := v.names[ino]
		if ino == meta.RootIno {
			names++
		}
		if int(n.Nlink) != names {
			v.say("inode %d has %d names and says %d", ino, names, n.Nlink)
		}
		if n.has(flagWriters) != (v.writers[ino] > 0) {
			v.say("inode %d has %d writers and flags %#x", ino, v.writers[ino], n.Flags)
		}
		listed, err := v.t.peek(treeKey(ino))
		if err != nil {
			return err
		}
		if n.Nlink == 0 && v.readers[ino] == 0 && listed == nil {
			v.say("inode %d has neither name nor handle", ino)
		}
		bytes, err := v.t.peek(xattrBytesKey(ino))
		if err != nil {
			return err
		}
		if sum := counter(bytes); sum != v.xattrs[ino] {
			v.say("inode %d counts %#x bytes of attributes, has %#x", ino, sum, v.xattrs[ino])
		}
		if !n.isDir() {
			continue
		}
		if !v.reaches(n) {
			v.say("directory %d cannot be reached from the root", ino)
		}
		value, err := v.t.peek(countKey(ino))
		if err != nil {
			return err
		}
		if sum := counter(value); sum != v.sums[ino] {
			v.say("directory %d counts %#x, has %#x", ino, sum, v.sums[ino])
		}
	}
	value, err := v.t.peek([]byte(keyFiles))
	if n := counter(value); err == nil && n != int64(len(v.inodes)) {
		v.say("%d inodes, counted %d", len(v.inodes), n)
	}
	if err != nil {
		return err
	}
	return v.quotas.compare(func(d drift) { v.say("%s", d) })
}
