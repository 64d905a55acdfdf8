package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// endOrphan destroys an inode without a name that nobody has open any more, and that counts as
// dying. If that fails it is tried again later: the record 'U' stays until it is done.
func (s *Store) endOrphan(ctx context.Context, ino meta.Ino) {
	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		t.kv.MakesRoom = true
		t.quiet = true // nobody can find it any more
		n, err := t.inode(ino)
		if err != nil {
			return lost(err, ino)
		}
		if n.Nlink != 0 {
			return errNothing
		}
		t.remove(orphanKey(ino))
		t.destroy(ino, n)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.opt.Log.Error("a removed file is not destroyed", "ino", ino, "error", err)
	}
	// Damage is not tried again and again.
	s.sessions.dropped(ino, err == nil || errs.KindOf(err) == errs.Corrupt)
}

// endOrphans destroys orphans that nobody has open: of the last process, once all clients have
// claimed what they have open, and those that could not be destroyed before. It does some, so that
// a round of sessionLoop is short, and has the next round begin at once if there are more.
func (s *Store) endOrphans(ctx context.Context) {
	list := s.sessions.orphans(batchMax)
	for _, ino := range list {
		if ctx.Err() != nil {
			return
		}
		s.endOrphan(ctx, ino)
	}
	if len(list) == batchMax {
		wake(s.swept)
	}
}
