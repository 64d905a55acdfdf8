package lock

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// doneMax is how many answered requests of a session are remembered. A repetition comes while its
// client still waits for the answer, or from a connection that has just been lost; a connection
// carries 64 requests at once, so that these are a few connections' worth.
const doneMax = 256

// session is what a client has.
type session struct {
	locks   int // held and waiting
	files   map[ownedBy]struct{}
	waits   map[ID]*entry
	stopped bool // it is ending
	refused bool // others were, because of what it holds, since Blocking was asked last

	done map[ID]answer
	old  []ID // of done, oldest first
	next int  // in old

	events []meta.LockEvent
	last   uint64        // number of the last event
	change chan struct{} // closed when there is something for Await
}

// ownedBy is a file in which an owner has locks.
type ownedBy struct {
	file  *file
	owner owner
}

// answer is what a request was answered.
type answer struct {
	state meta.LockState
	err   error
}

func (t *Table) sessionOf(id uint64) *session {
	s := t.sessions[id]
	if s == nil {
		s = &session{files: map[ownedBy]struct{}{}, waits: map[ID]*entry{}, done: map[ID]answer{},
			change: make(chan struct{})}
		t.sessions[id] = s
	}
	return s
}

// answered is the answer to a request that was made before.
func (s *session) answered(id ID) (meta.LockState, error, bool) {
	if s.waits[id] != nil {
		return meta.LockQueued, nil, true
	}
	a, known := s.done[id]
	return a.state, a.err, known
}

func (s *session) remember(id ID, state meta.LockState, err error) {
	if id == (ID{}) {
		return
	}
	if _, known := s.done[id]; !known {
		if len(s.old) < doneMax {
			s.old = append(s.old, id)
		} else {
			delete(s.done, s.old[s.next])
			s.old[s.next] = id
			s.next = (s.next + 1) % doneMax
		}
	}
	s.done[id] = answer{state, err}
}

// tell adds an event.
func (s *session) tell(v meta.LockEvent) {
	s.last++
	s.events = append(s.events, v)
	close(s.change)
	s.change = make(chan struct{})
}

// Await returns the events behind a number, as soon as there are some; none when ctx has ended. If
// life is another one than the table's it returns at once. errs.Stale: the session has ended.
func (t *Table) Await(ctx context.Context, sess, life, after uint64) (meta.LockNews, error) {
	for {
		news, change, err := t.news(sess, life, after)
		if err != nil || len(news.Events) > 0 || life != t.opt.Life {
			return news, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return news, nil
		}
	}
}

func (t *Table) news(sess, life, after uint64) (meta.LockNews, chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessionOf(sess)
	if s.stopped {
		return meta.LockNews{}, nil, errs.Newf(errs.Stale, "lock", "", "the session is ending")
	}
	news := meta.LockNews{Life: t.opt.Life, Next: after}
	if life != t.opt.Life {
		news.Next = s.last - uint64(len(s.events))
		return news, nil, nil
	}
	first := s.last - uint64(len(s.events)) // the number before the first one
	if after > first {
		n := int(min(after, s.last) - first)
		s.events = slices.Delete(s.events, 0, n)
		first += uint64(n)
	}
	news.Next = first
	news.Events = slices.Clone(s.events[:min(len(s.events), meta.LockEventMax)])
	news.Next += uint64(len(news.Events))
	return news, s.change, nil
}

// Blocking lists sessions, at most max, whose locks requests of other sessions wait for, or were
// refused for since it was asked last: programs that do not want to wait try again and again. Where
// there are more it is a random choice.
func (t *Table) Blocking(max int) (list []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[uint64]struct{}{}
	add := func(holder uint64) {
		if _, known := seen[holder]; !known {
			seen[holder] = struct{}{}
			list = append(list, holder)
		}
	}
	for id, s := range t.sessions {
		if len(list) == max {
			return list
		}
		if s.refused {
			s.refused = false
			add(id)
		}
		for _, e := range s.waits {
			if len(list) == max {
				return list
			}
			if e.blocker != nil && !e.blocker.queued && e.blocker.owner.session != id {
				add(e.blocker.owner.session)
			}
		}
	}
	return list
}

// refusing notes that a request of a session was refused because of a lock.
func (t *Table) refusing(sess uint64, b *entry) {
	if s := t.sessions[b.owner.session]; s != nil && !b.queued && b.owner.session != sess {
		s.refused = true
	}
}

// Stop ends the waiting of a session that is ending. What it holds stays.
func (t *Table) Stop(sess uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[sess]; s != nil {
		t.stop(s)
	}
}

func (t *Table) stop(s *session) {
	if !s.stopped {
		s.stopped = true
		close(s.change)
		s.change = make(chan struct{})
	}
	var left, freed []*entry
	for _, e := range s.waits {
		left = append(left, e)
	}
	for _, e := range left { // all of them, before anything is granted
		t.leave(e)
		t.forgetHolder(e.owner)
		freed = append(freed, e.hanging...)
		e.hanging = nil
	}
	t.resume(freed)
	for _, e := range left {
		t.tidy(e.file)
	}
}

// End releases everything of a session. Claims of its last life are not waited for any more.
func (t *Table) End(sess uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle(sess)
	s := t.sessions[sess]
	if s == nil {
		return
	}
	t.stop(s)
	var freed []*entry
	for k := range s.files {
		freed = append(freed, t.cut(k.file, k.owner, 0, meta.LockEndMax)...)
		t.tidy(k.file)
	}
	delete(t.sessions, sess)
	t.resume(freed)
}

// Held lists up to max locks that a session holds, in the order of inode, kind, owner and first
// byte, behind a lock; the zero Lock stands before all.
func (t *Table) Held(sess uint64, after meta.Lock, max int) (list []meta.Lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[sess]
	if s == nil {
		return nil
	}
	for k := range s.files {
		for _, e := range k.file.owned[k.owner] {
			if l := e.lock(); order(&l, &after) > 0 {
				list = append(list, l)
			}
		}
	}
	slices.SortFunc(list, func(a, b meta.Lock) int { return order(&a, &b) })
	return list[:min(len(list), max)]
}

// order compares locks of one session by their place. Those of one owner do not overlap.
func order(a, b *meta.Lock) int {
	return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Start, b.Start))
}
