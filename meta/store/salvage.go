package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

const (
	// salvageSkip is how many numbers are left out behind the next one: what is lost may have taken
	// some of them, and no file that was made meanwhile can have reached so far.
	salvageSkip = 1 << 32

	lostDir = "lost+found"

	repairOps = kv.MaxOps / 2 // of one transaction of a repair
)

// Repair brings the records of a store that has lost some into agreement with each other. Nobody
// may serve it. Names whose inode is lost are taken away and reported by their path; inodes whose
// name is lost get one in /lost+found. Sessions and open files are forgotten. Inode numbers go on
// far behind the last one, and stripe objects of earlier numbers are never collected as remains:
// those of lost files may be all that is left of them.
func Repair(ctx context.Context, engine kv.Store, report func(text string)) error {
	r := &repair{ctx: ctx, kv: engine, report: report, now: meta.Now(),
		inodes: map[meta.Ino]*inode{}, names: map[meta.Ino]int{}, sums: map[meta.Ino]int64{},
		dirs: map[meta.Ino]nameAt{}}
	snap := engine.Snapshot()
	err := r.run(snap)
	snap.Close()
	if err == nil {
		err = engine.Sync(ctx)
	}
	return errs.Wrap("meta.Repair", "", err)
}

// repair is one under way. The snapshot stays as it was; what changes is written at once.
type repair struct {
	ctx    context.Context
	kv     kv.Store
	report func(string)
	now    meta.Time
	inodes map[meta.Ino]*inode
	names  map[meta.Ino]int    // names that an inode has
	sums   map[meta.Ino]int64  // entries and sub-directories, as in 'N'
	dirs   map[meta.Ino]nameAt // where a directory is
	next   uint64              // number
	txn    kv.Txn
}

// nameAt is a name in a directory.
type nameAt struct {
	dir  meta.Ino
	name string
}

func (r *repair) say(format string, args ...any) { r.report(fmt.Sprintf(format, args...)) }

func (r *repair) run(snap kv.Snapshot) error {
	for _, step := range []func(kv.Snapshot) error{
		r.readNumbers, r.readInodes, r.root, r.dropOpen, r.entries, r.nameless, r.attributes,
		r.smalls, r.quotas, r.registry, r.counts,
	} {
		if err := step(snap); err != nil {
			return err
		}
		if err := r.commit(); err != nil {
			return err
		}
	}
	return nil
}

func (r *repair) put(key, value []byte) error {
	r.txn.Puts = append(r.txn.Puts, kv.Put{Key: slices.Clone(key), Value: value})
	return r.full()
}

func (r *repair) remove(key []byte) error {
	r.txn.Deletes = append(r.txn.Deletes, slices.Clone(key))
	return r.full()
}

func (r *repair) full() error {
	if r.txn.Effects() < repairOps && r.txn.Bytes() < kv.MaxTxnBytes/4 {
		return nil
	}
	return r.commit()
}

func (r *repair) commit() error {
	if r.txn.Effects() == 0 {
		return nil
	}
	_, err := r.kv.Commit(r.ctx, &r.txn)
	r.txn = kv.Txn{}
	return err
}

// each calls fn for all keys of a kind.
func (r *repair) each(snap kv.Snapshot, kind byte, fn func(key, value []byte) error) error {
	var bad error
	err := snap.Scan([]byte{kind}, kv.PrefixEnd([]byte{kind}),
		func(key, value []byte, _ kv.Version) bool {
			bad = fn(key, value)
			return bad == nil
		})
	if err == nil {
		err = bad
	}
	return err
}

// readNumbers makes numbers go on far behind all that may have been given out.
func (r *repair) readNumbers(snap kv.Snapshot) error {
	value, _, err := snap.Get([]byte(keyNumbers))
	if err != nil {
		return err
	}
	if len(value) == 8 {
		r.next = binary.BigEndian.Uint64(value)
	}
	err = r.each(snap, kindInode, func(key, _ []byte) error {
		r.next = max(r.next, number(key, 0)+1)
		return nil
	})
	if err != nil {
		return err
	}
	r.next += salvageSkip
	lost := forgotten{uint64(meta.RootIno) + 1, r.next}
	if err := r.put([]byte(keyForgotten), lost.encode()); err != nil {
		return err
	}
	return r.put([]byte(keyNumbers), binary.BigEndian.AppendUint64(nil, r.next+blockNumbers))
}

func (r *repair) readInodes(snap kv.Snapshot) error {
	return r.each(snap, kindInode, func(key, value []byte) error {
		n := &inode{}
		if err := parse(key, value, n); err != nil {
			r.say("inode %d cannot be read and is left out: %v", number(key, 0), err)
			return r.remove(key)
		}
		r.inodes[meta.Ino(number(key, 0))] = n
		return nil
	})
}

// root makes the root directory and the format's record if they are lost.
func (r *repair) root(snap kv.Snapshot) error {
	value, _, err := snap.Get([]byte(keyFormat))
	if err != nil {
		return err
	}
	if len(value) != 12 {
		return errs.Newf(errs.Corrupt, "meta.Repair", "", "the record that names the cluster is lost: "+
			"only a backup helps")
	}
	if r.inodes[meta.RootIno] == nil {
		r.say("the root directory's owner and mode are lost: now 0755 of user 0")
		r.inodes[meta.RootIno] = &inode{Type: meta.Directory, Mode: 0o755, Nlink: 1, Gen: 1,
			Atime: r.now, Mtime: r.now, Ctime: r.now, Btime: r.now,
			Parent: meta.RootIno}
	}
	return r.put([]byte(keyRename), mark())
}

// dropOpen forgets sessions and what they had open.
func (r *repair) dropOpen(snap kv.Snapshot) error {
	for _, kind := range []byte{kindSession, kindOrphan, kindCookie, kindCount, kindXattrs,
		kindPending, kindTree} {
		if err := r.each(snap, kind, func(key, _ []byte) error { return r.remove(key) }); err != nil {
			return err
		}
	}
	return nil
}

// smalls looks at the data of small files. What is lost is lost: the file is empty.
func (r *repair) smalls(snap kv.Snapshot) error {
	have := map[meta.Ino]bool{}
	err := r.each(snap, kindSmall, func(key, value []byte) error {
		ino := meta.Ino(number(key, 0))
		n := r.inodes[ino]
		if n == nil || !n.has(flagSmall) || len(value) < smallHead {
			return r.remove(key)
		}
		n.Size, have[ino] = int64(len(value)-smallHead), true
		return nil
	})
	for ino, n := range r.inodes {
		if n.has(flagSmall) && n.Size > 0 && !have[ino] {
			r.say("lost: %d bytes of inode %d", n.Size, ino)
			n.Size = 0
		}
	}
	return err
}

// entries keeps the names whose directory and inode are there.
func (r *repair) entries(snap kv.Snapshot) error {
	if err := r.commit(); err != nil {
		return err
	}
	type lostName struct {
		nameAt
		ino meta.Ino
	}
	var lost []lostName
	err := r.each(snap, kindEntry, func(key, value []byte) error {
		at := nameAt{meta.Ino(number(key, 0)), string(key[9:])}
		var e entry
		err := parse(key, value, &e)
		d, n := r.inodes[at.dir], r.inodes[e.Ino]
		second := n != nil && n.isDir() && r.names[e.Ino] > 0
		if err != nil || d == nil || !d.isDir() || n == nil || n.Type != e.Type || second {
			lost = append(lost, lostName{at, e.Ino})
			return r.remove(key)
		}
		return r.keep(at, &e)
	})
	for _, l := range lost {
		r.say("lost: %s (inode %d)", r.path(l.nameAt), l.ino)
	}
	return err
}

// keep counts a name and lists it under its cookie.
func (r *repair) keep(at nameAt, e *entry) error {
	n := r.inodes[e.Ino]
	r.names[e.Ino]++
	r.sums[at.dir]++
	if n.isDir() {
		r.sums[at.dir] += 1 << 32
		r.dirs[e.Ino], n.Parent = at, at.dir
	} else {
		if r.names[e.Ino] == 1 { // the first that is found: what it says itself may be wrong
			n.homes = homes{}
		}
		n.homes.add(at.dir)
	}
	return r.put(cookieKey(at.dir, e.Cookie), e.encodeNamed(at.name))
}

// path is what a name is called, as far as that is known.
func (r *repair) path(at nameAt) string {
	parts := []string{at.name}
	for range depthMax {
		if at.dir == meta.RootIno {
			break
		}
		up, ok := r.dirs[at.dir]
		if !ok {
			parts = append(parts, fmt.Sprintf("(directory %d)", at.dir))
			break
		}
		parts, at = append(parts, up.name), up
	}
	slices.Reverse(parts)
	return "/" + strings.Join(parts, "/")
}

// nameless gives a name to what lost its own, and its remains to the deletion queue what had none.
func (r *repair) nameless(snap kv.Snapshot) error {
	volumes := map[meta.Ino]bool{}
	err := r.each(snap, kindVolume, func(key, value []byte) error {
		var v volume
		if err := parse(key, value, &v); err != nil || r.inodes[v.Ino] == nil {
			r.say("lost: volume %s (inode %d)", key[1:], v.Ino)
			return r.remove(key)
		}
		volumes[v.Ino] = true
		r.names[v.Ino]++
		return nil
	})
	if err != nil {
		return err
	}
	var found meta.Ino
	for _, ino := range slices.SortedFunc(maps.Keys(r.inodes), cmp.Compare[meta.Ino]) {
		n := r.inodes[ino]
		if ino == meta.RootIno || r.names[ino] > 0 {
			continue
		}
		if n.Nlink == 0 && n.isDir() { // its tree is being removed
			n.Parent = 0
			if err := r.put(treeKey(ino), mark()); err != nil {
				return err
			}
			continue
		}
		if n.Nlink == 0 { // it was removed, and open
			if err := r.destroy(ino, n); err != nil {
				return err
			}
			continue
		}
		if found == 0 {
			if found, err = r.foundDir(snap); err != nil {
				return err
			}
		}
		name := fmt.Sprintf("inode-%d", ino)
		r.say("its name is lost: inode %d is now /%s/%s", ino, lostDir, name)
		if err := r.enter(nameAt{found, name}, ino); err != nil {
			return err
		}
	}
	return nil
}

// foundDir finds or makes /lost+found.
func (r *repair) foundDir(snap kv.Snapshot) (meta.Ino, error) {
	key := entryKey(meta.RootIno, lostDir)
	value, _, err := snap.Get(key)
	if err != nil {
		return 0, err
	}
	var e entry
	if value != nil && parse(key, value, &e) == nil && r.names[e.Ino] > 0 && r.inodes[e.Ino].isDir() {
		return e.Ino, nil
	}
	name := lostDir
	if value != nil {
		name = fmt.Sprintf("%s-%d", lostDir, r.now.UnixNano())
	}
	r.next++
	ino := meta.Ino(r.next)
	r.inodes[ino] = &inode{Type: meta.Directory, Mode: 0o700, Nlink: 1, Gen: newGen(),
		Atime: r.now, Mtime: r.now, Ctime: r.now, Btime: r.now,
		Parent: meta.RootIno}
	return ino, r.enter(nameAt{meta.RootIno, name}, ino)
}

func (r *repair) enter(at nameAt, ino meta.Ino) error {
	r.next++
	e := &entry{Type: r.inodes[ino].Type, Ino: ino, Cookie: r.next}
	if err := r.put(entryKey(at.dir, at.name), e.encode()); err != nil {
		return err
	}
	return r.keep(at, e)
}

func (r *repair) destroy(ino meta.Ino, n *inode) error {
	delete(r.inodes, ino)
	if err := r.remove(inodeKey(ino)); err != nil || !n.has(flagData|flagWithXattr) {
		return err
	}
	rec := removal{n.ref(ino)}
	if !n.has(flagData) {
		rec.Layout.Servers, rec.Layout.Unit = nil, 0
	}
	return r.put(removalKey(ino), rec.encode())
}

// attributes drops the extended attributes and times of what is not there, and counts the bytes of
// the others anew.
func (r *repair) attributes(snap kv.Snapshot) error {
	bytes := map[meta.Ino]int64{}
	err := r.each(snap, kindXattr, func(key, value []byte) error {
		ino := meta.Ino(number(key, 0))
		if r.inodes[ino] != nil {
			bytes[ino] += xattrBytes(string(key[9:]), value)
			return nil
		}
		queued, _, err := snap.Get(removalKey(ino))
		if err != nil || queued != nil {
			return err
		}
		return r.remove(key)
	})
	if err != nil {
		return err
	}
	for ino, sum := range bytes {
		b := binary.BigEndian.AppendUint64(nil, uint64(sum))
		if err := r.put(xattrBytesKey(ino), b); err != nil {
			return err
		}
	}
	return r.each(snap, kindTimes, func(key, _ []byte) error {
		if n := r.inodes[meta.Ino(number(key, 0))]; n != nil && n.isDir() {
			return nil
		}
		return r.remove(key)
	})
}

// counts writes every inode as it is now, and what is counted.
func (r *repair) counts(snap kv.Snapshot) error {
	for ino, n := range r.inodes {
		if n.has(flagWriters) && !n.has(flagVolume) {
			r.say("inode %d was being written: what was not synced may be missing at its end", ino)
			n.Flags |= flagHoles // its writers cannot say whether it has some
		}
		n.Flags &^= flagWriters
		if n.Nlink != 0 || !n.isDir() || r.names[ino] > 0 {
			n.Nlink = max(1, uint32(r.names[ino]))
		}
		if err := r.put(inodeKey(ino), n.encode()); err != nil {
			return err
		}
		if n.has(flagPending) {
			if err := r.put(pendingKey(ino), mark()); err != nil {
				return err
			}
		}
		if !n.isDir() {
			continue
		}
		sum := binary.BigEndian.AppendUint64(nil, uint64(r.sums[ino]))
		if err := r.put(countKey(ino), sum); err != nil {
			return err
		}
	}
	files := binary.BigEndian.AppendUint64(nil, uint64(len(r.inodes)))
	return r.put([]byte(keyFiles), files)
}
