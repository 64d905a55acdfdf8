// Package lock is the table of advisory file locks behind meta.Locks: which owner holds what, who
// waits for whom, who is next. It does no input or output, starts no goroutine and reads no clock;
// whoever uses it says when sessions end and when the time for claims is over.
//
// Locks of one file and kind are intervals of bytes, each of one owner. Those of one owner do not
// overlap: taking a lock cuts or joins what the owner had there. Held and waiting locks lie in
// interval trees (tree.go), shared and exclusive ones apart, so that a request looks at what
// it overlaps and conflicts with, and at nothing else of the file.
//
// A waiting request hangs on one lock or request that blocks it, and is looked at again when that
// one changes (grant.go). A request is granted when it conflicts with no held lock and with no
// earlier request. The second rule, which keeps a stream of readers from starving a writer, has
// an exception: an earlier request that waits, by whatever way, for the very owner of the later one
// does not count, because both would wait for ever. Owners that wait for each other's held locks in
// a circle are a deadlock, and the request that closes the circle is refused (deadlock.go).
//
// Sessions (session.go) bound how much one client can have, remember the last requests, so that a
// repetition is not done twice, and collect what has become of those that waited. Claims (claim.go)
// bring back what was held before a restart of the service.
//
// It does not know files, clients or messages. Read lock.go first, then grant.go.
package lock

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Options of a Table.
type Options struct {
	// Life is the number that tells this table from its predecessors. Required.
	Life uint64

	// PerSession bounds the locks that one session holds and waits for, All those of all together. A
	// lock takes about 250 bytes. Releasing a part of a lock may make two of it, beyond the bound.
	// Defaults 65536 and 1048576.
	PerSession, All int
}

func (o Options) withDefaults() Options {
	if o.PerSession == 0 {
		o.PerSession = 64 << 10
	}
	if o.All == 0 {
		o.All = 1 << 20
	}
	return o
}

// ID names a request.
type ID [16]byte

// Table is the table. Safe for concurrent use; nothing but Await blocks.
type Table struct {
	opt Options

	mu       sync.Mutex
	serial   uint64 // of the last entry
	count    int    // entries, held and waiting
	waiting  int    // of these
	files    map[fileKey]*file
	owners   map[owner]*holder
	sessions map[uint64]*session

	expected map[uint64]struct{} // sessions of the last life whose claims have not come
}

// fileKey is a file and a kind of locks: kinds do not see each other.
type fileKey struct {
	ino  meta.Ino
	kind meta.LockKind
}

// owner is who holds locks: a number of a session.
type owner struct{ session, id uint64 }

// holder is what an owner has, over all files. It is there while it has something.
type holder struct {
	held  int      // locks
	waits []*entry // requests; more than one where threads of a process wait
}

// file has the locks of one file and kind. It is there while there are any.
type file struct {
	key     fileKey
	held    [2]tree // shared, exclusive
	waiting [2]tree
	owned   map[owner][]*entry // held ones of an owner, by their place
}

// entry is a lock that is held, or a request that waits.
type entry struct {
	file       *file
	owner      owner
	typ        meta.LockType
	start, end int64
	pid        uint32
	serial     uint64 // tells which came first

	id      ID       // of a request
	queued  bool     // it waits
	blocker *entry   // a waiting one hangs on it; nil: it waits for the end of the claims
	index   int      // in blocker.hanging
	hanging []*entry // those that this one blocks

	node // its place in a tree
}

// New makes an empty table.
func New(opt Options) *Table {
	return &Table{
		opt: opt.withDefaults(), files: map[fileKey]*file{}, owners: map[owner]*holder{},
		sessions: map[uint64]*session{}, expected: map[uint64]struct{}{},
	}
}

func index(t meta.LockType) int { return int(t - meta.LockShared) }

func (e *entry) overlaps(start, end int64) bool { return e.start <= end && start <= e.end }

// lock is the entry as others see it.
func (e *entry) lock() meta.Lock {
	return meta.Lock{Ino: e.file.key.ino, Owner: e.owner.id, Kind: e.file.key.kind, Type: e.typ,
		Start: e.start, End: e.end, PID: e.pid}
}

// fileOf finds or makes the locks of a file.
func (t *Table) fileOf(l *meta.Lock) *file {
	key := fileKey{l.Ino, l.Kind}
	f := t.files[key]
	if f == nil {
		f = &file{key: key, owned: map[owner][]*entry{}}
		t.files[key] = f
	}
	return f
}

// tidy forgets a file without locks.
func (t *Table) tidy(f *file) {
	if len(f.owned) == 0 && f.waiting[0].root == nil && f.waiting[1].root == nil {
		delete(t.files, f.key)
	}
}

// Lock asks for a lock; see meta.Locks. The request must be valid.
func (t *Table) Lock(sess uint64, id ID, l *meta.Lock, wait bool) (meta.LockState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessionOf(sess)
	if state, err, known := s.answered(id); known {
		return state, err
	}
	e := &entry{owner: owner{sess, l.Owner}, typ: l.Type, start: l.Start, end: l.End, pid: l.PID,
		id: id}
	switch {
	case s.stopped:
		return 0, errs.Newf(errs.Stale, "lock", "", "the session is ending")
	case len(t.expected) > 0 && !wait:
		return 0, errs.Newf(errs.Again, "lock", "", "locks are being claimed after a restart")
	case !t.room(s):
		return 0, errs.Newf(errs.NoLocks, "lock", "", "the session has %d, all have %d", s.locks,
			t.count)
	}
	e.file = t.fileOf(l)
	defer t.tidy(e.file)
	t.serial++
	e.serial = t.serial
	if len(t.expected) > 0 {
		t.enqueue(s, e, nil)
		return meta.LockQueued, nil
	}
	state, err := t.ask(s, e, wait)
	if err == nil && state == meta.LockGranted {
		s.remember(id, state, nil)
	}
	return state, err
}

// room tells whether a session may have another lock, which may cut one of its others in two.
// Events that it does not fetch count too.
func (t *Table) room(s *session) bool {
	return s.locks+len(s.events)+2 <= t.opt.PerSession && t.count+2 <= t.opt.All
}

// ask grants a new request, refuses it or lets it wait.
func (t *Table) ask(s *session, e *entry, wait bool) (meta.LockState, error) {
	if e.file.covered(e) {
		t.hold(e)
		return meta.LockGranted, nil
	}
	if e.file.key.kind == meta.LockFlock && len(e.file.owned[e.owner]) > 0 &&
		e.file.conflict(e) != nil {
		// flock(2) lets go of the old lock first.
		t.resume(t.cut(e.file, e.owner, e.start, e.end))
	}
	b := t.blockerOf(e)
	switch {
	case b == nil:
		t.hold(e)
		return meta.LockGranted, nil
	case !wait:
		t.refusing(e.owner.session, b)
		return 0, errs.Newf(errs.Busy, "lock", "", "it is locked")
	}
	t.enqueue(s, e, b)
	if t.deadlocked(e) {
		t.dequeue(e)
		return 0, errs.Newf(errs.Deadlock, "lock", "", "its owner would wait for itself")
	}
	return meta.LockQueued, nil // or granted already, by breaking a circle: an event tells
}

// Unlock releases what an owner holds of a range.
func (t *Table) Unlock(sess uint64, id ID, l *meta.Lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[sess]
	if s == nil {
		return
	}
	if _, _, known := s.answered(id); known {
		return
	}
	s.remember(id, meta.LockGone, nil)
	if f := t.files[fileKey{l.Ino, l.Kind}]; f != nil {
		t.resume(t.cut(f, owner{sess, l.Owner}, l.Start, l.End))
		t.tidy(f)
	}
}

// Cancel takes a request back; true if it was granted before.
func (t *Table) Cancel(sess uint64, id ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessionOf(sess)
	if e := s.waits[id]; e != nil {
		t.dequeue(e)
		t.tidy(e.file)
	}
	state, err, known := s.answered(id)
	if known && err == nil && state == meta.LockGranted {
		return true
	}
	s.remember(id, meta.LockGone, errs.Newf(errs.Canceled, "lock", "", "it was taken back"))
	return false
}

// Test finds the first lock in the order of bytes that a request would have to wait for.
func (t *Table) Test(sess uint64, l *meta.Lock) (meta.Lock, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.expected) > 0 {
		return meta.Lock{}, false, errs.Newf(errs.Again, "lock", "",
			"locks are being claimed after a restart")
	}
	f := t.files[fileKey{l.Ino, l.Kind}]
	if f == nil {
		return meta.Lock{}, false, nil
	}
	e := entry{owner: owner{sess, l.Owner}, typ: l.Type, start: l.Start, end: l.End}
	b := f.firstConflict(&e)
	if b == nil {
		return meta.Lock{}, false, nil
	}
	t.refusing(sess, b)
	found := b.lock()
	if b.owner.session != sess {
		found.PID = 0
	}
	return found, true, nil
}

// Counts are how many locks are held, and how many requests wait.
func (t *Table) Counts() (held, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count - t.waiting, t.waiting
}
