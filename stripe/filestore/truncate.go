package filestore

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// Truncate implements stripe.Store. Its steps, each ended by a sync:
//
//  1. the header says: sequence n, pending, size s
//  2. the file is cut or extended to s
//  3. the header says: sequence n (not synced)
//
// Up to 1 the object is the old one; from 1 on it is the new one, because whoever meets a
// pending header does 2 and 3 first. 3 needs no sync of its own: it is in the same file as
// all later writes, so that a sync of one of them covers it; without one, repeating 2 after a
// power cut drops nothing that was promised.
func (s *Store) Truncate(ctx context.Context, id stripe.ObjectID, size int64,
	st wire.Stamp) error {
	const op = "filestore.Truncate"
	if err := stripe.CheckRange(ctx, op, id, size, 0); err != nil {
		return err
	}
	o, err := s.admit(op, id, toChange)
	if err != nil {
		return err
	}
	defer s.expel(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := s.prepareLocked(op, o, toChange); err != nil {
		return err
	}
	if err := s.fences.check(op, id); err != nil {
		return err
	}
	if o.state == absent {
		if st.TruncSeq == 0 {
			return nil
		}
		return s.truncateAbsentLocked(o, size, st)
	}
	if err := stripe.CheckStamp(op, id, o.hdr.truncSeq, st); err != nil {
		return err
	}
	if st.TruncSeq > 0 && st.TruncSeq == o.hdr.truncSeq {
		return s.writable(op) // applied before, and stable unless the store has failed
	}
	return s.truncateLocked(o, size, st)
}

func (s *Store) truncateAbsentLocked(o *object, size int64, st wire.Stamp) error {
	if err := s.createLocked(o, pendingHeader(o, size, st)); err != nil {
		return err
	}
	if err := s.flush(context.Background(), o); err != nil {
		return err
	}
	err := s.finishTruncateLocked(o)
	if err != nil && s.broken.Load() == nil {
		if e := s.removeLocked(o); e != nil {
			return e
		}
	}
	return err
}

// pendingHeader announces the truncate.
func pendingHeader(o *object, size int64, st wire.Stamp) header {
	return header{
		id: o.id, truncSeq: st.TruncSeq, epoch: st.Epoch, pending: true, target: size,
		before: o.hdr.truncSeq,
	}
}

func (s *Store) truncateLocked(o *object, size int64, st wire.Stamp) error {
	if err := s.writeHeaderLocked(o, pendingHeader(o, size, st)); err != nil {
		// Whether the file holds the old or the new header is unknown.
		return s.fail("header", o.path, err)
	}
	if err := s.flush(context.Background(), o); err != nil {
		return err
	}
	return s.finishTruncateLocked(o)
}

// finishTruncateLocked does steps 2 and 3 for a pending header that is stable. When the file
// system cannot hold the size nothing has happened, and the header says so again.
func (s *Store) finishTruncateLocked(o *object) error {
	if err := s.writable("filestore.Truncate"); err != nil {
		return err
	}
	err := s.step("ftruncate", o.path)
	if err == nil {
		err = again(func() error { return unix.Ftruncate(o.fd, headerBytes+o.hdr.target) })
	}
	refused := s.changed("Truncate", o.path, err)
	if s.broken.Load() != nil {
		return refused
	}
	o.dirty.Store(true)
	if err := s.flush(context.Background(), o); err != nil {
		return err
	}
	hdr := header{id: o.id, truncSeq: o.hdr.truncSeq, epoch: o.hdr.epoch}
	if refused != nil {
		hdr.truncSeq = o.hdr.before
	}
	if err := s.writeHeaderLocked(o, hdr); err != nil {
		return s.fail("header", o.path, err)
	}
	return refused
}

// Remove implements stripe.Remover. Fenced objects can be removed.
func (s *Store) Remove(ctx context.Context, id stripe.ObjectID) error {
	const op = "filestore.Remove"
	if err := stripe.CheckID(ctx, op, id); err != nil {
		return err
	}
	if err := s.begin(op); err != nil {
		return err
	}
	defer s.end()
	if err := s.writable(op); err != nil {
		return err
	}
	o := s.acquire(id)
	defer s.table.release(o)
	o.mu.Lock()
	defer o.mu.Unlock()
	return errs.Wrap(op, "object "+id.String(), s.removeLocked(o))
}

// removeLocked does not read the file, so that a corrupt one can be removed as well.
func (s *Store) removeLocked(o *object) error {
	if o.state == absent && !o.husk {
		return s.writable("filestore.Remove") // whoever removed it has synced the directory
	}
	err := s.step("unlink", o.path)
	if err == nil {
		err = again(func() error { return unix.Unlink(o.path) })
	}
	if errors.Is(err, unix.ENOENT) {
		o.state = absent
		return nil
	}
	if err != nil {
		return s.fail("unlink", o.path, err)
	}
	o.closeFile()
	o.state, o.hdr, o.newborn, o.husk = absent, header{}, false, false
	o.dirty.Store(false)
	return s.syncDirOf(o)
}
