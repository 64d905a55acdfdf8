package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// closing is what a writer says about its work.
type closing struct {
	dirty    bool
	size     int64
	truncSeq uint64
	mtime    int64
}

func (w *closing) check() error {
	if w.size < 0 {
		return errs.Newf(errs.Invalid, "meta.size", "", "size %d", w.size)
	}
	if w.size > layout.FileSizeMax {
		return errs.TooBig
	}
	return nil
}

// apply brings an inode up to what a writer says. A size from before a truncation is worth
// nothing. Times go forward, except that a time in the future does not stay because of that.
func (w *closing) apply(n *inode, c *meta.Cred, now int64) {
	if w.truncSeq == n.TruncSeq && !n.has(flagVolume) {
		n.Size = max(n.Size, w.size)
	}
	if w.mtime > n.Mtime || n.Mtime > now {
		n.Mtime = w.mtime
	}
	n.Ctime = now
	n.DataVersion++
	if !isRoot(c) {
		dropPrivileges(n)
	}
}

// Commit implements meta.Files. The caller's session must have the file open for writing
// (errs.Closed otherwise).
func (s *Store) Commit(ctx context.Context, c meta.Caller, ino meta.Ino, size int64,
	truncSeq uint64, mtime int64, sync bool) (meta.Attr, error) {

	w := closing{dirty: true, size: size, truncSeq: truncSeq, mtime: mtime}
	var a meta.Attr
	err := w.check()
	if err == nil {
		var replayed bool
		replayed, err = s.update(ctx, &c, func(t *txn) error {
			t.kv.Sync, t.kv.MakesRoom = sync, true // the data is there already
			return t.commit(&c, ino, &w)
		})
		if replayed && sync {
			err = s.kv.Sync(ctx)
		}
	}
	if err == nil {
		err = s.look(func(t *txn) error {
			a, err = t.attrOf(ino)
			return err
		})
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.Commit", "", err)
	}
	s.measureAttr(ctx, &a)
	return a, nil
}

func (t *txn) commit(c *meta.Caller, ino meta.Ino, w *closing) error {
	n, err := t.inode(ino)
	if err != nil {
		return err
	}
	var key []byte
	var bad error
	err = t.scan(opensBy(ino, c.Session), func(k, value []byte) bool {
		var h handle
		if bad = parse(k, value, &h); bad == nil && h.writes() {
			key = append(key, k...)
		}
		return bad == nil && key == nil
	})
	switch {
	case err != nil:
		return err
	case bad != nil:
		return bad
	case key == nil:
		return errs.Closed
	}
	t.demand(key)
	w.apply(n, &c.Cred, t.now)
	t.putInode(ino, n)
	return nil
}

// Close implements meta.Files.
func (s *Store) Close(ctx context.Context, c meta.Caller, handle uint64, dirty bool, size int64,
	truncSeq uint64, mtime int64) error {

	w := closing{dirty: dirty, size: size, truncSeq: truncSeq, mtime: mtime}
	err := w.check()
	if err == nil {
		err = s.closeHandle(ctx, &c, handle, w)
	}
	return errs.Wrap("meta.Close", "", err)
}

func (s *Store) closeHandle(ctx context.Context, c *meta.Caller, id uint64, w closing) error {
	replayed, err := s.update(ctx, c, func(t *txn) error { return t.close(c, id, &w) })
	if err == nil && !replayed {
		s.sessions.release(c.Session)
		wake(s.removed)
	}
	return err
}

// close takes a handle away. Two things hang on it being the last one of its inode: the end of
// an orphan and of the mark that somebody writes. For both the commit depends on the other
// handles staying as they were seen; otherwise two that close at the same time could each take
// the other for the last.
func (t *txn) close(c *meta.Caller, id uint64, w *closing) error {
	key := handleKey(c.Session, id)
	value, err := t.read(key)
	if err != nil {
		return err
	}
	if value == nil {
		return errs.Closed
	}
	var h handle
	if err := parse(key, value, &h); err != nil {
		return err
	}
	t.kv.MakesRoom = true
	t.remove(key)
	t.remove(openKey(h.Ino, c.Session, id))
	orphan, err := t.read(orphanKey(h.Ino))
	if err != nil || orphan == nil && !h.writes() {
		return err
	}
	t.demandSame(opensOf(h.Ino))
	n, err := t.inode(h.Ino)
	if err != nil {
		return lost(err, h.Ino)
	}
	if w.dirty && h.writes() {
		w.apply(n, &c.Cred, t.now)
	}
	others, err := t.writers(h.Ino, c.Session, id)
	if err != nil {
		return err
	}
	if !others {
		n.Flags &^= flagWriters
	}
	last := false
	if orphan != nil {
		if last, err = t.lastHandle(h.Ino, c.Session, id); err != nil {
			return err
		}
	}
	if last {
		t.remove(orphanKey(h.Ino))
		t.destroy(h.Ino, n)
		return nil
	}
	t.putInode(h.Ino, n)
	return nil
}

// lastHandle tells whether no other handle of the inode is open.
func (t *txn) lastHandle(ino meta.Ino, session, id uint64) (bool, error) {
	last := true
	err := t.scan(opensOf(ino), func(key, _ []byte) bool {
		last = number(key, 1) == session && number(key, 2) == id
		return last
	})
	return last, err
}
