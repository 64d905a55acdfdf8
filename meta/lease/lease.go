// Package lease keeps track of which session may rely on what it knows of which inode, and of who
// must be asked before that changes. It is the table behind meta.Leases, and nothing else: it does
// no I/O, has no goroutines and no clock of its own, and knows nothing of files. Times are given to
// it; whoever has to wait gets a Wait with a channel and a deadline.
//
// How an operation that changes inodes uses it: Begin marks them, so that no new leases are granted
// on them, and recalls those of other sessions; when they are back, or have run out, the operation
// takes effect; End takes the marks away. An operation that reads asks for a grant first and reads
// afterwards: so an answer that is older than a change is always followed by a recall.
//
// Read lease.go first, then change.go and listen.go. The tests compare it with a model.
package lease

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/meta"
)

// Options of a Table.
type Options struct {
	// Time is how long leases last after a renewal. Required.
	Time time.Duration

	// Calm is for how long an inode that was recalled counts as disputed. Default: a fifth of Time.
	Calm time.Duration

	// Life is the life of the service. Serial numbers of a later life are higher. Required.
	Life uint32

	// SessionMax bounds the leases of one session, AllMax those of all. Who cannot do without may
	// have an eighth more. Defaults: 65536, 1048576.
	SessionMax int
	AllMax     int
}

// lifeBits is where the life begins in a serial number: a life has room for 10^12 of them.
const lifeBits = 40

// Bounds of the time for which an inode is not granted that is recalled again and again. It doubles
// with every recall that comes within calm of the last one.
const (
	refuseMin = 10 * time.Millisecond
	refuseMax = time.Second
	calm      = time.Second
)

// roomShare is the part of all leases that is recalled at once to make room: one answer to Listen
// takes many, so that a session which always wants more has its oldest ones recalled by the
// hundreds and not with a message for each.
const roomShare = 256

const (
	roomLooks = 16 << 10               // leases that are looked at to make room
	roomSoon  = 100 * time.Millisecond // in which a session that listens gives one back
)

// Table is the table of leases. Safe for concurrent use; nothing blocks.
type Table struct {
	opt Options

	mu       sync.Mutex
	serial   uint64 // of the last grant or recall
	first    uint64 // the epoch that sessions begin with
	sessions map[uint64]*session
	all      list.List[lease] // of all sessions, oldest grant first
	inodes   map[meta.Ino]*inode
	count    int      // leases
	cooling  []*inode // that were recalled: kept until they are calm
	lapsed   map[meta.Ino]bool
	room     time.Time // when leases were last recalled to make room
	counts   Counts
}

// Counts of what happened so far.
type Counts struct {
	Leases  int    // now
	Granted uint64 // leases
	Refused uint64 // because the inode was about to change, or changes too often, or for want of room
	Recalls uint64
	Expired uint64 // sessions that did not answer in time
}

// session is one that listens.
type session struct {
	id     uint64
	epoch  uint64
	leases map[meta.Ino]*lease
	all    list.List[lease] // of leases, oldest grant first
	owed   list.List[lease] // those that are recalled, in the order of the recalls
	wake   chan struct{}    // closed when something is added to owed
	room   time.Time        // when leases were last recalled to make room
}

// inode is one that has leases, or is about to change, or was recalled a short time ago.
type inode struct {
	ino    meta.Ino
	leases list.List[lease]
	n      int
	marks  int    // changes under way
	begun  uint64 // changes that have begun

	recalled time.Time     // last
	refuse   time.Duration // from then on
	cools    bool          // is in cooling
}

// lease is what one session has of one inode.
type lease struct {
	of      *session
	on      *inode
	mode    meta.LeaseMode
	first   uint64 // serial of the first grant
	serial  uint64 // of the latest one
	recall  uint64 // 0: it is not recalled
	moveOut bool
	kept    bool      // it goes on from an earlier life of the service
	asked   time.Time // when it was recalled
	waits   []*Wait

	ofTable, ofAll, ofOwed, ofInode list.Link[lease]
}

// New makes an empty table.
func New(opt Options) *Table {
	if opt.Calm == 0 {
		opt.Calm = opt.Time / 5
	}
	if opt.SessionMax == 0 {
		opt.SessionMax = 1 << 16
	}
	if opt.AllMax == 0 {
		opt.AllMax = 1 << 20
	}
	first := uint64(opt.Life) << lifeBits
	return &Table{opt: opt, serial: first, first: first,
		sessions: map[uint64]*session{}, inodes: map[meta.Ino]*inode{},
		lapsed: map[meta.Ino]bool{}}
}

// First is the epoch that sessions begin with: below every grant that they will get, and above
// those of earlier lives.
func (t *Table) First() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first
}

// Join lets a session have leases. It may be repeated.
func (t *Table) Join(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[id] == nil {
		t.sessions[id] = &session{id: id, epoch: t.first, leases: map[meta.Ino]*lease{},
			wake: make(chan struct{})}
	}
}

// Leave forgets a session that has ended, and all of its leases: they have lapsed, unless they were
// given back. Should it come back after all, it learns by its epoch that it has none.
func (t *Table) Leave(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil {
		return
	}
	if len(s.leases) > 0 || s.epoch > t.first {
		t.serial++
		t.first = t.serial
	}
	t.lapseLocked(s)
	t.dropAllLocked(s)
	close(s.wake)
	delete(t.sessions, id)
}

// Gone forgets all leases on an inode that is no more: its holders have nothing to give back.
func (t *Table) Gone(ino meta.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lapsed, ino)
	if in := t.inodes[ino]; in != nil {
		for l := in.leases.First(); l != nil; l = in.leases.First() {
			t.dropLocked(l)
		}
	}
}

// Counts returns the counters.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Leases = t.count
	return c
}

// Grant gives a session a lease on an inode, and returns what it has now: LeaseNone if it is not to
// have one. Whoever asks for LeaseWrite must have made sure that no other session may hold any
// lease (Begin); it is not given otherwise. Must is for who cannot do without: then it does not
// matter how often the inode was recalled.
func (t *Table) Grant(id uint64, ino meta.Ino, mode meta.LeaseMode, must bool, now time.Time) (
	meta.LeaseMode, uint64) {

	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grantLocked(id, ino, mode, must, now)
}

// GrantSmall gives LeaseWrite on a small file to who cannot do without, but not before somebody is
// kept off whose own has lapsed.
func (t *Table) GrantSmall(id uint64, ino meta.Ino, now time.Time) (meta.LeaseMode, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lapsed[ino] && !t.mayWriteLocked(id, ino) {
		t.counts.Refused++
		return meta.LeaseNone, 0
	}
	return t.grantLocked(id, ino, meta.LeaseWrite, true, now)
}

func (t *Table) grantLocked(id uint64, ino meta.Ino, mode meta.LeaseMode, must bool,
	now time.Time) (meta.LeaseMode, uint64) {

	s := t.sessions[id]
	if s == nil {
		return meta.LeaseNone, 0
	}
	in := t.inodes[ino]
	l := s.leases[ino]
	if !t.mayGrantLocked(s, in, l, mode, must, now) {
		t.counts.Refused++
		return meta.LeaseNone, 0
	}
	if l == nil {
		if l = t.addLocked(s, in, ino, must, now); l == nil {
			t.counts.Refused++
			return meta.LeaseNone, 0
		}
	} else {
		s.all.Remove(&l.ofAll)
		s.all.PushLast(&l.ofAll, l)
		t.all.Remove(&l.ofTable)
		t.all.PushLast(&l.ofTable, l)
	}
	t.serial++
	t.counts.Granted++
	l.serial, l.mode = t.serial, max(l.mode, mode)
	if l.first == 0 {
		l.first = l.serial
	}
	return l.mode, l.serial
}

// mayGrantLocked: not what is about to change, is recalled, or belongs to somebody else.
func (t *Table) mayGrantLocked(s *session, in *inode, l *lease, mode meta.LeaseMode, must bool,
	now time.Time) bool {

	if in == nil {
		return true
	}
	if l != nil && l.recall != 0 || in.marks > 0 {
		return false
	}
	if !must && l == nil && now.Sub(in.recalled) < in.refuse {
		return false
	}
	others := in.n
	if l != nil {
		others--
	}
	if others == 0 {
		return true
	}
	return mode < meta.LeaseWrite && in.leases.First().mode < meta.LeaseWrite
}

// addLocked makes a lease, if there is room. Where there is none the oldest ones of the session, or
// of all, are recalled, so that there will be.
func (t *Table) addLocked(s *session, in *inode, ino meta.Ino, must bool, now time.Time) *lease {
	full := false
	if n := len(s.leases); n >= t.opt.SessionMax {
		t.makeRoomLocked(s.all.First(), func(l *lease) *lease { return l.ofAll.Next() },
			t.opt.SessionMax/roomShare, &s.room, now)
		full = !must || n >= t.opt.SessionMax+t.opt.SessionMax/8
	}
	if t.count >= t.opt.AllMax {
		t.makeRoomLocked(t.all.First(), func(l *lease) *lease { return l.ofTable.Next() },
			t.opt.AllMax/roomShare, &t.room, now)
		full = full || !must || t.count >= t.opt.AllMax+t.opt.AllMax/8
	}
	if full {
		return nil
	}
	if in == nil {
		in = &inode{ino: ino}
		t.inodes[ino] = in
	}
	l := &lease{of: s, on: in}
	s.leases[ino] = l
	s.all.PushLast(&l.ofAll, l)
	t.all.PushLast(&l.ofTable, l)
	in.leases.PushLast(&l.ofInode, l)
	in.n++
	t.count++
	return l
}

// makeRoomLocked recalls the n oldest leases of a list that are not recalled yet, at least one.
// Where the oldest of all is owed it was done a moment ago, and there will be room soon; or
// its session does not answer: then others are looked for now and then, but not far, because that
// session will end.
func (t *Table) makeRoomLocked(l *lease, next func(*lease) *lease, n int, last *time.Time,
	now time.Time) {

	if l == nil || l.recall != 0 && now.Sub(*last) < roomSoon {
		return
	}
	*last = now
	n = max(n, 1)
	for looks := 0; l != nil && n > 0 && looks < roomLooks; looks++ {
		if l.recall == 0 {
			t.recallLocked(l, false, now)
			n--
		}
		l = next(l)
	}
}

// dropLocked ends a lease, and with it waits for it.
func (t *Table) dropLocked(l *lease) {
	s, in := l.of, l.on
	delete(s.leases, in.ino)
	s.all.Remove(&l.ofAll)
	t.all.Remove(&l.ofTable)
	if l.ofOwed.In() {
		s.owed.Remove(&l.ofOwed)
	}
	in.leases.Remove(&l.ofInode)
	in.n--
	t.count--
	for _, w := range l.waits {
		w.lessLocked()
	}
	l.waits = nil
	t.tidyLocked(in)
}

func (t *Table) dropAllLocked(s *session) {
	for l := s.all.First(); l != nil; l = s.all.First() {
		t.dropLocked(l)
	}
}

// tidyLocked forgets an inode of which there is nothing to say.
func (t *Table) tidyLocked(in *inode) {
	if in.n == 0 && in.marks == 0 && !in.cools {
		delete(t.inodes, in.ino)
	}
}

// Release takes a lease back that was granted a moment ago and of which nobody was told. One that
// the session had before stays, and one that is recalled already: its holder answers.
func (t *Table) Release(id uint64, ino meta.Ino, serial uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil {
		return
	}
	if l := s.leases[ino]; l != nil && l.first == serial && l.serial == serial && l.recall == 0 {
		t.dropLocked(l)
	}
}

// Downgrade leaves a session that does not write any more with a lease for reading.
func (t *Table) Downgrade(id uint64, ino meta.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[id]; s != nil && s.leases[ino] != nil {
		s.leases[ino].mode = meta.LeaseRead
	}
}

// Lapsed tells whether LeaseWrite on an inode has run out instead of being given back, or was given
// back by who said so: its holder may still be about something that it began under it. That is so
// until Forget.
func (t *Table) Lapsed(ino meta.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lapsed[ino]
}

// Lapse has an inode count as one whose LeaseWrite has run out.
func (t *Table) Lapse(ino meta.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lapsed[ino] = true
}

// Forget ends Lapsed: the holder cannot do any harm now.
func (t *Table) Forget(ino meta.Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lapsed, ino)
}

// Postpone gives all who owe an answer the time of a lease from now on: the service itself was not
// there to hear it.
func (t *Table) Postpone(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		for l := s.owed.First(); l != nil; l = l.ofOwed.Next() {
			l.asked = now
			for _, w := range l.waits {
				w.deadline = now.Add(t.opt.Time)
			}
		}
	}
}

// Regain gives a session LeaseWrite that it had in an earlier life of the service.
func (t *Table) Regain(id uint64, ino meta.Ino, now time.Time) (meta.LeaseMode, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mode, serial := t.grantLocked(id, ino, meta.LeaseWrite, true, now)
	if mode == meta.LeaseWrite {
		t.sessions[id].leases[ino].kept = true
	}
	return mode, serial
}

// Writes tells whether a session holds LeaseWrite, recalled or not, and has held it since the
// epoch.
func (t *Table) Writes(id uint64, ino meta.Ino, epoch uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.leases[ino] == nil {
		return false
	}
	l := s.leases[ino]
	return l.mode == meta.LeaseWrite && (epoch == s.epoch || l.kept && epoch < s.epoch)
}

// Sole tells whether a session holds LeaseSole, recalled or not, and has held it since the epoch.
// It counts as used: what was used last is recalled last to make room.
func (t *Table) Sole(id uint64, ino meta.Ino, epoch uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.epoch != epoch || s.leases[ino] == nil {
		return false
	}
	l := s.leases[ino]
	if l.mode != meta.LeaseSole {
		return false
	}
	s.all.Remove(&l.ofAll)
	s.all.PushLast(&l.ofAll, l)
	t.all.Remove(&l.ofTable)
	t.all.PushLast(&l.ofTable, l)
	return true
}

// Raise makes leases that a session holds LeaseWrite, where nobody else has one and nothing is
// about to change. It returns what they were before; LeaseNone: it was not done.
func (t *Table) Raise(id uint64, inos []meta.Ino) []meta.LeaseMode {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]meta.LeaseMode, len(inos))
	s := t.sessions[id]
	if s == nil {
		return out
	}
	for i, ino := range inos {
		l := s.leases[ino]
		if l == nil || l.recall != 0 || l.on.n != 1 || l.on.marks > 0 || t.lapsed[ino] {
			continue
		}
		out[i] = l.mode
		l.mode = max(l.mode, meta.LeaseWrite)
	}
	return out
}

// Disputed tells whether an inode was recalled from somebody a short time ago.
func (t *Table) Disputed(ino meta.Ino, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.inodes[ino]
	return in != nil && now.Sub(in.recalled) < t.opt.Calm
}

// Held is what a session has of an inode: nothing, if that is recalled.
func (t *Table) Held(id uint64, ino meta.Ino) (meta.LeaseMode, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.leases[ino] == nil || s.leases[ino].recall != 0 {
		return meta.LeaseNone, 0
	}
	return s.leases[ino].mode, s.leases[ino].serial
}

// Room tells whether a session may have n leases more that it cannot do without.
func (t *Table) Room(id uint64, n int, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil {
		return true // it gets none
	}
	if len(s.leases)+n <= t.opt.SessionMax+t.opt.SessionMax/8 &&
		t.count+n <= t.opt.AllMax+t.opt.AllMax/8 {
		return true
	}
	t.makeRoomLocked(s.all.First(), func(l *lease) *lease { return l.ofAll.Next() },
		max(n, t.opt.SessionMax/roomShare), &s.room, now)
	return false
}

// MayWrite tells whether a session holds LeaseWrite, recalled or not.
func (t *Table) MayWrite(id uint64, ino meta.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mayWriteLocked(id, ino)
}

func (t *Table) mayWriteLocked(id uint64, ino meta.Ino) bool {
	s := t.sessions[id]
	return s != nil && s.leases[ino] != nil && s.leases[ino].mode == meta.LeaseWrite
}

// Epoch is a session's epoch; 0 if it does not listen.
func (t *Table) Epoch(id uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[id]; s != nil {
		return s.epoch
	}
	return 0
}
