package store

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// closeBatch is how many writers are closed by one commit. Each needs an inode to be checked and
// put, perhaps a record of data, and a quota of its own to be checked and added to: five operations
// of kv.MaxOps. The largest inodes and data fit kv.MaxTxnBytes, too.
const closeBatch = 12

// CloseMany implements meta.Batches. Readers commit nothing. Writers are closed in batches, in the
// order of the list, so that a repetition makes the same ones.
func (s *Store) CloseMany(ctx context.Context, c meta.Caller, all []meta.Closing) (
	[]errs.Kind, error) {

	if len(all) > meta.CloseMax {
		return nil, errs.Newf(errs.Invalid, "meta.CloseMany", "", "%d handles", len(all))
	}
	id := kv.ReqID(c.ReqID)
	if id != (kv.ReqID{}) {
		if err := s.inFlight.enter(ctx, id); err != nil {
			return nil, errs.Wrap("meta.CloseMany", "", err)
		}
		defer s.inFlight.leave(id)
		if kinds := s.inFlight.closedAll(id); kinds != nil {
			return kinds, nil
		}
	}
	kinds := make([]errs.Kind, len(all))
	for start := 0; start < len(all); start += closeBatch {
		end := min(start+closeBatch, len(all))
		b := batch{s: s, c: c, kinds: kinds[start:end]}
		if id != (kv.ReqID{}) {
			n := binary.BigEndian.Uint32(id[12:]) ^ uint32(start+1)
			binary.BigEndian.PutUint32(b.c.ReqID[12:], n)
		}
		if err := b.close(ctx, all[start:end]); err != nil {
			return nil, errs.Wrap("meta.CloseMany", "", err)
		}
	}
	s.inFlight.closeAll(id, kinds)
	return kinds, nil
}

// batch is a part of a CloseMany.
type batch struct {
	s       *Store
	c       meta.Caller
	kinds   []errs.Kind
	writers []writerEnd
	turns   []meta.Ino // that are held
}

// writerEnd is a writer that is being closed. last: it is the last one of the file.
type writerEnd struct {
	i    int // in kinds
	h    *handle
	w    closing
	last bool
}

// close closes what the list says. Two of one file are not closed in one commit: the second one
// comes afterwards.
func (b *batch) close(ctx context.Context, list []meta.Closing) error {
	var again []int
	for i := range list {
		h, err := b.s.sessions.find(b.c.Session, list[i].Handle)
		switch {
		case errs.KindOf(err) == errs.Again:
			return err
		case h == nil:
			b.kinds[i] = errs.Closed
		case !h.writes():
			b.kinds[i] = errs.KindOf(b.s.removeHandle(ctx, h))
		case slices.ContainsFunc(b.writers, func(e writerEnd) bool { return e.h.ino == h.ino }):
			again = append(again, i)
		default:
			e := writerEnd{i: i, h: h}
			if list[i].Dirty {
				e.w = closingOf(&list[i].Change)
			}
			e.w.spilled = list[i].Spilled
			if b.kinds[i] = errs.KindOf(e.w.check()); b.kinds[i] == errs.OK {
				b.writers = append(b.writers, e)
			}
		}
	}
	if err := b.closeWriters(ctx); err != nil {
		return err
	}
	for _, i := range again {
		one := b.c
		if one.ReqID != (meta.Caller{}).ReqID {
			one.ReqID[11] ^= byte(i + 1)
		}
		b.kinds[i] = errs.KindOf(b.s.close(ctx, &one, &list[i]))
		if b.kinds[i].Passing() {
			return b.kinds[i]
		}
	}
	return nil
}

// closeWriters closes writers of different files by one commit. Their turns are taken in the order
// of inode numbers, so that two batches do not wait for each other.
func (b *batch) closeWriters(ctx context.Context) error {
	if len(b.writers) == 0 {
		return nil
	}
	if slices.ContainsFunc(b.writers, func(e writerEnd) bool { return e.w.dirty }) {
		if err := b.s.awaitCalm(ctx); err != nil { // not with a turn, which claims need
			return err
		}
	}
	defer b.letGo(ctx)
	slices.SortFunc(b.writers, func(x, y writerEnd) int {
		if x.h.ino < y.h.ino {
			return -1
		}
		return 1
	})
	for i := range b.writers {
		if err := b.enter(ctx, b.writers[i].h.ino); err != nil {
			return err
		}
	}
	b.writers = slices.DeleteFunc(b.writers, func(e writerEnd) bool {
		now, _ := b.s.sessions.opened(e.h.session, e.h.id)
		if now != e.h {
			b.kinds[e.i] = errs.Closed
		}
		return now != e.h
	})
	for i := range b.writers {
		e := &b.writers[i]
		if err := b.s.heedSpilled(e.h.ino, e.w.spilled); err != nil {
			return err
		}
		writers, known := b.s.sessions.writers(e.h.ino)
		e.last = writers == 1 && known
	}
	if err := b.commit(ctx); err != nil {
		return err
	}
	for i := range b.writers {
		if e := &b.writers[i]; b.kinds[e.i] == errs.OK {
			if e.w.over {
				b.s.leases.Forget(e.h.ino)
			}
			_ = b.s.removeHandle(ctx, e.h)
		}
	}
	return nil
}

func (b *batch) commit(ctx context.Context) error {
	var ch lease.Change
	defer ch.End()
	_, _, err := b.s.apply(ctx, &b.c, &ch, func(t *txn) error {
		t.kv.MakesRoom = true
		changed := false
		for i := range b.writers {
			e := &b.writers[i]
			if !e.w.dirty && !e.last {
				continue
			}
			n, err := t.inode(e.h.ino)
			if err != nil {
				return lost(err, e.h.ino)
			}
			own := b.c
			own.Cred.UID = e.h.uid
			b.kinds[e.i] = errs.KindOf(t.closeOne(b.s, &own, e.h, &e.w, e.last, n))
			changed = changed || b.kinds[e.i] == errs.OK
		}
		if !changed {
			return errNothing
		}
		return nil
	})
	return err
}

// enter takes the turn of a file.
func (b *batch) enter(ctx context.Context, ino meta.Ino) error {
	err := b.s.keepTurn(ctx, ino)
	if err == nil {
		b.turns = append(b.turns, ino)
	}
	return err
}

func (b *batch) letGo(ctx context.Context) {
	for _, ino := range b.turns {
		b.s.sessions.leave(ino)
		b.s.letGo(ctx, ino)
	}
}
