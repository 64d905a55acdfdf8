package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

// How operations use leases.
//
// What an operation changes is noted by the transaction itself (txn.changes): every inode that it
// writes, and every directory whose names it changes. Before the commit these are marked, and
// leases of others are recalled (txn.go, apply). An answer's attributes are read after the lease
// was granted (borrow, then look), or are those of a commit that no other change met (txn.lend).

// parked waits for done. Whoever waits for other clients gives his place at the server back.
func (s *Store) parked(ctx context.Context, done <-chan struct{}, timer <-chan time.Time) error {
	return s.parkedFor(ctx, done, nil, timer)
}

// parkedFor is parked for one of two things.
func (s *Store) parkedFor(ctx context.Context, done, or <-chan struct{},
	timer <-chan time.Time) error {

	if p := wait.ParkerOf(ctx); p != nil {
		p.Park()
		defer func() { _ = p.Unpark(ctx) }()
	}
	select {
	case <-done:
	case <-or:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// await waits until leases are back, or have run out. When the service itself did not run they are
// given more time: the answers may be there already. The looks at the clocks come in the order that
// sessionLoop explains.
func (s *Store) await(ctx context.Context, w *lease.Wait) error {
	for last := s.pulse.last(); w != nil; {
		now := s.steady()
		pulse := s.opt.Pulse()
		s.allowFor(pulse.Sub(last))
		last = pulse
		left := s.leases.Deadline(w).Sub(now)
		if left <= 0 {
			s.leases.Expire(now)
			left = time.Millisecond
		}
		// The table is looked at as often as sessions are: the deadline may change.
		timer := time.NewTimer(min(left, s.opt.Tick))
		err := s.parked(ctx, w.Done, timer.C)
		timer.Stop()
		if err != nil {
			return err
		}
		select {
		case <-w.Done:
			return nil
		default:
		}
	}
	return nil
}

// pulse is when the service is known to have run. Whoever begins to wait may be the first one after
// a pause.
type pulse struct{ at atomic.Pointer[time.Time] }

func (p *pulse) beat(at time.Time) { p.at.Store(&at) }

func (p *pulse) last() time.Time { return *p.at.Load() }

// allowFor gives those who owe leases more time if the service did not run for a while: what they
// have answered may not have been heard yet.
func (s *Store) allowFor(pause time.Duration) {
	if pause > s.opt.Tick+s.opt.LeaseTime/pausePart {
		s.leases.Postpone(s.steady())
	}
}

// visit makes sure that the service knows what it tells of a file: whoever may change it without
// saying so says so now.
func (s *Store) visit(ctx context.Context, c *meta.Caller, ino meta.Ino) error {
	if err := s.awaitWriters(ctx, ino); err != nil || !s.leases.Busy(c.Session, ino) {
		return err
	}
	return s.await(ctx, s.leases.Look(c.Session, ino, meta.LeaseWrite, false, s.steady()))
}

// queueUp is for a session that has a small file open for writing and will write to it: it waits
// for its turn to get the lease, with all others that want to. It leaves the lane when it has it.
func (s *Store) queueUp(ctx context.Context, c *meta.Caller, ino meta.Ino) (lane, error) {
	if own, _, _ := s.sessions.writer(ino, c.Session); !own || !s.leases.Busy(c.Session, ino) {
		return nil, nil
	}
	l, err := s.enterLane(ctx, ino)
	if err != nil {
		return nil, err
	}
	w := s.leases.Look(c.Session, ino, meta.LeaseRead, true, s.steady())
	if err := s.await(ctx, w); err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

// lane is where those stand one behind the other who want LeaseWrite on an inode that others have
// leases on: if all asked at once they would keep it from each other. Who must give a lease back
// never needs it. It holds one token. nil: it was not entered.
type lane chan struct{}

func (s *Store) enterLane(ctx context.Context, ino meta.Ino) (lane, error) {
	l := s.sessions.lane(ino)
	if err := takeTurn(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

func (l lane) leave() {
	if l != nil {
		<-l
	}
}

// borrow asks for a lease before the attributes are read. settle must follow. Whoever writes the
// file cannot do without, however often it was recalled.
func (s *Store) borrow(c *meta.Caller, ino meta.Ino) (serial uint64) {
	if !c.Leases || !s.sessions.isCalm.Load() {
		return 0
	}
	_, serial = s.leases.Grant(c.Session, ino, meta.LeaseRead, false, s.steady())
	if serial != 0 {
		return serial
	}
	if own, _, _ := s.sessions.writer(ino, c.Session); own {
		_, serial = s.leases.Grant(c.Session, ino, meta.LeaseRead, true, s.steady())
	}
	return serial
}

// settle says with the attributes of inode n, which were read after borrow, what the caller may
// rely on. Of a file that is open for writing only its sole writer has a lease; a small file has
// one writer at a time whoever else has it open.
func (s *Store) settle(c *meta.Caller, a *meta.Attr, n *inode, serial uint64) {
	switch {
	case serial == 0:
		return
	case n.settled():
		a.Lease, a.Serial = meta.LeaseRead, serial
		return
	case !n.has(flagPending):
		if own, alone := s.sessions.alone(a.Ino, c.Session); own && (alone || n.has(flagSmall)) {
			s.lendWrite(c, a, n)
		}
	}
	if a.Lease == meta.LeaseNone {
		s.leases.Release(c.Session, a.Ino, serial)
	}
}

// lendWrite gives LeaseWrite to a session that has the file open for writing. Another writer may
// have come meanwhile: then it is taken back, as that one did not find it. A small file has one
// writer at a time; where somebody has to be kept off first, ReadSmall does so (fenceLapsed).
func (s *Store) lendWrite(c *meta.Caller, a *meta.Attr, n *inode) {
	if n.has(flagSmall) {
		mode, serial := s.leases.GrantSmall(c.Session, a.Ino, s.steady())
		if mode == meta.LeaseWrite {
			a.Lease, a.Serial = mode, serial
		}
		return
	}
	mode, serial := s.leases.Grant(c.Session, a.Ino, meta.LeaseWrite, true, s.steady())
	if mode != meta.LeaseWrite {
		return
	}
	if _, alone := s.sessions.alone(a.Ino, c.Session); !alone {
		s.leases.Release(c.Session, a.Ino, serial)
		return
	}
	a.Lease, a.Serial = mode, serial
}

// lent is a lease that a transaction asks for, on an inode whose state after it is the answer.
type lent struct {
	ino    meta.Ino
	mode   meta.LeaseMode
	serial uint64
}

// on is what the lease is, in attributes.
func (l *lent) on(a *meta.Attr) {
	if l.serial != 0 {
		a.Lease, a.Serial = l.mode, l.serial
	}
}
