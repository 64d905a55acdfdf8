package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// SetQuota implements meta.Quotas. The directory gets the id at once, what is below it gets it in
// the background. Writing keyRename keeps directories from moving between the look at where the
// other trees are and the commit.
func (s *Store) SetQuota(ctx context.Context, c meta.Caller, dir meta.Ino, limit meta.Usage) (
	meta.Quota, error) {

	var out meta.Quota
	var id meta.Ino
	err := checkCaller(&c)
	if err == nil && (limit.Bytes < 0 || limit.Inodes < 0) {
		err = errs.Newf(errs.Invalid, "meta.quota", "", "limits %+v", limit)
	}
	if err == nil {
		_, err = s.update(ctx, &c, func(t *txn) error {
			if err := t.mayLimit(&c.Cred); err != nil {
				return err
			}
			return s.setQuota(ctx, t, dir, limit, &id)
		})
	}
	if err == nil {
		wake(s.uncounted)
		out, err = s.quotaOf(dir)
	}
	return out, errs.Wrap("meta.SetQuota", "", err)
}

// mayLimit lets root and the owner of the root directory deal with quotas: who runs a cluster
// without being root is not to do without.
func (t *txn) mayLimit(c *meta.Cred) error {
	n, err := t.inode(meta.RootIno)
	if err == nil && !isOwner(c, n) {
		err = errs.Perm
	}
	return err
}

func (s *Store) setQuota(ctx context.Context, t *txn, dir meta.Ino, limit meta.Usage,
	id *meta.Ino) error {

	n, err := t.inode(dir)
	if err != nil {
		return err
	}
	if !n.isDir() {
		return errs.NotDir
	}
	if n.Nlink == 0 { // its tree is being removed
		return errs.NotFound
	}
	q, err := t.quota(n.Quota)
	if err != nil {
		return err
	}
	if q != nil && q.Dir == dir {
		q.Limit = limit
		t.put(quotaKey(n.Quota), q.encode())
		return nil
	}
	if _, err := t.read([]byte(keyRename)); err != nil {
		return err
	}
	t.put([]byte(keyRename), mark())
	if err := t.apart(dir); err != nil {
		return err
	}
	if err := s.number(ctx, id); err != nil {
		return err
	}
	n.Quota = uint64(*id)
	t.put(quotaKey(n.Quota), (&quota{Dir: dir, Limit: limit, Counting: true}).encode())
	t.put(todoKey(n.Quota, dir), mark())
	t.putInode(dir, n)
	t.kv.MakesRoom = true // what is there counts, whatever the limits are
	return nil
}

// apart refuses a tree that would lie within another one, or around it.
func (t *txn) apart(dir meta.Ino) error {
	all, err := t.quotas()
	if err != nil {
		return err
	}
	within, err := t.within(dir, all)
	if err != nil {
		return err
	}
	if within {
		return errs.Newf(errs.Exists, "meta.quota", "", "it lies in a tree with a quota, and trees "+
			"do not nest")
	}
	holds, err := t.holds(dir, all)
	if err == nil && holds {
		err = errs.Newf(errs.Exists, "meta.quota", "", "a tree below it has a quota, and trees do not "+
			"nest")
	}
	return err
}

// RemoveQuota implements meta.Quotas.
func (s *Store) RemoveQuota(ctx context.Context, c meta.Caller, dir meta.Ino) error {
	err := checkCaller(&c)
	if err == nil {
		_, err = s.update(ctx, &c, func(t *txn) error {
			t.kv.MakesRoom = true
			if err := t.mayLimit(&c.Cred); err != nil {
				return err
			}
			n, err := t.inode(dir)
			if err != nil {
				return err
			}
			q, err := t.quota(n.Quota)
			if err == nil && (q == nil || q.Dir != dir) {
				err = errs.Newf(errs.NoData, "meta.quota", "", "the directory has no quota")
			}
			if err != nil {
				return err
			}
			t.endQuota(n.Quota)
			return nil
		})
		wake(s.uncounted) // what was still to be counted goes
	}
	return errs.Wrap("meta.RemoveQuota", "", err)
}
