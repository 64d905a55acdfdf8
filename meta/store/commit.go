package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// closing is what a writer says about its work.
type closing struct {
	dirty    bool
	holes    bool // it has left some
	measured bool // nobody says what was written: the size is what the I/O servers have
	size     int64
	truncSeq uint64
	mtime    meta.Time
	written  time.Time // when, by the steady clock; zero: nobody says so
	reset    bool      // the time of the file was set after that
	epoch    uint64    // it was done under LeaseWrite, in this epoch
	whole    bool      // data is all that is in a small file
	data     []byte
	spilled  meta.Spilled
	over     bool   // set by closeOne: nobody writes any more
	version  uint64 // set by closeOne: of the data, where this has made it; 0: it has not
}

func (w *closing) check() error {
	if len(w.data) > meta.SmallMax {
		return errs.TooBig
	}
	if w.whole && w.epoch == 0 {
		return errs.Newf(errs.Invalid, "meta.small", "", "data without a lease")
	}
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
func (w *closing) apply(n *inode, c *meta.Cred, now meta.Time) {
	grown := w.truncSeq == n.TruncSeq && w.size > n.Size && !n.has(flagVolume|flagSmall)
	if w.truncSeq == n.TruncSeq && !n.has(flagVolume) && !n.has(flagSmall) {
		n.Size = max(n.Size, w.size)
	}
	if grown || !w.measured {
		w.stamp(n, now)
	}
	if w.measured && n.Size > 0 && !n.has(flagVolume|flagSmall) {
		n.Flags |= flagHoles // nobody says either whether it was written without gaps
	}
	if w.holes && w.truncSeq == n.TruncSeq && !n.has(flagVolume|flagSmall) {
		n.Flags |= flagHoles
	}
	if !w.measured || !n.has(flagSmall) { // what is in a small file is known
		n.DataVersion++
	}
	if !isRoot(c) {
		dropPrivileges(n)
	}
}

// stamp sets the times of an inode that was written.
func (w *closing) stamp(n *inode, now meta.Time) {
	unwritten := w.mtime == meta.Time{}
	if !w.reset && !unwritten && (w.mtime.After(n.Mtime) || n.Mtime.After(now)) {
		n.Mtime = w.mtime
	}
	n.Ctime = w.changed(n, now)
}

// changed is the time of the change of an inode. Under LeaseWrite it is the writer's to say, who
// goes on to answer by himself.
func (w *closing) changed(n *inode, now meta.Time) meta.Time {
	if w.epoch != 0 {
		return meta.Later(n.Ctime, w.mtime)
	}
	return now
}

// Commit implements meta.Files.
func (s *Store) Commit(ctx context.Context, c meta.Caller, change meta.Change, sync bool) (
	meta.Attr, error) {

	w := s.closingOf(&change)
	var a meta.Attr
	err := w.check()
	if err == nil {
		err = s.mayCommit(&c, change.Ino)
	}
	if err == nil {
		var replayed bool
		replayed, err = s.update(ctx, &c, func(t *txn) error {
			t.kv.Sync, t.kv.MakesRoom = sync, true // the data is there already
			n, err := t.inode(change.Ino)
			if err != nil {
				return err
			}
			if err := t.mayTell(s, &c, &w, change.Ino, n); err != nil {
				return err
			}
			return t.note(&w, change.Ino, n, &c)
		})
		if replayed && sync {
			err = s.kv.Sync(ctx)
		}
	}
	if err == nil {
		a, err = s.toldBy(ctx, &c, change.Ino)
	}
	if err != nil {
		return meta.Attr{}, errs.Wrap("meta.Commit", "", err)
	}
	return a, nil
}

// toldBy is tell for who has just told what there is: if nobody else writes nothing is measured.
func (s *Store) toldBy(ctx context.Context, c *meta.Caller, ino meta.Ino) (meta.Attr, error) {
	a, _, err := s.lookAt(ctx, c, ino)
	if err == nil && !a.Small && a.Lease != meta.LeaseWrite {
		s.measure(ctx, &a)
	}
	return a, err
}

// mayCommit demands that the caller's session has the file open for writing.
func (s *Store) mayCommit(c *meta.Caller, ino meta.Ino) error {
	own, _, err := s.sessions.writer(ino, c.Session)
	if err == nil && !own {
		err = errs.Closed
	}
	return err
}

// closingOf is what a writer says. How old that is counts from now, whatever took the message so
// long: a write may count as later than it was, and never as earlier.
func (s *Store) closingOf(w *meta.Change) closing {
	c := closing{dirty: true, holes: w.Holes, size: w.Size, truncSeq: w.TruncSeq, mtime: w.Mtime,
		epoch: w.Epoch, whole: w.Whole, data: w.Data}
	if w.Age > 0 {
		c.written = s.steady().Add(-w.Age)
	}
	return c
}

// note writes down what a writer says.
func (t *txn) note(w *closing, ino meta.Ino, n *inode, c *meta.Caller) error {
	if err := t.dropCapabilities(ino, n); err != nil {
		return err
	}
	w.reset = !w.written.IsZero() && t.open != nil && t.open.timedSince(ino, w.written)
	w.apply(n, &c.Cred, t.now)
	if w.whole {
		t.putSmall(ino, n, w.data, c.Session)
	}
	t.putInode(ino, n)
	return nil
}
