package lock

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// What a waiting request depends on: the owners of all held locks that it conflicts with; and the
// owner of the earlier request that it hangs on, if it does, which is only a matter of fairness. An
// owner depends on what its waiting requests depend on.
//
// No circle is left standing. A request that begins to wait looks for one. A request that hangs on
// an earlier one chooses it so that there is none. A lock that is granted adds dependencies on its
// owner, which are part of a circle only if that owner waits elsewhere: recheck looks at those.

// search looks for an owner among those that a request depends on, by whatever way. It visits each
// request once.
type search struct {
	t    *Table
	want owner
	fair bool // dependencies for the sake of fairness count
	seen map[*entry]struct{}
	path []step // from the first request to one that depends on the owner directly
}

// step is a request, and whether it depends on the next one for the sake of fairness only.
type step struct {
	e    *entry
	fair bool
}

// awaits tells whether the owner of a request depends on another owner.
func (t *Table) awaits(e *entry, o owner) bool {
	h := t.owners[o]
	if h == nil {
		return false // it has nothing that anybody could wait for
	}
	s := search{t: t, want: o, fair: true, seen: map[*entry]struct{}{}}
	return s.owner(e.owner)
}

// request searches from a waiting request.
func (s *search) request(e *entry) bool {
	if _, been := s.seen[e]; been {
		return false
	}
	s.seen[e] = struct{}{}
	at := len(s.path)
	s.path = append(s.path, step{e: e})
	if e.file.conflicts(e, func(x *entry) bool { return s.owner(x.owner) }) {
		return true
	}
	s.path[at].fair = true
	if s.fair && e.blocker != nil && e.blocker.queued && s.owner(e.blocker.owner) {
		return true
	}
	s.path = s.path[:at]
	return false
}

// owner searches from an owner.
func (s *search) owner(o owner) bool {
	if o == s.want {
		return true
	}
	h := s.t.owners[o]
	if h == nil {
		return false
	}
	for _, e := range h.waits {
		if s.request(e) {
			return true
		}
	}
	return false
}

// circle finds a circle of dependencies that a waiting request is part of; nil: there is none.
func (t *Table) circle(e *entry, fair bool) []step {
	s := search{t: t, want: e.owner, fair: fair, seen: map[*entry]struct{}{}}
	if !s.request(e) {
		return nil
	}
	return s.path
}

// deadlocked tells whether a waiting request is part of a circle of held locks. Circles in which
// somebody waits for the sake of fairness only are broken: that request passes, or hangs on another
// one.
func (t *Table) deadlocked(e *entry) bool {
	for e.queued {
		h := t.owners[e.owner]
		if h.held == 0 && len(h.waits) == 1 && len(e.hanging) == 0 {
			return false // nobody waits for its owner
		}
		if t.circle(e, false) != nil {
			return true
		}
		all := t.circle(e, true)
		i := slices.IndexFunc(all, func(x step) bool { return x.fair })
		if i < 0 {
			return false
		}
		all[i].e.unhang()
		t.resume([]*entry{all[i].e})
	}
	return false
}

// recheck looks for circles that a new lock closes: its owner waits elsewhere, by another thread of
// a process, for who waits for this lock. Then the one that waits for it is refused.
func (t *Table) recheck(e *entry) {
	if h := t.owners[e.owner]; h == nil || len(h.waits) == 0 {
		return
	}
	var waiting []*entry
	for _, tr := range against(&e.file.waiting, e.typ) {
		tr.find(e.start, e.end, anySerial, func(x *entry) bool {
			if x.owner != e.owner {
				waiting = append(waiting, x)
			}
			return false
		})
	}
	for _, x := range waiting {
		if x.queued && t.deadlocked(x) {
			t.refuse(x, errs.Deadlock)
		}
	}
}
