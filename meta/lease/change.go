package lease

import (
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// Wait is for leases that are recalled. Done is closed when none of them is left. At its deadline,
// if it is not closed by then, the owner calls Table.Expire, after which it is.
type Wait struct {
	Done     chan struct{}
	deadline time.Time
	left     int
}

// Deadline is when the leases that a wait is for have run out. It may be postponed.
func (t *Table) Deadline(w *Wait) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.deadline
}

func (w *Wait) lessLocked() {
	if w.left--; w.left == 0 {
		close(w.Done)
	}
}

// Change is an operation under way that will change inodes. It is not safe for concurrent use.
type Change struct {
	table  *Table
	marked []mark
}

// mark is an inode that a change has marked. alone: no other change was under way then; begun is
// how many had begun.
type mark struct {
	on    *inode
	alone bool
	begun uint64
}

// Begin marks inodes that an operation of a session will change: until End nobody gets a new lease
// on them. Leases that other sessions hold are recalled; if there are some the operation must wait.
// An operation may begin more than once, as it learns what it will change.
func (c *Change) Begin(t *Table, id uint64, inos []meta.Ino, moveOut bool, now time.Time) *Wait {
	if len(inos) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.table = t
	var w *Wait
	for _, ino := range inos {
		in := t.inodes[ino]
		if in == nil {
			in = &inode{ino: ino}
			t.inodes[ino] = in
		}
		if !c.has(in) {
			in.marks++
			in.begun++
			c.marked = append(c.marked, mark{in, in.marks == 1, in.begun})
		}
		w = t.recallAllLocked(in, id, meta.LeaseRead, moveOut, now, w)
	}
	return w
}

func (c *Change) has(in *inode) bool {
	for i := range c.marked {
		if c.marked[i].on == in {
			return true
		}
	}
	return false
}

// Lend ends a change that a session has made, and gives it a lease on one of the inodes: it knows
// what is there now, if no other change was under way meanwhile.
func (c *Change) Lend(id uint64, ino meta.Ino, mode meta.LeaseMode, now time.Time) (
	meta.LeaseMode, uint64) {

	if len(c.marked) == 0 {
		return meta.LeaseNone, 0
	}
	loan := Loan{Ino: ino, Mode: mode}
	c.LendAll(id, []*Loan{&loan}, now)
	return loan.Mode, loan.Serial
}

// Loan is a lease that a change wants: on what, and of which mode. LendAll says what it has become.
type Loan struct {
	Ino    meta.Ino
	Mode   meta.LeaseMode
	Serial uint64
}

// LendAll is Lend for several inodes.
func (c *Change) LendAll(id uint64, list []*Loan, now time.Time) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	marked := make(map[meta.Ino]mark, len(c.marked))
	for _, m := range c.marked {
		marked[m.on.ino] = m
	}
	sole := make([]bool, len(list))
	for i, l := range list {
		m, ok := marked[l.Ino]
		sole[i] = ok && m.alone && m.on.begun == m.begun
	}
	c.endLocked()
	for i, l := range list {
		if !sole[i] {
			l.Mode, l.Serial = meta.LeaseNone, 0
			continue
		}
		l.Mode, l.Serial = t.grantLocked(id, l.Ino, l.Mode, true, now)
	}
}

// End takes the marks away. The zero Change, and one that has ended, may be ended again.
func (c *Change) End() {
	if len(c.marked) == 0 {
		return
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.endLocked()
}

func (c *Change) endLocked() {
	for _, m := range c.marked {
		m.on.marks--
		c.table.tidyLocked(m.on)
	}
	c.marked = c.marked[:0]
}

// Busy tells whether somebody else has to be asked about an inode, or to be waited for, before the
// session may rely on what it reads: another one has a lease, or something is changing. That is
// never so for a session that may write: nobody else knows anything. Nor for one whose own lease is
// recalled: it is waited for itself.
func (t *Table) Busy(id uint64, ino meta.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inodes[ino]
	if in == nil {
		return false
	}
	others := in.n
	if s := t.sessions[id]; s != nil {
		if l := s.leases[ino]; l != nil {
			if l.recall != 0 || l.mode >= meta.LeaseWrite {
				return false
			}
			others--
		}
	}
	return others > 0 || in.marks > 0
}

// Written tells whether another session holds LeaseWrite or LeaseSole on an inode: it alone knows
// what that is like.
func (t *Table) Written(id uint64, ino meta.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inodes[ino]
	if in == nil || in.n == 0 {
		return false
	}
	l := in.leases.First() // of LeaseWrite there is one, and nothing beside it
	return l.mode >= meta.LeaseWrite && l.of.id != id
}

// Look is for an operation that reads: the size, times and data of a file whose LeaseWrite another
// session holds are known to that one only. It is recalled; nil: nobody else has it. Who wants to
// write recalls all that others have, from LeaseRead on. moveOut asks the holder to move a small
// file out.
func (t *Table) Look(id uint64, ino meta.Ino, from meta.LeaseMode, moveOut bool,
	now time.Time) *Wait {

	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inodes[ino]
	if in == nil || in.n == 0 {
		return nil
	}
	return t.recallAllLocked(in, id, from, moveOut, now, nil)
}

// recallAllLocked recalls the leases of others on an inode, from a mode on, and adds them to a
// wait.
func (t *Table) recallAllLocked(in *inode, id uint64, from meta.LeaseMode, moveOut bool,
	now time.Time, w *Wait) *Wait {

	some := false
	for l := in.leases.First(); l != nil; l = l.ofInode.Next() {
		if l.of.id == id || l.mode < from {
			continue
		}
		if l.recall == 0 || moveOut && !l.moveOut {
			// Who writes a small file that others look at all the time had better move it out.
			busy := l.mode == meta.LeaseWrite && in.refuse > 0
			t.recallLocked(l, moveOut || busy, now)
			some = true
		}
		if w == nil {
			w = &Wait{Done: make(chan struct{})}
		}
		w.left++
		if end := l.asked.Add(t.opt.Time); end.After(w.deadline) {
			w.deadline = end
		}
		l.waits = append(l.waits, w)
	}
	if some {
		t.heatLocked(in, now)
	}
	return w
}

// recallLocked asks for a lease back, or once more for one to be moved out. The time since which
// the session owes the answer is that of the first time.
func (t *Table) recallLocked(l *lease, moveOut bool, now time.Time) {
	t.serial++
	t.counts.Recalls++
	if l.recall == 0 {
		l.asked = now
	} else {
		l.of.owed.Remove(&l.ofOwed)
	}
	l.recall, l.moveOut = t.serial, moveOut
	l.of.owed.PushLast(&l.ofOwed, l)
	l.of.wakeUp()
}

// wakeUp lets those who listen look.
func (s *session) wakeUp() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// heatLocked notes that an inode is recalled: for a while it is not granted, longer if that happens
// again and again.
func (t *Table) heatLocked(in *inode, now time.Time) {
	if now.Sub(in.recalled) < calm+in.refuse {
		in.refuse = min(max(2*in.refuse, refuseMin), refuseMax)
	} else {
		in.refuse = 0 // for once it costs less to ask again
	}
	in.recalled = now
	if !in.cools {
		in.cools = true
		t.cooling = append(t.cooling, in)
	}
}

// Expire forgets the leases of sessions that owe an answer for longer than leases last: they have
// run out, because nothing was extended meanwhile. It also forgets what is calm again. It is to be
// called at the deadline of a Wait, and now and then.
func (t *Table) Expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		// The first is not always the one that is owed for longest: one may be recalled again.
		for l := s.owed.First(); l != nil; l = l.ofOwed.Next() {
			if !now.Before(l.asked.Add(t.opt.Time)) {
				t.expireLocked(s)
				break
			}
		}
	}
	rest := t.cooling[:0]
	for _, in := range t.cooling {
		if now.Sub(in.recalled) < calm+in.refuse {
			rest = append(rest, in)
			continue
		}
		in.cools = false
		t.tidyLocked(in)
	}
	clear(t.cooling[len(rest):])
	t.cooling = rest
}

func (t *Table) expireLocked(s *session) {
	t.serial++
	t.counts.Expired++
	s.epoch = t.serial
	t.lapseLocked(s)
	t.dropAllLocked(s)
	s.wakeUp()
}

// lapseLocked notes what a session may still be about that was to write.
func (t *Table) lapseLocked(s *session) {
	for ino, l := range s.leases {
		if l.mode == meta.LeaseWrite {
			t.lapsed[ino] = true
		}
	}
}
