package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// Limits of bytes and data that does not pass the service.
//
// Whoever writes must know before it does how long a file may become. So the inode keeps up to
// where its writers may go (inode.Reserved), and that counts as used: whatever clients do with it,
// all of them together stay below the limit, and nothing is to be remembered elsewhere. It comes
// with the handle, a writer asks for more when it gets there, and the rest is given back in the
// transaction that takes the mark of writers away, after the last one.
//
// A small room is promised in small parts: what lies idle in one file cannot be used by another.

const (
	// growFirst is what the transaction that opens a file promises, so that small files cost no
	// further request, growMore what a writer gets beyond what it asks for: 16 requests a GiB.
	growFirst = 256 << 10
	growMore  = 64 << 20

	// Of what is left one open file is promised a part at the most.
	growFirstPart = 64
	growMorePart  = 16
)

// left tells how many bytes a quota has left; bounded false: there is no limit.
func (t *txn) left(id uint64) (bytes int64, bounded bool, err error) {
	q, err := t.quota(id)
	if q == nil || err != nil || q.Limit.Bytes == 0 {
		return 0, false, err
	}
	used, err := t.used(id)
	return max(0, q.Limit.Bytes-used.Bytes), true, err
}

// growth finds out what a handle says of how long a file may become.
func (t *txn) growth(n *inode) error {
	q, err := t.quota(n.Quota)
	n.bounded = q != nil && q.Limit.Bytes > 0
	return err
}

// promise lets a file that gets its first writer grow a little. The inode must be put after it.
func (t *txn) promise(n *inode) error {
	if n.Quota == 0 || n.has(flagVolume) {
		return nil
	}
	left, bounded, err := t.left(n.Quota)
	if n.bounded = bounded; err != nil || !bounded {
		return err
	}
	n.Reserved = n.Size + min(growFirst, left/growFirstPart)
	t.promised = true
	return nil
}

// Grow implements meta.Quotas.
func (s *Store) Grow(ctx context.Context, c meta.Caller, ino meta.Ino, end int64) (int64, error) {
	var to int64
	err := checkCaller(&c)
	switch {
	case err != nil:
	case end < 0:
		err = errs.Newf(errs.Invalid, "meta.size", "", "size %d", end)
	case end > layout.FileSizeMax:
		err = errs.TooBig
	default:
		c.ReqID = meta.Caller{}.ReqID // a repetition finds the room there
		_, err = s.update(ctx, &c, func(t *txn) (err error) {
			to, err = t.grow(&c, ino, end)
			return err
		})
	}
	return to, errs.Wrap("meta.Grow", "", err)
}

func (t *txn) grow(c *meta.Caller, ino meta.Ino, end int64) (int64, error) {
	n, err := t.inode(ino)
	if err != nil {
		return 0, err
	}
	if n.Quota == 0 || n.has(flagVolume) {
		return meta.NoBound, errNothing
	}
	if own, _, err := t.open.writer(ino, c.Session); !own || err != nil {
		return 0, unlessNil(err, errs.Closed)
	}
	left, bounded, err := t.left(n.Quota)
	if err != nil {
		return 0, err
	}
	if !bounded {
		return meta.NoBound, errNothing
	}
	have := max(n.Size, n.Reserved)
	if end <= have {
		return have, errNothing
	}
	to := min(end+min(growMore, left/growMorePart), have+left)
	if to <= have {
		return 0, errs.Newf(errs.Quota, "meta.quota", "", "no byte is left")
	}
	n.Reserved = to
	t.promised = true
	t.putInode(ino, n)
	return to, nil
}
