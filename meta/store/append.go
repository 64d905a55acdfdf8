package store

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// errTruncated: the file was truncated since it was measured.
var errTruncated = errors.New("the file was truncated in between")

// Append implements meta.Appends.
//
// The end of a file that is open for writing is known to the I/O servers only, so it is measured
// first. The reservation is a transaction of its own: of two that measured the same end one is
// committed, and the other one finds it in 'R' ino and goes behind it.
func (s *Store) Append(ctx context.Context, c meta.Caller, id uint64, n int64) (
	int64, meta.Attr, error) {

	fail := func(err error) (int64, meta.Attr, error) {
		return 0, meta.Attr{}, errs.Wrap("meta.Append", "", err)
	}
	if n < 0 {
		return fail(errs.Newf(errs.Invalid, "meta.size", "", "%d bytes", n))
	}
	h, err := s.handleOf(c.Session, id)
	if err != nil {
		return fail(err)
	}
	var own appended
	if n == 0 {
		_, err = s.update(ctx, &c, func(t *txn) error { return t.giveBack(&c, h.Ino, id) })
	} else {
		own, err = s.reserve(ctx, &c, h.Ino, id, n)
	}
	if err != nil {
		return fail(err)
	}
	var a meta.Attr
	err = s.look(func(t *txn) (err error) {
		a, err = t.attrOf(h.Ino)
		return err
	})
	if err != nil {
		return fail(err)
	}
	if n > 0 && a.TruncSeq != own.TruncSeq {
		// Voided already. Whoever writes under this sequence is refused, and reserves again.
		a.TruncSeq = own.TruncSeq
	}
	return own.Off, a, nil
}

// reserve measures and reserves until no truncation came in between.
func (s *Store) reserve(ctx context.Context, c *meta.Caller, ino meta.Ino, id uint64, n int64) (
	appended, error) {

	for attempt := 0; ; attempt++ {
		a, err := s.exactAttr(ctx, ino)
		if err != nil {
			return appended{}, err
		}
		var own appended
		replayed, err := s.update(ctx, c, func(t *txn) (err error) {
			own, err = t.reserve(c, ino, id, n, &a)
			return err
		})
		switch {
		case err == errPending || err == errTruncated:
			if err := pause(ctx, attempt); err != nil {
				return appended{}, err
			}
			continue
		case err == nil && replayed:
			return s.reservedBefore(c, ino, id)
		}
		return own, err
	}
}

// reservedBefore finds the answer to a request that is repeated.
func (s *Store) reservedBefore(c *meta.Caller, ino meta.Ino, id uint64) (own appended, err error) {
	err = s.look(func(t *txn) error {
		found, err := t.record(appendedKey(ino, c.Session, id), &own)
		if err == nil && (!found || own.ReqID != c.ReqID) {
			err = errs.Newf(errs.Closed, "meta.Append", "", "the handle has reserved more since")
		}
		return err
	})
	return own, err
}

// reserve takes n bytes behind the measured size and all other reservations.
func (t *txn) reserve(c *meta.Caller, ino meta.Ino, id uint64, n int64, measured *meta.Attr) (
	appended, error) {

	h, node, err := t.writer(c.Session, id)
	switch {
	case err != nil:
		return appended{}, err
	case h.Ino != ino:
		return appended{}, errs.Closed
	case node.has(flagVolume):
		return appended{}, errs.Perm
	case node.has(flagPending):
		return appended{}, errPending
	case node.TruncSeq != measured.TruncSeq:
		return appended{}, errTruncated
	}
	var all reserved
	if _, err := t.record(reservedKey(ino), &all); err != nil {
		return appended{}, err
	}
	off := max(node.Size, measured.Size)
	if all.TruncSeq == node.TruncSeq {
		off = max(off, all.End)
	}
	if n > layout.FileSizeMax || off > layout.FileSizeMax-n {
		return appended{}, errs.TooBig
	}
	own := appended{ReqID: c.ReqID, TruncSeq: node.TruncSeq, Off: off, End: off + n}
	all = reserved{TruncSeq: node.TruncSeq, End: own.End}
	t.put(reservedKey(ino), all.encode())
	t.put(appendedKey(ino, c.Session, id), own.encode())
	if !node.has(flagAppended) {
		node.Flags |= flagAppended
		t.putInode(ino, node)
	}
	return own, nil
}

// giveBack ends the latest reservation of a handle, if nothing was reserved behind it.
func (t *txn) giveBack(c *meta.Caller, ino meta.Ino, id uint64) error {
	if _, _, err := t.writer(c.Session, id); err != nil {
		return err
	}
	var own appended
	var all reserved
	key := appendedKey(ino, c.Session, id)
	found, err := t.record(key, &own)
	if err == nil && found {
		found, err = t.record(reservedKey(ino), &all)
	}
	if err != nil || !found || all != (reserved{TruncSeq: own.TruncSeq, End: own.End}) {
		return unlessNil(err, errNothing)
	}
	all.End = own.Off
	t.put(reservedKey(ino), all.encode())
	t.remove(key)
	return nil
}

// endAppends forgets the reservation of a handle that is being closed, and all of them with the
// last writer: from then on the stored size is the end.
func (t *txn) endAppends(ino meta.Ino, n *inode, session, id uint64, last bool) {
	if !n.has(flagAppended) {
		return
	}
	t.remove(appendedKey(ino, session, id))
	if last {
		t.remove(reservedKey(ino))
		n.Flags &^= flagAppended
	}
}

// writer reads a handle that must be open for writing, and its inode.
func (t *txn) writer(session, id uint64) (h handle, n *inode, err error) {
	found, err := t.record(handleKey(session, id), &h)
	if err == nil && (!found || !h.writes()) {
		err = errs.Closed
	}
	if err == nil {
		n, err = t.inode(h.Ino)
	}
	return h, n, err
}

// record reads a record, if there is one.
func (t *txn) record(key []byte, r record) (bool, error) {
	value, err := t.read(key)
	if err != nil || value == nil {
		return false, err
	}
	return true, parse(key, value, r)
}
