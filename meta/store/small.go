package store

import (
	"context"
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Small files.
//
// A file that is made by who takes leases is small: its data is in 'F' ino, or nowhere while it is
// empty. One session at a time may write it, the holder of LeaseWrite, who tells the whole of it
// with Commit and Close. The record is |ver |teller u64 |bytes |: the teller is the session that
// has told it, 0 after a truncation. When it moves out the data is at the I/O servers and
// synced before the record goes: so there is no moment at which it is nowhere.
//
// A holder that does not answer a recall is fenced off. What it tells later is refused, because its
// lease is gone (mayTell). What it may have begun to move out is made to fail at the I/O
// servers, by a truncation that the next writer's opening writes down (fence).

// smallHead is what stands before the data.
const smallHead = 1 + 8

// small reads the data of a small file; never nil.
func (t *txn) small(ino meta.Ino) (meta.SmallData, error) {
	key := smallKey(ino)
	value, err := t.read(key)
	if err != nil || value == nil {
		return meta.SmallData{Bytes: []byte{}}, err
	}
	return smallData(key, value)
}

// smallData reads a record. The data lies in value.
func smallData(key, value []byte) (_ meta.SmallData, err error) {
	switch {
	case value[0] > recordVersion:
		err = errs.Newf(errs.Version, "meta.record", "", "key %q was written by a newer build", key)
	case len(value) < smallHead:
		err = errs.Newf(errs.Corrupt, "meta.record", "", "key %q has %d bytes", key, len(value))
	}
	if err != nil {
		return meta.SmallData{}, err
	}
	return meta.SmallData{Bytes: value[smallHead:], Teller: binary.BigEndian.Uint64(value[1:])}, nil
}

// putSmall stores the data of a small file.
func (t *txn) putSmall(ino meta.Ino, n *inode, data []byte, teller uint64) {
	n.Size = int64(len(data))
	value := make([]byte, smallHead, smallHead+len(data))
	value[0] = recordVersion
	binary.BigEndian.PutUint64(value[1:], teller)
	t.put(smallKey(ino), append(value, data...))
}

// cutSmall truncates a small file. One that is empty becomes an ordinary file where it has to.
// What is at the I/O servers nevertheless is cut there.
func (t *txn) cutSmall(ino meta.Ino, n *inode, size int64, spilled bool) error {
	if size > meta.SmallMax {
		return errs.Newf(errs.Unsupported, "meta.small", "",
			"the file's data lies with its metadata: whoever makes it larger moves it out first")
	}
	old, err := t.small(ino)
	if err != nil {
		return err
	}
	data := make([]byte, size)
	copy(data, old.Bytes)
	t.putSmall(ino, n, data, 0)
	n.DataVersion++
	if spilled {
		t.fence(ino, n)
	} else {
		n.TruncSeq++
	}
	return nil
}

// born says whether a new file is small: only who takes leases can write such a file.
func (n *inode) born(c *meta.Caller) {
	if c.Leases && n.Type == meta.Regular && !n.has(flagVolume) {
		n.Flags |= flagSmall
	}
}

// openSmall prepares a small file for a writer.
func (t *txn) openSmall(s *Store, o *opening, n *inode) error {
	if o.claims {
		return nil
	}
	if !o.c.Leases {
		if n.Size > 0 {
			return errs.Newf(errs.Unsupported, "meta.small", "",
				"the file's data lies with its metadata: only who takes leases writes it")
		}
		n.Flags &^= flagSmall
		n.Flags |= flagData
		t.remove(smallKey(o.ino))
		return nil
	}
	own, others, _ := t.open.writer(o.ino, o.c.Session)
	dead := n.has(flagWriters) && !own && !others
	o.fenced = dead || s.lapsed(o.c.Session, o.ino)
	if o.fenced {
		t.fence(o.ino, n)
	}
	return nil
}

// fence keeps a writer that did not answer from what it has begun. The length at the I/O servers
// that is written down is 0: the data is here. It is not changed, and its version says so: the
// writer, if it comes back before others have written, loses nothing.
func (t *txn) fence(ino meta.Ino, n *inode) {
	n.TruncSeq++
	n.Pending = 0
	n.Flags |= flagPending | flagData
	t.put(pendingKey(ino), mark())
}

// heedSpilled has the next writer of a small file kept from what a client may have at the I/O
// servers, unless a truncation has cut that already.
func (s *Store) heedSpilled(ino meta.Ino, spilled meta.Spilled) error {
	if spilled == 0 {
		return nil
	}
	var n *inode
	err := s.look(func(t *txn) (err error) {
		n, err = t.inode(ino)
		return err
	})
	if errs.KindOf(err) == errs.NotFound {
		return nil
	}
	if err == nil && n.has(flagSmall) && spilled == meta.SpilledUnder(n.TruncSeq) {
		s.leases.Lapse(ino)
	}
	return err
}

// lapsed tells whether somebody must be kept from a small file before a session may write it. Not
// while it may: what it has not told yet would be refused.
func (s *Store) lapsed(session uint64, ino meta.Ino) bool {
	return s.leases.Lapsed(ino) && !s.leases.MayWrite(session, ino)
}

// fenceLapsed is for a session that will write and has the file open already: an opening would have
// kept off whoever did not give its lease back.
func (s *Store) fenceLapsed(ctx context.Context, c *meta.Caller, ino meta.Ino) error {
	if !s.lapsed(c.Session, ino) {
		return nil
	}
	wait.Announce(ctx)
	_, err := s.update(ctx, &meta.Caller{Session: c.Session}, func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if !n.has(flagSmall) {
			return errNothing
		}
		t.kv.MakesRoom = true
		t.fence(ino, n)
		t.putInode(ino, n)
		return nil
	})
	if err != nil {
		return err
	}
	s.leases.Forget(ino)
	return s.settleTruncate(ctx, ino)
}

// mayTell refuses what a writer says who has lost its lease, and data for what is not small.
func (t *txn) mayTell(s *Store, c *meta.Caller, w *closing, ino meta.Ino, n *inode) error {
	switch {
	case w.epoch == 0 && !w.whole:
		return nil
	case !s.leases.Writes(c.Session, ino, w.epoch):
		if s.sessions.mayClaim(c.Session) {
			return unclaimed() // it has not heard of the restart yet
		}
	case w.whole && (!n.has(flagSmall) || w.truncSeq != n.TruncSeq):
	default:
		return nil
	}
	return errs.Newf(errs.Fenced, "meta.lease", "", "the lease to write was lost, or the file was cut")
}

// ReadSmall implements meta.Smalls.
func (s *Store) ReadSmall(ctx context.Context, c meta.Caller, ino meta.Ino) (
	meta.Attr, meta.SmallData, error) {

	lane, err := s.queueUp(ctx, &c, ino)
	if err != nil {
		return meta.Attr{}, meta.SmallData{}, errs.Wrap("meta.ReadSmall", "", err)
	}
	defer lane.leave()
	if own, _, _ := s.sessions.writer(ino, c.Session); own {
		err = s.fenceLapsed(ctx, &c, ino)
	}
	if err != nil {
		return meta.Attr{}, meta.SmallData{}, errs.Wrap("meta.ReadSmall", "", err)
	}
	got, err := s.lookInto(ctx, &c, ino)
	switch {
	case err != nil:
	case !got.n.has(flagSmall):
		err = errs.Newf(errs.Invalid, "meta.small", "", "the file is not small")
	case !allowed(&c.Cred, got.n, mayRead) && !s.sessions.has(ino, c.Session):
		err = errs.Access
	}
	if err != nil {
		return meta.Attr{}, meta.SmallData{}, errs.Wrap("meta.ReadSmall", "", err)
	}
	return got.a, got.data, nil
}

// has tells whether a session has an inode open.
func (x *sessions) has(ino meta.Ino, session uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a, o := x.byID[session], x.inodes[ino]
	if a == nil || o == nil || o.handles == 0 {
		return false
	}
	if o.writers[session] != nil {
		return true
	}
	for _, h := range a.open {
		if h.ino == ino {
			return true
		}
	}
	return false
}

// MoveOut implements meta.Smalls.
func (s *Store) MoveOut(ctx context.Context, c meta.Caller, change meta.Change,
	dataVersion uint64) (meta.Attr, error) {

	w := s.closingOf(&change)
	w.whole, w.data = false, nil
	err := w.check()
	if err == nil && w.epoch == 0 {
		err = errs.Newf(errs.Invalid, "meta.MoveOut", "", "without an epoch")
	}
	var a meta.Attr
	if err == nil {
		_, err = s.update(ctx, &c, func(t *txn) error {
			t.kv.MakesRoom = true // the data is there already
			return t.moveOut(s, &c, &w, change.Ino, dataVersion)
		})
	}
	if err == nil {
		a, err = s.toldBy(ctx, &c, change.Ino)
	}
	return a, errs.Wrap("meta.MoveOut", "", err)
}

func (t *txn) moveOut(s *Store, c *meta.Caller, w *closing, ino meta.Ino, version uint64) error {
	n, err := t.inode(ino)
	if err != nil {
		return err
	}
	if err := t.mayTell(s, c, w, ino, n); err != nil {
		return err
	}
	if !n.has(flagSmall) {
		return errNothing // by this client, who has not heard of it
	}
	if n.DataVersion != version || n.TruncSeq != w.truncSeq || n.has(flagPending) {
		return errs.Newf(errs.Conflict, "meta.MoveOut", "", "data version %d, truncations %d, not %d, %d",
			n.DataVersion, n.TruncSeq, version, w.truncSeq)
	}
	n.Flags &^= flagSmall
	n.Flags |= flagData
	t.remove(smallKey(ino))
	w.apply(n, &c.Cred, t.now)
	t.putInode(ino, n)
	return nil
}
