package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// Close implements meta.Files.
func (s *Store) Close(ctx context.Context, c meta.Caller, end meta.Closing) error {
	_, err := s.close(ctx, &c, &end)
	return errs.Wrap("meta.Close", "", err)
}

// close closes a handle, and returns the data version that this has made; 0: none.
func (s *Store) close(ctx context.Context, c *meta.Caller, end *meta.Closing) (uint64, error) {
	var w closing
	if end.Dirty {
		w = s.closingOf(&end.Change)
	}
	w.spilled = end.Spilled
	if err := w.check(); err != nil {
		return 0, err
	}
	id := kv.ReqID(c.ReqID)
	if id != (kv.ReqID{}) {
		if err := s.inFlight.enter(ctx, id); err != nil {
			return 0, err
		}
		defer s.inFlight.leave(id)
	}
	if end.Handle != 0 && end.Handle == meta.HandleOf(c.ReqID) {
		return 0, s.takeBack(ctx, c, end.Handle)
	}
	h, err := s.sessions.find(c.Session, end.Handle)
	switch {
	case h == nil && s.inFlight.closed(id):
		return 0, nil
	case errs.KindOf(err) == errs.Again:
		return 0, err
	case h == nil:
		return 0, s.closedBefore(ctx, c)
	}
	if err := s.closeHandle(ctx, c, h, &w); err != nil {
		return 0, err
	}
	s.inFlight.close(id)
	return w.version, nil
}

// closedBefore is the answer to who closes a handle that is not there: success if it was himself.
func (s *Store) closedBefore(ctx context.Context, c *meta.Caller) error {
	if c.ReqID == (meta.Caller{}).ReqID {
		return errs.Closed
	}
	_, done, err := s.known(ctx, kv.ReqID(c.ReqID))
	if err == nil && !done {
		err = errs.Closed
	}
	return err
}

// takeBack closes the handle of an opening whose answer was lost, whether it was done, is being
// done or is still on its way: then it opens nothing any more.
func (s *Store) takeBack(ctx context.Context, c *meta.Caller, id uint64) error {
	h, err := s.sessions.takeBack(c.Session, id)
	if err != nil || h == nil {
		return nil // a session that has ended has no handles
	}
	err = s.closeHandle(ctx, &meta.Caller{Session: c.Session, Cred: c.Cred}, h, &closing{})
	if errs.KindOf(err) == errs.Closed {
		err = nil
	}
	return err
}

// closeHandle takes a handle away. Handles that only read commit nothing; writers do it in turn, so
// that the last one knows that it is.
func (s *Store) closeHandle(ctx context.Context, c *meta.Caller, h *handle, w *closing) error {
	if !h.writes() {
		return s.removeHandle(ctx, h)
	}
	if w.dirty {
		if err := s.awaitCalm(ctx); err != nil { // not with the turn, which claims need
			return err
		}
	}
	if err := s.keepTurn(ctx, h.ino); err != nil {
		return err
	}
	defer s.letGo(ctx, h.ino)
	defer s.sessions.leave(h.ino)
	if now, _ := s.sessions.opened(h.session, h.id); now != h {
		return errs.Closed // by somebody who had the turn before
	}
	if err := s.heedSpilled(h.ino, w.spilled); err != nil {
		return err
	}
	if err := s.closeWriter(ctx, c, h, w); err != nil {
		return err
	}
	return s.removeHandle(ctx, h)
}

// removeHandle forgets a handle.
func (s *Store) removeHandle(ctx context.Context, h *handle) error {
	closed, destroy := s.sessions.close(h)
	if h.writes() {
		s.watched.wake(h.ino)
	}
	if own, _, _ := s.sessions.writer(h.ino, h.session); h.writes() && !own {
		s.leases.Downgrade(h.session, h.ino)
	}
	if destroy {
		s.endOrphan(context.WithoutCancel(ctx), h.ino)
	}
	if !closed {
		return errs.Closed
	}
	return nil
}

// closeWriter brings the inode up to what a writer says, and takes the mark of writers away with
// the last one.
func (s *Store) closeWriter(ctx context.Context, c *meta.Caller, h *handle, w *closing) error {
	writers, known := s.sessions.writers(h.ino)
	last := writers == 1 && known
	if !w.dirty && !last {
		return nil
	}
	var ch lease.Change
	defer ch.End()
	_, replayed, err := s.apply(ctx, c, &ch, func(t *txn) error {
		t.kv.MakesRoom = true
		n, err := t.inode(h.ino)
		if err != nil {
			return lost(err, h.ino)
		}
		return t.closeOne(s, c, h, w, last, n)
	})
	if err == nil && w.over {
		s.leases.Forget(h.ino)
	}
	if replayed {
		w.version = 0 // the version that it has made was another one
	}
	return err
}

// keepTurn keeps an inode and takes its turn.
func (s *Store) keepTurn(ctx context.Context, ino meta.Ino) error {
	if err := s.sessions.keep(ctx, ino); err != nil {
		return err
	}
	err := s.sessions.enter(ctx, ino)
	if err != nil {
		s.letGo(ctx, ino)
	}
	return err
}

// closeOne notes what the end of a writer changes. Where what it says is refused nothing changes,
// and its handle stays: it may tell the same under another lease.
func (t *txn) closeOne(s *Store, c *meta.Caller, h *handle, w *closing, last bool, n *inode) error {
	w.version = 0
	if w.dirty {
		if err := t.mayTell(s, c, w, h.ino, n); err != nil {
			return err
		}
		was := n.DataVersion
		if err := t.note(w, h.ino, n, c); err != nil {
			return err
		}
		if n.DataVersion == was+1 {
			w.version = n.DataVersion
		}
	}
	// A mark without writers has the next one who writes, or looks, cut what is at the I/O servers.
	w.over = last && !(n.has(flagSmall) && s.leases.Lapsed(h.ino))
	if w.over {
		n.Flags &^= flagWriters
	}
	t.putInode(h.ino, n)
	return nil
}
