package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// Counting a tree that got a quota.
//
// The walk goes from the top down. A directory gets the id before its entries are looked at, so
// what is made in it from then on has the id already; each inode gets it in a transaction that also
// counts it. So the counters are right at every moment for the inodes that carry the id, whatever
// happens to the tree meanwhile, and the walk needs to find the others only:
//
//   - A directory that carries the id leaves the tree only if it is empty, and one that does not
//     carry it holds none that do.
//   - What was in a directory when it got the id, and stays, is listed exactly once.
//   - A directory that comes in with contents raises quota.Moves: then there is another walk.
//
// A process that ends in the middle leaves a tree in which part of the inodes carry the id, and the
// next one walks again. Nothing else is kept.

// countBatch is how many entries one transaction looks at. Each costs a check and a put, and a
// check of the quota that it belonged to before: 48 of kv.MaxOps; the directory, the quota and its
// counters are the others.
const countBatch = 16

// countLoop counts the trees that are not counted yet.
func (s *Store) countLoop(ctx context.Context) {
	s.loop(ctx, s.uncounted, false, func() (left bool) {
		var ids []uint64
		err := s.look(func(t *txn) error {
			return t.scan([]byte{kindQuota}, func(key, value []byte) bool {
				var q quota
				if parse(key, value, &q) == nil && q.Counting {
					ids = append(ids, number(key, 0))
				}
				return true
			})
		})
		for _, id := range ids {
			if err == nil && ctx.Err() == nil {
				err = s.countTree(ctx, id)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.opt.Log.Info("a tree is counted later", "error", err)
		}
		return err != nil
	})
}

// countTree walks a tree until nothing came in behind the walk.
func (s *Store) countTree(ctx context.Context, id uint64) error {
	for ctx.Err() == nil {
		var q *quota
		err := s.look(func(t *txn) (err error) {
			q, err = t.quota(id)
			return err
		})
		if q == nil || err != nil {
			return err
		}
		for dirs := []meta.Ino{q.Dir}; len(dirs) > 0; {
			dir := dirs[len(dirs)-1]
			dirs = dirs[:len(dirs)-1]
			below, err := s.countDir(ctx, id, dir)
			if err != nil {
				return err
			}
			dirs = append(dirs, below...)
		}
		done, err := s.countDone(ctx, id, q.Moves)
		if done || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// countDone ends the count unless a directory came in since moves was read.
func (s *Store) countDone(ctx context.Context, id, moves uint64) (done bool, err error) {
	_, err = s.update(ctx, &meta.Caller{}, func(t *txn) error {
		q, err := t.quota(id)
		if done = err == nil && (q == nil || q.Moves == moves); err != nil || q == nil || !done {
			return unlessNil(err, errNothing)
		}
		q.Counting, q.Moves = false, 0
		t.kv.MakesRoom = true
		t.put(quotaKey(id), q.encode())
		return nil
	})
	return done, err
}

// countDir gives the id to the entries of a directory and returns the directories among them.
func (s *Store) countDir(ctx context.Context, id uint64, dir meta.Ino) (below []meta.Ino,
	err error) {

	for cookie := uint64(0); err == nil; {
		var dirs []meta.Ino
		var next uint64
		_, err = s.update(ctx, &meta.Caller{}, func(t *txn) (err error) {
			dirs, next, err = t.countSome(id, dir, cookie)
			return err
		})
		if errs.KindOf(err) == errs.NotFound { // the directory was removed
			return below, nil
		}
		below = append(below, dirs...)
		if cookie = next; next == 0 {
			break
		}
	}
	return below, err
}

// countSome counts some entries behind a cookie; next is the last one's, 0 at the end. Entries are
// read without a check: whatever takes an entry away, or moves it, also writes its inode.
func (t *txn) countSome(id uint64, dir meta.Ino, cookie uint64) (dirs []meta.Ino, next uint64,
	err error) {

	d, err := t.inode(dir)
	if err != nil {
		return nil, 0, err
	}
	if d.Quota != id {
		return nil, 0, errNothing // it left the tree, or the quota is gone
	}
	inos, next, err := t.entriesFrom(dir, cookie)
	if err != nil {
		return nil, 0, err
	}
	t.kv.MakesRoom = true
	changed := false
	for _, ino := range inos {
		n, err := t.inode(ino)
		if err != nil {
			return nil, 0, lost(err, ino)
		}
		own, _, err := t.tree(n.Quota)
		if err != nil {
			return nil, 0, err
		}
		if n.isDir() && (own == 0 || own == id) {
			dirs = append(dirs, ino)
		}
		if own == 0 {
			changed, n.Quota = true, id
			t.putInode(ino, n)
		}
	}
	if !changed {
		err = errNothing
	}
	return dirs, next, err
}

// entriesFrom reads countBatch entries of a directory behind a cookie.
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
