package store

import (
	"context"
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
	names   map[meta.Ino]int    // names that point to an inode
	sums    map[meta.Ino]int64  // entries and sub-directories, as in 'N'
	homes   map[[2]meta.Ino]int // names of an inode in a directory, of those that are none
	orphans map[meta.Ino]bool
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
			homes:   map[[2]meta.Ino]int{},
			orphans: map[meta.Ino]bool{}, xattrs: map[meta.Ino]int64{},
			quotas: newRecount(t)}
		for _, step := range []struct {
			kind byte
			fn   func(key, value []byte) error
		}{
			{kindQuota, v.quotas.quota},
			{kindInode, v.inode}, {kindVolume, v.volume}, {kindEntry, v.entry}, {kindCookie, v.cookie},
			{kindOrphan, v.orphan}, {kindSmall, v.small}, {kindPending, v.pending}, {kindXattr, v.xattr},
			{kindPool, v.pool}, {kindTree, v.tree}, {kindTimes, v.dirOnly}, {kindCount, v.dirOnly},
			{kindRegistry, v.registry}, {kindHost, v.host},
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

func (v *verifier) pool(key, value []byte) error { return parse(key, value, &pool{}) }

func (v *verifier) host(key, value []byte) error {
	return parse(key, value, registryRecord{&meta.Host{}})
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
	if !n.isDir() {
		v.homes[[2]meta.Ino{e.Ino, dir}]++
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

func (v *verifier) orphan(key, _ []byte) error {
	ino := meta.Ino(number(key, 0))
	v.orphans[ino] = true
	if n := v.inodes[ino]; n == nil || n.Nlink != 0 {
		v.say("orphan %d has a name or does not exist", ino)
	}
	return nil
}

func (v *verifier) small(key, value []byte) error {
	ino := meta.Ino(number(key, 0))
	n := v.inodes[ino]
	if n == nil || !n.has(flagSmall) {
		v.say("data of the small file %d, which is none", ino)
	} else if int64(len(value)-smallHead) != n.Size {
		v.say("small file %d has %d bytes and says %d", ino, len(value)-smallHead, n.Size)
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

// homesOf looks whether an inode has the names that it says it has.
func (v *verifier) homesOf(ino meta.Ino, n *inode) {
	if n.Nlink == 0 { // where it was found once
		return
	}
	for _, x := range append([]home{n.homes.first}, n.homes.rest...) {
		if has := v.homes[[2]meta.Ino{ino, x.dir}]; has < int(x.names) {
			v.say("inode %d has %d names in directory %d and says %d", ino, has, x.dir, x.names)
		}
	}
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
		listed, err := v.t.peek(treeKey(ino))
		if err != nil {
			return err
		}
		if n.Nlink == 0 && !v.orphans[ino] && listed == nil {
			v.say("inode %d has no name, is no orphan and no tree that is being removed", ino)
		}
		if n.has(flagSmall) && n.Size > 0 {
			if data, err := v.t.peek(smallKey(ino)); err != nil || data == nil {
				v.say("small file %d of %d bytes has lost its data", ino, n.Size)
			}
		}
		bytes, err := v.t.peek(xattrBytesKey(ino))
		if err != nil {
			return err
		}
		if sum := counter(bytes); sum != v.xattrs[ino] {
			v.say("inode %d counts %#x bytes of attributes, has %#x", ino, sum, v.xattrs[ino])
		}
		if !n.isDir() {
			v.homesOf(ino, n)
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
