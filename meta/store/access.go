package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// accessBatch is how many accesses one commit notes: each needs an inode to be checked and put. The
// largest inodes, links with long targets, fit kv.MaxTxnBytes too.
const accessBatch = kv.MaxOps/2 - 2

// Accessed implements meta.Accesses. A repetition changes nothing, so that it needs no request id.
func (s *Store) Accessed(ctx context.Context, c meta.Caller, list []meta.Access) error {
	if len(list) > meta.AccessMax {
		return errs.Newf(errs.Invalid, "meta.Accessed", "", "%d accesses", len(list))
	}
	err := checkCaller(&c)
	for err == nil && len(list) > 0 {
		n := min(len(list), accessBatch)
		_, err = s.update(ctx, &meta.Caller{Session: c.Session}, func(t *txn) error {
			return t.accessed(&c.Cred, list[:n])
		})
		list = list[n:]
	}
	return errs.Wrap("meta.Accessed", "", err)
}

// accessed notes accesses. What is changed is not noted as a change: nobody is asked for his lease
// because somebody else reads. Most accesses change nothing: of these the commit does not depend.
func (t *txn) accessed(c *meta.Cred, list []meta.Access) error {
	changed := false
	for i := range list {
		x := &list[i]
		meets, err := t.meets(c, x)
		if err != nil {
			return err
		}
		if !meets {
			continue
		}
		n, err := t.inode(x.Ino)
		if err != nil {
			return err
		}
		n.Atime = x.At
		t.put(inodeKey(x.Ino), n.encode())
		changed = true
	}
	if !changed {
		return errNothing
	}
	return nil
}

// meets tells whether an access changes its inode.
func (t *txn) meets(c *meta.Cred, x *meta.Access) (bool, error) {
	key := inodeKey(x.Ino)
	value, err := t.peek(key)
	if err != nil || value == nil {
		return false, err
	}
	n := &inode{}
	if err := parse(key, value, n); err != nil {
		return false, err
	}
	if n.has(flagVolume) || !allowed(c, n, mayRead) {
		return false, nil
	}
	a, err := t.attr(x.Ino, n)
	return err == nil && x.Meets(&a), err
}
