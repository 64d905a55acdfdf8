package store

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// Counting a tree that got a quota.
//
// It goes from the top down. A directory gets the id before its entries are looked at, so what is
// made in it from then on has the id already; each inode gets it in a transaction that also counts
// it. So the counters are right at every moment for the inodes that carry the id, whatever happens
// to the tree meanwhile. To find the others there is a list, 'K' quota 'd', of the directories that
// carry the id and whose entries are not all looked at: the transaction that gives a directory the
// id puts it there, the one that ends the look at its entries takes it away. The tree is counted
// when the list is empty, and wherever the directories go meanwhile nothing is forgotten:
//
//   - What was in a directory when it got the id is either still there, and comes when its entries
//     are listed, exactly once; or it went elsewhere: to a directory with the id it goes as what
//     carries it (movequota.go), and a directory without it holds nothing that does.
//   - A directory leaves the tree only when it is empty. If it comes back with contents it is put
//     on the list again, and who is looking at it notices by the version of that record.
//
// A process that ends in the middle leaves the list, and the next one goes on.

// countBatch is how many entries one transaction looks at. Each costs a check and a put of its
// inode, a check of the quota that it belonged to, and a put to the list: 48 of kv.MaxOps. The
// directory, its place on the list, the quota and its counters are 6 more.
const countBatch = 12

// countLoop counts the trees that are not counted yet.
func (s *Store) countLoop(ctx context.Context) {
	s.loop(ctx, s.uncounted, false, func() (left bool) {
		err := s.countTrees(ctx)
		if err != nil && ctx.Err() == nil {
			s.opt.Log.Info("a tree is counted later", "error", err)
		}
		return err != nil
	})
}

// countTrees empties all lists. Those of quotas that are gone are among them.
func (s *Store) countTrees(ctx context.Context) error {
	var ids []uint64
	err := s.look(func(t *txn) error {
		err := t.scan([]byte{kindQuota}, func(key, value []byte) bool {
			var q quota
			if parse(key, value, &q) == nil && q.Counting {
				ids = append(ids, number(key, 0))
			}
			return true
		})
		for start := []byte{kindUsage}; err == nil && start != nil; {
			start, err = t.firstIn(start, kv.PrefixEnd([]byte{kindUsage}))
			if start == nil || err != nil {
				break
			}
			id := number(start, 0)
			if start[9] == usageTodo {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
				start = kv.PrefixEnd(todosOf(id))
			} else {
				start = append(start, 0)
			}
		}
		return err
	})
	for _, id := range ids {
		if err == nil {
			err = s.countTree(ctx, id)
		}
	}
	return err
}

// countTree looks at the directories on a quota's list until there are none.
func (s *Store) countTree(ctx context.Context, id uint64) error {
	for ctx.Err() == nil {
		var key []byte
		err := s.look(func(t *txn) (err error) {
			key, err = t.first(todosOf(id))
			return err
		})
		if err != nil {
			return err
		}
		if key != nil {
			err = s.countDir(ctx, id, meta.Ino(number(key[1:], 1)))
		} else {
			var done bool
			if done, err = s.countDone(ctx, id); done {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// countDone ends the count unless there is a directory on the list.
func (s *Store) countDone(ctx context.Context, id uint64) (done bool, err error) {
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		some, err := t.first(todosOf(id))
		if done = err == nil && some == nil; !done {
			return unlessNil(err, errNothing)
		}
		q, err := t.quota(id)
		if err != nil || q == nil || !q.Counting {
			return unlessNil(err, errNothing)
		}
		t.demandNone(todosOf(id))
		q.Counting = false
		t.kv.MakesRoom = true
		t.put(quotaKey(id), q.encode())
		return nil
	})
	return done, err
}

// countDir gives the id to the entries of a directory and takes it from the list.
func (s *Store) countDir(ctx context.Context, id uint64, dir meta.Ino) error {
	c := count{id: id, dir: dir}
	for err := ctx.Err(); ; {
		if err == nil {
			_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
				t.kv.MakesRoom = true
				return t.countSome(&c)
			})
		}
		if err != nil || c.next == 0 {
			return err
		}
		c.cookie = c.next
	}
}

// count is the look at one directory.
type count struct {
	id      uint64
	dir     meta.Ino
	version kv.Version // of its record on the list when the look began
	cookie  uint64     // of the last entry that was looked at
	next    uint64     // of the last entry of an attempt; 0: that was the end
}

// countSome counts some entries. They are read without a check: whatever takes an entry away, or
// moves it, also writes its inode.
func (t *txn) countSome(c *count) error {
	key := todoKey(c.id, c.dir)
	value, version, err := t.snap.Get(key)
	if c.next = 0; err != nil || value == nil {
		return unlessNil(err, errNothing)
	}
	if c.cookie == 0 {
		c.version = version
	}
	if version != c.version {
		return errNothing // it was away, and is looked at anew
	}
	if _, err := t.read(key); err != nil {
		return err
	}
	d, err := t.inode(c.dir)
	if err != nil && errs.KindOf(err) != errs.NotFound {
		return err
	}
	if q, qerr := t.quota(c.id); qerr != nil {
		return qerr
	} else if err != nil || q == nil || d.Quota != c.id { // it is gone, or left the tree
		t.remove(key)
		return nil
	}
	inos, next, err := t.entriesFrom(c.dir, c.cookie)
	if err != nil {
		return err
	}
	changed := next == 0
	for _, ino := range inos {
		some, err := t.countInode(c.id, ino)
		if err != nil {
			return err
		}
		changed = changed || some
	}
	if c.next = next; next == 0 {
		t.remove(key)
	}
	if !changed {
		return errNothing
	}
	return nil
}

// countInode gives the id to an inode that belongs to no tree.
func (t *txn) countInode(id uint64, ino meta.Ino) (changed bool, err error) {
	n, err := t.inode(ino)
	if err != nil {
		return false, lost(err, ino)
	}
	own, _, err := t.tree(n.Quota)
	if err != nil || own != 0 {
		return false, err
	}
	n.Quota = id
	if n.isDir() {
		t.put(todoKey(id, ino), mark())
	}
	t.putInode(ino, n)
	return true, nil
}

// entriesFrom reads countBatch entries of a directory behind a cookie; next is the last one's, 0 at
// the end.
func (t *txn) entriesFrom(dir meta.Ino, cookie uint64) (inos []meta.Ino, next uint64, err error) {
	var bad error
	end := kv.PrefixEnd(key1(kindCookie, uint64(dir)))
	err = t.snap.Scan(append(cookieKey(dir, cookie), 0), end,
		func(key, value []byte, _ kv.Version) bool {
			var e namedEntry
			if bad = parse(key, value, &e); bad != nil {
				return false
			}
			inos = append(inos, e.Ino)
			if len(inos) == countBatch {
				next = number(key, 1)
			}
			return len(inos) < countBatch
		})
	if err == nil {
		err = bad
	}
	return inos, next, err
}
