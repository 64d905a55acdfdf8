package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// growth is how long a file in a tree with a quota may become before the metadata service must be
// asked: the service counts that as used, so that writers stay below the limit without asking for
// each write.
type growth struct {
	bounded bool
	to      int64
}

// allowLocked takes over what an answer says of a file's growth. It counts for one truncate
// sequence: a truncation gives back what was promised.
func (n *inode) allowLocked(h *meta.Handle) {
	if h.Attr.TruncSeq == n.truncSeq {
		n.growth = growth{h.Bounded, h.GrowTo}
	}
}

func (n *inode) allow(h *meta.Handle) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allowLocked(h)
}

// Room asks for the file to become end bytes long, and tells how long it may become: end, or less
// if that is all that the quota of its tree leaves. It fails with errs.Quota if there is not a byte
// behind from, where the caller wants to write, nor behind the file's end. Without a quota it costs
// nothing, and with one it asks the metadata service now and then.
func (f *File) Room(ctx context.Context, from, end int64) (int64, error) {
	for {
		n := f.node
		n.mu.Lock()
		g, size, seq := n.growth, n.size, n.truncSeq
		n.mu.Unlock()
		if end <= max(size, g.to) || !g.bounded || f.fixed {
			return end, nil
		}
		to, err := f.grow(ctx, end)
		if err != nil {
			if have := max(size, g.to); errs.KindOf(err) == errs.Quota && from < have {
				return have, nil
			}
			return 0, errs.Wrap("client.Room", "", err)
		}
		n.mu.Lock()
		same := seq == n.truncSeq
		if same {
			n.growth = growth{to != meta.NoBound, to}
		}
		n.mu.Unlock()
		if same {
			return roomIn(from, min(end, to))
		}
	}
}

func roomIn(from, to int64) (int64, error) {
	if from >= to {
		return 0, errs.Newf(errs.Quota, "client.Room", "", "the tree may hold nothing behind byte %d", to)
	}
	return to, nil
}

// roomAtEnd makes sure that n bytes may be appended to a file that only this client writes.
func (f *File) roomAtEnd(ctx context.Context, n int64) error {
	size := f.Size()
	to, err := f.Room(ctx, size, size+n)
	if err == nil && to < size+n {
		_, err = roomIn(to, to)
	}
	return err
}

// grow asks the service, once more if the session turns out to be lost, or if files of this client
// that are closed may give room back that the service does not know of yet.
func (f *File) grow(ctx context.Context, end int64) (int64, error) {
	g := f.grant.Load()
	s := f.fs.sess.Load()
	to, err := f.fs.svc.Grow(ctx, meta.Caller{Session: g.session}, f.node.ino, end)
	if err != nil && f.fs.checkSession(ctx, s, err) {
		g = f.grant.Load()
		to, err = f.fs.svc.Grow(ctx, meta.Caller{Session: g.session}, f.node.ino, end)
	}
	if f.fs.madeRoom(ctx, err) {
		to, err = f.fs.svc.Grow(ctx, meta.Caller{Session: g.session}, f.node.ino, end)
	}
	return to, err
}

// madeRoom tells whether an operation that failed for want of room is worth another try: files of
// this client were closed, with room to give back, and the service did not know of it yet.
func (fs *FS) madeRoom(ctx context.Context, err error) bool {
	if k := errs.KindOf(err); k != errs.Quota && k != errs.NoSpace || fs.endings.count() == 0 {
		return false
	}
	fs.flushEndings(ctx)
	return true
}

// SetQuota sets the limits of what the tree below a directory may hold; 0 means no limit. See
// meta.Quotas.
func (fs *FS) SetQuota(ctx context.Context, path string, limit meta.Usage) (meta.Quota, error) {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	var q meta.Quota
	if err == nil {
		q, err = fs.svc.SetQuota(ctx, c, p.attr.Ino, limit)
	}
	return q, errs.Wrap("client.SetQuota", path, err)
}

// Quota returns the quota of the tree that a path lies in; errs.NoData if there is none.
func (fs *FS) Quota(ctx context.Context, path string) (meta.Quota, error) {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	var q meta.Quota
	if err == nil {
		q, err = fs.svc.GetQuota(ctx, c, p.attr.Ino)
	}
	return q, errs.Wrap("client.Quota", path, err)
}

// Quotas lists all quotas.
func (fs *FS) Quotas(ctx context.Context) ([]meta.Quota, error) {
	var all []meta.Quota
	for after := uint64(0); ; after = all[len(all)-1].ID {
		page, err := fs.svc.ListQuotas(ctx, fs.self(), after, meta.QuotaPageMax)
		if err != nil {
			return nil, errs.Wrap("client.Quotas", "", err)
		}
		if len(page) == 0 {
			return all, nil
		}
		all = append(all, page...)
	}
}

// RemoveQuota takes the quota from a directory.
func (fs *FS) RemoveQuota(ctx context.Context, path string) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	if err == nil {
		err = fs.svc.RemoveQuota(ctx, c, p.attr.Ino)
	}
	return errs.Wrap("client.RemoveQuota", path, err)
}

// StatfsPath is Statfs of what a path names.
func (fs *FS) StatfsPath(ctx context.Context, path string) (meta.FSStat, error) {
	p, err := fs.existing(ctx, fs.self(), path, true)
	if err != nil {
		return meta.FSStat{}, errs.Wrap("client.Statfs", path, err)
	}
	return fs.Statfs(ctx, p.attr.Ino)
}
