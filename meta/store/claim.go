package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Claim implements meta.Leases. A client is believed: it is trusted with what it has open anyway,
// as it names the users on whose behalf it asks.
func (s *Store) Claim(ctx context.Context, session uint64, life uint32, list []meta.Claimed,
	last bool) ([]meta.Regained, error) {

	if life != s.life {
		return nil, errs.Newf(errs.Conflict, "meta.Claim", "", "this is life %d of the service, not %d",
			s.life, life)
	}
	if len(list) > meta.ClaimMax {
		return nil, errs.Newf(errs.Invalid, "meta.Claim", "", "%d handles", len(list))
	}
	if err := s.sessions.touch(session, s.steady()); err != nil {
		return nil, errs.Wrap("meta.Claim", "", err)
	}
	out := make([]meta.Regained, len(list))
	for i := range list {
		err := s.claim(ctx, session, &list[i], &out[i])
		switch errs.KindOf(err) {
		case errs.OK:
		case errs.NotFound:
			out[i].Gone = true
		default:
			return nil, errs.Wrap("meta.Claim", "", err)
		}
	}
	if last {
		s.sessions.claimed(session)
		wake(s.swept)
	}
	return out, nil
}

// claimed notes that a session has said all that it has open.
func (x *sessions) claimed(session uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[session]; a != nil {
		x.settleLocked(a)
	}
}

// claim opens one handle again.
func (s *Store) claim(ctx context.Context, session uint64, w *meta.Claimed,
	out *meta.Regained) error {

	if err := s.sessions.keep(ctx, w.Ino); err != nil {
		return err
	}
	defer s.letGo(ctx, w.Ino)
	c := meta.Caller{Session: session, Cred: meta.Cred{UID: w.UID}}
	o, err := newOpening(&c, w.Flags&(meta.OpenRead|meta.OpenWrite))
	if err != nil || w.Handle == 0 {
		return unlessNil(err, errs.Newf(errs.Invalid, "meta.Claim", "", "a handle without a number"))
	}
	o.id, o.ino, o.claims, o.grace, o.epoch = w.Handle, w.Ino, true, true, w.Epoch
	if h, err := s.sessions.find(session, w.Handle); err == nil && h != nil { // a repetition
		err = s.look(func(t *txn) (err error) {
			o.n, err = t.inode(o.ino)
			return err
		})
		if err != nil {
			return err
		}
	} else if err := s.openClaimed(ctx, session, o); err != nil {
		return err
	}
	if o.flags&meta.OpenWrite != 0 && !o.n.has(flagSmall) {
		// Somebody who was the only writer, as far as one could know, is not. That is not waited
		// for: the session writes already.
		s.leases.Look(session, o.ino, meta.LeaseWrite, false, s.steady())
	}
	if w.Write && s.unchanged(session, w, o) {
		s.regain(session, o, out)
	}
	// Who claims after the grace time is as others that had the file open then: see endGrace.
	late := o.flags&meta.OpenWrite != 0 && out.Lease != meta.LeaseWrite && s.sessions.isCalm.Load()
	if o.n.has(flagSmall) && (late || w.Spilled == meta.SpilledUnder(o.n.TruncSeq)) {
		s.leases.Lapse(o.ino)
	}
	return nil
}

// openClaimed opens what is claimed.
func (s *Store) openClaimed(ctx context.Context, session uint64, o *opening) error {
	if err := s.sessions.reserve(session, s.opt.HandlesMax, s.opt.HandlesAllMax); err != nil {
		return err
	}
	err := s.openKept(ctx, o)
	if err != nil {
		s.sessions.release(session)
	}
	return err
}

// unchanged tells whether what a session has written under a lease can still be told under it. The
// data of a small file replaces what is there, so that must be what it began with. Others than the
// writers of another file have not changed its data, and regain looks for those.
func (s *Store) unchanged(session uint64, w *meta.Claimed, o *opening) bool {
	if w.DataVersion == meta.AnyVersion {
		return !o.n.has(flagSmall)
	}
	return o.n.DataVersion == w.DataVersion || s.toldLast(session, o)
}

// toldLast tells whether what is in a small file was told by the session itself, which has not got
// the answer: the service ended in between. What it has is later than that.
func (s *Store) toldLast(session uint64, o *opening) bool {
	if !o.n.has(flagSmall) {
		return false
	}
	var data meta.SmallData
	err := s.look(func(t *txn) (err error) {
		data, err = t.small(o.ino)
		return err
	})
	return err == nil && data.Teller == session
}

// regain gives a session LeaseWrite back: nobody has changed the file since it had it, because
// nobody else has it open for writing, or for a small file, has its lease.
func (s *Store) regain(session uint64, o *opening, out *meta.Regained) {
	_, others, _ := s.sessions.writer(o.ino, session)
	if s.leases.Epoch(session) == 0 || !o.n.has(flagSmall) &&
		(others || s.sessions.isCalm.Load() && s.sessions.strangers(session)) {
		return
	}
	mode, serial := s.leases.Regain(session, o.ino, s.steady())
	if mode == meta.LeaseWrite {
		out.Lease, out.Serial, out.DataVersion = mode, serial, o.n.DataVersion
	}
}

// letGo ends sessions.keep.
func (s *Store) letGo(ctx context.Context, ino meta.Ino) {
	if s.sessions.letGo(ino) {
		s.endOrphan(context.WithoutCancel(ctx), ino)
	}
}
