package lease

import "github.com/sluice-storage/sluice/meta"

// Hear begins a Listen: it takes the acknowledgements of a session. Extended tells whether the
// request extends the leases: only what is recalled from now on can be recalled while they last.
// false: the session does not listen.
func (t *Table) Hear(l *meta.Listening) (extended, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[l.Session]
	if s == nil {
		return false, false
	}
	for i := range l.Acks {
		a := &l.Acks[i]
		if x := s.leases[a.Ino]; x != nil && x.recall == a.Serial {
			if a.MoveOut && x.mode == meta.LeaseWrite {
				t.lapsed[a.Ino] = true // what it has begun at the I/O servers is not over
			}
			t.dropLocked(x)
		}
	}
	return s.owed.Empty(), true
}

// Tell returns the recalls that a session has not seen, and its epoch. wake is closed when there
// are more.
func (t *Table) Tell(id, seen uint64) (recalls []meta.Recall, epoch uint64, wake <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil {
		return nil, 0, nil
	}
	// In order, so that those that are left out are seen the next time.
	for l := s.owed.First(); l != nil && len(recalls) < meta.RecallsMax; l = l.ofOwed.Next() {
		if l.recall > seen {
			recalls = append(recalls, meta.Recall{Ino: l.on.ino, Serial: l.recall, MoveOut: l.moveOut})
		}
	}
	return recalls, s.epoch, s.wake
}
