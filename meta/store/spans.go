package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Numbers of inodes that sessions are given beforehand, for what they make by themselves and tell
// later.

// Numbers implements meta.Deferrals.
func (s *Store) Numbers(ctx context.Context, c meta.Caller, n int) (meta.Ino, int, error) {
	n = min(n, meta.NumbersMax)
	if n <= 0 {
		return 0, 0, errs.Newf(errs.Invalid, "meta.Numbers", "", "%d numbers", n)
	}
	if err := s.sessions.touch(c.Session, s.steady()); err != nil {
		return 0, 0, errs.Wrap("meta.Numbers", "", err)
	}
	first, err := s.numbers.reserve(ctx, uint64(n))
	if err == nil {
		err = s.sessions.number(c.Session, span{first, first + uint64(n)})
	}
	if err != nil {
		return 0, 0, errs.Wrap("meta.Numbers", "", err)
	}
	return meta.Ino(first), n, nil
}

// span are numbers that a session may use, [from, to). It uses them in order.
type span struct{ from, to uint64 }

// spansMax is how many spans of a session are remembered: one that it uses, one that it has fetched
// ahead, and what it has not told of those before.
const spansMax = 8

func (x *sessions) number(session uint64, s span) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	if a == nil || a.ending {
		return stale(session)
	}
	if len(a.spans) == spansMax {
		a.spans = a.spans[1:]
	}
	a.spans = append(a.spans, s)
	return nil
}

// owns tells whether a session may use a number.
func (x *sessions) owns(session uint64, ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[session]; a != nil {
		for _, s := range a.spans {
			if s.from <= uint64(ino) && uint64(ino) < s.to {
				return true
			}
		}
	}
	return false
}

// used notes that a session has used a number: it may use higher ones only.
func (x *sessions) used(session uint64, ino meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := x.byID[session]; a != nil {
		for i := range a.spans {
			if s := &a.spans[i]; s.from <= uint64(ino) && uint64(ino) < s.to {
				s.from = uint64(ino) + 1
			}
		}
	}
}
