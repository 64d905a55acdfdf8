package store

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// quotaPathMax bounds the path that is told with a quota, in bytes.
const quotaPathMax = 4 << 10

// GetQuota implements meta.Quotas.
func (s *Store) GetQuota(_ context.Context, _ meta.Caller, ino meta.Ino) (meta.Quota, error) {
	q, err := s.quotaOf(ino)
	return q, errs.Wrap("meta.GetQuota", "", err)
}

func (s *Store) quotaOf(ino meta.Ino) (out meta.Quota, err error) {
	err = s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		q, err := t.quota(n.Quota)
		if err == nil && q == nil {
			err = errs.Newf(errs.NoData, "meta.quota", "", "it belongs to no tree with a quota")
		}
		if err == nil {
			out, err = t.showQuota(n.Quota, q)
		}
		return err
	})
	return out, err
}

// ListQuotas implements meta.Quotas.
func (s *Store) ListQuotas(_ context.Context, _ meta.Caller, after uint64, max int) (
	[]meta.Quota, error) {

	if max <= 0 {
		return nil, errs.Newf(errs.Invalid, "meta.ListQuotas", "", "a page of %d quotas", max)
	}
	max = min(max, meta.QuotaPageMax)
	var page []meta.Quota
	err := s.look(func(t *txn) error {
		var bad error
		start := append(quotaKey(after), 0)
		err := t.snap.Scan(start, kv.PrefixEnd([]byte{kindQuota}),
			func(key, value []byte, _ kv.Version) bool {
				var q quota
				var one meta.Quota
				if bad = parse(key, value, &q); bad == nil {
					one, bad = t.showQuota(number(key, 0), &q)
				}
				if bad == nil {
					page = append(page, one)
				}
				return bad == nil && len(page) < max
			})
		if err == nil {
			err = bad
		}
		return err
	})
	return page, errs.Wrap("meta.ListQuotas", "", err)
}

func (t *txn) showQuota(id uint64, q *quota) (meta.Quota, error) {
	used, err := t.used(id)
	if err != nil {
		return meta.Quota{}, err
	}
	path, err := t.pathOf(q.Dir)
	return meta.Quota{ID: id, Dir: q.Dir, Path: path, Limit: q.Limit, Used: used,
		Counting: q.Counting}, err
}

// pathOf is where a directory is; empty if that is too long to tell.
func (t *txn) pathOf(dir meta.Ino) (string, error) {
	var parts []string
	bytes := 0
	for dir != meta.RootIno {
		n, err := t.inode(dir)
		if err != nil {
			return "", err
		}
		name, err := t.nameOf(n.Parent, dir)
		if err != nil {
			return "", err
		}
		parts, dir = append(parts, name), n.Parent
		if bytes += len(name) + 1; bytes > quotaPathMax || name == "" {
			return "", nil
		}
	}
	slices.Reverse(parts)
	return "/" + strings.Join(parts, "/"), nil
}

// nameOf is the name of a directory in the one above it. Nearly all entries still have the cookie
// that they were made with, which is their inode's number; others are searched for.
func (t *txn) nameOf(parent, dir meta.Ino) (name string, err error) {
	match := func(key, value []byte) bool {
		var e namedEntry
		if parse(key, value, &e) == nil && e.Ino == dir {
			name = e.name
		}
		return name == ""
	}
	key := cookieKey(parent, uint64(dir))
	value, err := t.peek(key)
	if err == nil && (value == nil || match(key, value)) {
		err = t.scan(key1(kindCookie, uint64(parent)), match)
	}
	return name, err
}

// statTree makes the room of the file system that of the tree that an inode belongs to.
func (t *txn) statTree(n *inode, st *meta.FSStat) error {
	q, err := t.quota(n.Quota)
	if q == nil || err != nil {
		return err
	}
	used, err := t.used(n.Quota)
	if limit := q.Limit.Bytes; limit > 0 {
		st.Total = limit
		st.Free = max(0, min(st.Free, limit-used.Bytes))
	}
	st.Files, st.FilesMax = used.Inodes, q.Limit.Inodes
	return err
}
