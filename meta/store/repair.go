package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// repair settles a file whose writers have died, or were not there any more after a restart: nobody
// says what they wrote, so the size is what was measured just now. What they may have begun to move
// out of a small file is cut. Whoever looks at such a file does it; nobody else would know of it.
// If it cannot be written down now, the next one does it.
func (s *Store) repair(ctx context.Context, a *meta.Attr) {
	if writers, known := s.sessions.writers(a.Ino); writers > 0 || !known {
		return
	}
	if s.keepTurn(ctx, a.Ino) != nil {
		return
	}
	defer s.letGo(ctx, a.Ino)
	defer s.sessions.leave(a.Ino)
	if writers, known := s.sessions.writers(a.Ino); writers > 0 || !known {
		return
	}
	w := closing{measured: true, size: a.Size, truncSeq: a.TruncSeq, mtime: s.now()}
	fenced := false
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		t.quiet = true // nobody has a lease on a file that was being written
		n, err := t.inode(a.Ino)
		if err != nil {
			return err
		}
		if !n.has(flagWriters) || n.has(flagPending) || n.TruncSeq != a.TruncSeq {
			fenced = false
			return errNothing
		}
		w.apply(n, &meta.Cred{UID: 1}, t.now) // nobody knows who wrote: privileges go
		n.Flags &^= flagWriters
		*a = fileAttr(a.Ino, n) // from before the cut, which is not carried out yet
		if fenced = n.has(flagSmall); fenced {
			t.fence(a.Ino, n)
		}
		t.putInode(a.Ino, n)
		return nil
	})
	if err == nil && fenced {
		s.leases.Forget(a.Ino)
	}
	if err != nil && errs.KindOf(err) != errs.NotFound {
		s.opt.Log.Debug("a file whose writers are gone is not settled", "ino", a.Ino, "error", err)
	}
}
