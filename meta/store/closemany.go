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
	[]meta.Ended, error) {

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
			return endedBefore(kinds), nil
		}
	}
	ended := make([]meta.Ended, len(all))
	for start := 0; start < len(all); start += closeBatch {
		end := min(start+closeBatch, len(all))
		b := batch{s: s, c: c, ended: ended[start:end]}
		if id != (kv.ReqID{}) {
			n := binary.BigEndian.Uint32(id[12:]) ^ uint32(start+1)
			binary.BigEndian.PutUint32(b.c.ReqID[12:], n)
		}
		if err := b.close(ctx, all[start:end]); err != nil {
			return nil, errs.Wrap("meta.CloseMany", "", err)
		}
	}
	kinds := make([]errs.Kind, len(ended))
	for i := range ended {
		kinds[i] = ended[i].Kind
	}
	s.inFlight.closeAll(id, kinds)
	return ended, nil
}

// endedBefore is the answer to a repetition. Versions are not remembered, to save memory.
func endedBefore(kinds []errs.Kind) []meta.Ended {
	ended := make([]meta.Ended, len(kinds))
	for i, k := range kinds {
		ended[i].Kind = k
	}
	return ended
}

// batch is a part of a CloseMany.
type batch struct {
	s       *Store
	c       meta.Caller
	ended   []meta.Ended
	writers []writerEnd
	turns   []meta.Ino // that are held
}

// writerEnd is a writer that is being closed. last: it is the last one of the file.
type writerEnd struct {
	i    int // in ended
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
			b.ended[i].Kind = errs.Closed
		case !h.writes():
			b.ended[i].Kind = errs.KindOf(b.s.removeHandle(ctx, h))
		case slices.ContainsFunc(b.writers, func(e writerEnd) bool { return e.h.ino == h.ino }):
			again = append(again, i)
		default:
			e := writerEnd{i: i, h: h}
			if list[i].Dirty {
				e.w = b.s.closingOf(&list[i].Change)
			}
			e.w.spilled = list[i].Spilled
			if b.ended[i].Kind = errs.KindOf(e.w.check()); b.ended[i].Kind == errs.OK {
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
		var err error
		b.ended[i].Version, err = b.s.close(ctx, &one, &list[i])
		if b.ended[i].Kind = errs.KindOf(err); b.ended[i].Kind.Passing() {
			return b.ended[i].Kind
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
			b.ended[e.i].Kind = errs.Closed
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
		if e := &b.writers[i]; b.ended[e.i].Kind == errs.OK {
			b.ended[e.i].Version = e.w.version
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
	_, replayed, err := b.s.apply(ctx, &b.c, &ch, func(t *txn) error {
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
			b.ended[e.i].Kind = errs.KindOf(t.closeOne(b.s, &own, e.h, &e.w, e.last, n))
			changed = changed || b.ended[e.i].Kind == errs.OK
		}
		if !changed {
			return errNothing
		}
		return nil
	})
	if replayed { // the versions that it has made were others
		for i := range b.writers {
			b.writers[i].w.version = 0
		}
	}
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
