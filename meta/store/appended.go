package store

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Appends of several clients are reserved one behind the other, and their data arrives in any
// order: what lies before one that has arrived may still be zeroes. So a reservation is remembered
// until its client says that the data is there (Appended); until then nobody is told that the file
// is longer than where it begins, and those behind it wait before they return to their programs.
// Nobody is waited for longer than for a lease.
//
// The holder of LeaseWrite is alone, and need not say anything: before the lease goes back its
// appends have ended.

// pending is a reservation whose data may not be at the I/O servers.
type pending struct {
	handle *handle
	seq    uint64 // of the last truncation before it
	off    int64
	until  time.Time // for how long it is waited for, by the steady clock
	done   bool
}

// pendingLocked notes the reservation that a handle has made just now. It has one at a time.
func (o *opens) pendingLocked(h *handle, now, until time.Time) {
	o.doneLocked(h, now)
	if !until.IsZero() {
		o.pending = append(o.pending,
			pending{handle: h, seq: h.own.TruncSeq, off: h.own.Off, until: until})
	}
}

// doneLocked notes that a handle has nothing on its way any more.
func (o *opens) doneLocked(h *handle, now time.Time) {
	for i := range o.pending {
		if o.pending[i].handle == h {
			o.pending[i].done = true
		}
	}
	o.settleLocked(now)
}

// settleLocked forgets the reservations before which nothing is missing.
func (o *opens) settleLocked(now time.Time) {
	n := 0
	for n < len(o.pending) && (o.pending[n].done || !now.Before(o.pending[n].until)) {
		n++
	}
	if n == 0 {
		return
	}
	if o.pending = o.pending[n:]; len(o.pending) == 0 {
		o.pending = nil
	}
	if o.landed != nil {
		close(o.landed)
		o.landed = nil
	}
}

// landed notes that what a handle has reserved is there. wait is closed when something before it
// is, too, and until is when it is not waited for any longer; nil: all of it is there.
func (x *sessions) landed(h *handle, now time.Time) (wait <-chan struct{}, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[h.ino]
	if o == nil {
		return nil, until
	}
	o.doneLocked(h, now)
	for i := range o.pending {
		if o.pending[i].handle == h {
			if o.landed == nil {
				o.landed = make(chan struct{})
			}
			return o.landed, o.pending[0].until
		}
	}
	return nil, until
}

// shown is how much of a file that was measured under a truncate sequence others are told of.
func (x *sessions) shown(ino meta.Ino, seq uint64, measured int64, now time.Time) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	if o == nil || len(o.pending) == 0 {
		return measured
	}
	o.settleLocked(now)
	for i := range o.pending {
		if p := &o.pending[i]; p.seq == seq {
			return min(measured, p.off)
		}
	}
	return measured
}

// pendingUntil is for how long the data of a reservation of a session is waited for; 0: its lease
// says that nobody needs to.
func (s *Store) pendingUntil(c *meta.Caller, ino meta.Ino) (until time.Time) {
	if !s.leases.MayWrite(c.Session, ino) {
		until = s.steady().Add(s.opt.LeaseTime)
	}
	return until
}

// Appended implements meta.Appends.
func (s *Store) Appended(ctx context.Context, c meta.Caller, id uint64) error {
	h, err := s.handleOf(c.Session, id)
	if err == nil && !h.writes() {
		err = errs.Closed
	}
	for err == nil {
		wait, until := s.sessions.landed(h, s.steady())
		if wait == nil {
			break
		}
		left := max(until.Sub(s.steady()), time.Millisecond)
		timer := time.NewTimer(min(left, s.opt.Tick)) // clocks may be set forward
		err = s.parked(ctx, wait, timer.C)
		timer.Stop()
	}
	return errs.Wrap("meta.Appended", "", err)
}
