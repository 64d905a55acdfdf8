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
	measured bool // nobody says what was written: the size is what the I/O servers have
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
// nothing. Times go forward, except that a time in the future does not stay because of that. Where
// nobody says what was written, only a file that has grown shows that it was: others keep their
// times, and get a new data version because they may have been overwritten.
func (w *closing) apply(n *inode, c *meta.Cred, now int64) {
	grown := w.truncSeq == n.TruncSeq && w.size > n.Size && !n.has(flagVolume)
	if w.truncSeq == n.TruncSeq && !n.has(flagVolume) {
		n.Size = max(n.Size, w.size)
	}
	if grown || !w.measured {
		if w.mtime > n.Mtime || n.Mtime > now {
			n.Mtime = w.mtime
		}
		n.Ctime = now
	}
	if w.measured && n.Size > 0 && !n.has(flagVolume) {
		n.Flags |= flagHoles // nobody says either whether it was written without gaps
	}
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
	key, err := t.first(writersBy(ino, c.Session))
	if err != nil {
		return err
	}
	if key == nil {
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
	switch {
	case err != nil:
	case handle != 0 && handle == meta.HandleOf(c.ReqID):
		err = s.takeBack(ctx, &c, handle)
	default:
		err = s.closeHandle(ctx, &c, handle, w)
	}
	return errs.Wrap("meta.Close", "", err)
}

// takeBack closes the handle of an opening whose answer was lost, whether it was done, is being
// done or is still on its way: its request id is used up by a transaction without effect, after
// which it is taken for a repetition and opens nothing.
func (s *Store) takeBack(ctx context.Context, c *meta.Caller, id uint64) error {
	if _, err := s.update(ctx, c, func(*txn) error { return nil }); err != nil {
		return err
	}
	own := meta.Caller{Session: c.Session, Cred: c.Cred}
	if err := s.closeHandle(ctx, &own, id, closing{}); errs.KindOf(err) != errs.Closed {
		return err
	}
	return nil
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
// an orphan and of the mark that somebody writes. Whoever is not the last names another handle that
// the commit depends on; otherwise two that close at the same time could each take the other for
// the last. It costs the same however many handles there are, and handles that only read do not
// conflict over the inode.
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
	open := openKey(h.Ino, c.Session, id)
	t.remove(key)
	t.remove(open)
	if h.writes() {
		t.remove(writerKey(h.Ino, c.Session, h.UID, id))
	}
	orphan, err := t.read(orphanKey(h.Ino))
	if err != nil {
		return err
	}
	if orphan != nil {
		others, err := t.another(opensOf(h.Ino), open)
		if err != nil {
			return err
		}
		if !others {
			return t.endOrphan(h.Ino)
		}
	}
	if !h.writes() {
		return nil
	}
	return t.closeWriter(c, id, &h, w)
}

// closeWriter brings the inode up to what a writer says, and takes the mark of writers away after
// the last one.
func (t *txn) closeWriter(c *meta.Caller, id uint64, h *handle, w *closing) error {
	others, err := t.another(writersOf(h.Ino), writerKey(h.Ino, c.Session, h.UID, id))
	if err != nil {
		return err
	}
	if others && !w.dirty {
		t.remove(appendedKey(h.Ino, c.Session, id))
		return nil
	}
	n, err := t.inode(h.Ino)
	if err != nil {
		return lost(err, h.Ino)
	}
	if w.dirty {
		w.apply(n, &c.Cred, t.now)
	}
	t.endAppends(h.Ino, n, c.Session, id, !others)
	if !others {
		n.Flags &^= flagWriters
	}
	t.putInode(h.Ino, n)
	return nil
}

// endOrphan ends an inode without a name whose last handle is closed.
func (t *txn) endOrphan(ino meta.Ino) error {
	n, err := t.inode(ino)
	if err != nil {
		return lost(err, ino)
	}
	t.remove(orphanKey(ino))
	t.destroy(ino, n)
	return nil
}
