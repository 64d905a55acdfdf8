package client

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Locks of this client: what it holds, because it must claim that again after a restart of the
// service and in a new session, and who waits for what. One request to the service is always under
// way since the first lock was asked for, by which the client hears of requests that were granted
// and of restarts.
//
// A lock that is lost, because the client was not heard of for so long that others may have had
// it, is an error for its holder: all handles that the file has here at that moment fail with
// errs.IO from then on, until they are closed. It is not taken again behind the program's back,
// because what the program has read under it may have changed. All handles, because neither this
// package nor FUSE is told which of them the lock was meant to protect.

// locks is the state of an FS. The zero value is ready.
type locks struct {
	listening turn // held by the first one who asks, until the listener runs

	mu      sync.Mutex
	life    uint64 // of the service; 0: nobody has asked for a lock yet
	round   uint64 // raised when claims are put together, and when they have been answered
	held    map[lockKey]spans
	waits   map[[16]byte]*lockWait
	leaving map[lockKey]*partings
}

// lockKey is an owner in a file.
type lockKey struct {
	ino   meta.Ino
	kind  meta.LockKind
	owner uint64
}

// lockWait is a request that the service has queued, or may have.
type lockWait struct {
	lock meta.Lock
	done chan error // of capacity 1
}

func keyOf(l *meta.Lock) lockKey { return lockKey{l.Ino, l.Kind, l.Owner} }

// lockCancelMax bounds how long a caller who gives up waits for the answer whether it has the lock.
const lockCancelMax = 5 * time.Second

// Lock takes a lock for an owner, a number of the caller's choice, or changes the type of what the
// owner has locked there. With wait it blocks until that is possible, or ctx ends; otherwise a
// conflict is errs.Busy. When it returns, what this client knows of the file is not older than the
// lock. Other errors: errs.Deadlock, errs.NoLocks.
func (fs *FS) Lock(ctx context.Context, l meta.Lock, wait bool) error {
	err := l.Validate(true)
	if err == nil {
		err = fs.listenForLocks(ctx)
	}
	if err == nil {
		err = fs.awaitReleases(ctx, keyOf(&l))
	}
	for err == nil {
		s := fs.sess.Load()
		err = fs.lockIn(ctx, s, &l, wait)
		if err == nil {
			fs.revalidate(ctx, l.Ino)
			return nil
		}
		if fs.checkSession(ctx, s, err) {
			err = nil // once more, in the new one
		}
	}
	return errs.Wrap("client.Lock", "", err)
}

// lockIn asks for a lock in a session.
func (fs *FS) lockIn(ctx context.Context, s *session, l *meta.Lock, wait bool) error {
	c := meta.Caller{Session: s.id}
	rand.Read(c.ReqID[:])
	w := &lockWait{lock: *l, done: make(chan error, 1)}
	mode := meta.LockTry
	if wait {
		mode = meta.LockWait
		fs.locks.put(c.ReqID, w)
		defer fs.locks.drop(c.ReqID)
	}
	state, err := fs.svc.Lock(ctx, c, *l, mode)
	if err == nil && state == meta.LockQueued {
		select {
		case err = <-w.done:
		case <-ctx.Done():
			err = errs.Wrap("client.Lock", "", ctx.Err())
		}
	}
	if err != nil && unsure(err) {
		return fs.cancelLock(ctx, c, l, err)
	}
	if err == nil {
		fs.locks.note(l)
	}
	return err
}

// unsure tells whether an error leaves open what has become of a request.
func unsure(err error) bool {
	k := errs.KindOf(err)
	return k.Passing() && k != errs.Again || k == errs.MaybeDone
}

// cancelLock gives a request up. If it was granted in between, it has succeeded. While the service
// does not answer the caller is not kept waiting: the rest is done in the background.
func (fs *FS) cancelLock(ctx context.Context, c meta.Caller, l *meta.Lock, why error) error {
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockCancelMax)
	defer cancel()
	c.Session = fs.sess.Load().id // a request that waits moves to a new session
	state, err := fs.svc.Lock(short, c, *l, meta.LockCancel)
	switch {
	case err == nil && state == meta.LockGranted:
		fs.locks.note(l)
		return nil
	case err == nil || !errs.KindOf(err).Passing():
		return why
	}
	want := *l
	fs.background(func() { fs.takeBackLater(c, want) })
	return why
}

// takeBackLater asks until it is known what has become of a request, and undoes what its caller was
// told has failed: the owner has then what it had before.
func (fs *FS) takeBackLater(c meta.Caller, l meta.Lock) {
	for pause := pauseFirst; ; pause = min(2*pause, endPauseMax) {
		state, err := fs.svc.Lock(fs.life, c, l, meta.LockCancel)
		if err == nil && state == meta.LockGranted {
			err = fs.restore(c.Session, l)
		}
		if err == nil || !errs.KindOf(err).Passing() {
			return // a session that has ended has no locks
		}
		if !wait.Sleep(fs.life, pause) {
			return
		}
	}
}

// restoreLater is restore that waits for a service that is away.
func (fs *FS) restoreLater(session uint64, l meta.Lock) {
	for pause := pauseFirst; ; pause = min(2*pause, endPauseMax) {
		err := fs.restore(session, l)
		if err == nil || !errs.KindOf(err).Passing() {
			return // a session that has ended has no locks
		}
		if !wait.Sleep(fs.life, pause) {
			return
		}
	}
}

// restore brings a range to what this client knows its owner to hold there. The owner holds it as
// strongly or more, so that nothing has to wait.
func (fs *FS) restore(session uint64, l meta.Lock) error {
	c := meta.Caller{Session: session}
	for _, p := range fs.locks.pieces(&l) {
		part := l
		part.Start, part.End, part.Type = p.start, p.end, p.typ
		var err error
		if p.typ == 0 {
			err = fs.svc.Unlock(fs.life, c, part)
		} else {
			_, err = fs.svc.Lock(fs.life, c, part, meta.LockTry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unlock releases what an owner holds in a range. It asks nobody if that is nothing. If the service
// does not answer, or ctx ends before it does, it hears of the release later.
func (fs *FS) Unlock(ctx context.Context, l meta.Lock) error {
	if err := l.Validate(false); err != nil {
		return errs.Wrap("client.Unlock", "", err)
	}
	return fs.release(ctx, l, nil)
}

// release is Unlock if a condition holds when the owner can get no other lock in the file before it
// is over: that would be released, too, or be taken for released. nil: there is none.
func (fs *FS) release(ctx context.Context, l meta.Lock, still func() bool) error {
	k := keyOf(&l)
	if !fs.locks.holds(k) {
		return nil
	}
	fs.locks.part(k)
	defer fs.locks.parted(k)
	if still != nil && !still() {
		return nil
	}
	s, round := fs.sess.Load(), fs.locks.claimed()
	err := fs.svc.Unlock(ctx, meta.Caller{Session: s.id}, l)
	if err != nil && fs.checkSession(ctx, s, err) {
		s = fs.sess.Load()
		err = fs.svc.Unlock(ctx, meta.Caller{Session: s.id}, l)
	}
	if err == nil {
		fs.locks.forget(&l)
		if fs.locks.claimed() != round {
			// A claim that knew of the lock may have come behind the release, and brought it back.
			s = fs.sess.Load()
			err = fs.restore(s.id, l)
		}
	}
	if err != nil && late(err) {
		fs.releaseLater(s.id, l)
		return nil
	}
	return errs.Wrap("client.Unlock", "", err)
}

// ReleaseOwner is Unlock of all that an owner holds of one kind in a file. It costs nothing where
// that is nothing, so that it can be called whenever a file is closed. The owner may be somebody
// else of the same name by then, who has locked the file anew: so still is asked, when nobody of
// that name can get a lock before this is over. nil: that cannot be.
func (fs *FS) ReleaseOwner(ctx context.Context, ino meta.Ino, kind meta.LockKind, owner uint64,
	still func() bool) error {
	l := meta.Lock{Ino: ino, Kind: kind, Owner: owner, End: meta.LockEndMax}
	return fs.release(ctx, l, still)
}

// TestLock tells a lock that l would have to wait for. Its PID is 0 if another client has it.
func (fs *FS) TestLock(ctx context.Context, l meta.Lock) (holder meta.Lock, found bool, _ error) {
	s := fs.sess.Load()
	holder, found, err := fs.svc.TestLock(ctx, meta.Caller{Session: s.id}, l)
	if err != nil && fs.checkSession(ctx, s, err) {
		c := meta.Caller{Session: fs.sess.Load().id}
		holder, found, err = fs.svc.TestLock(ctx, c, l)
	}
	return holder, found, errs.Wrap("client.TestLock", "", err)
}

// OwnLock tells whether this client itself has a lock that conflicts with l.
func (fs *FS) OwnLock(l *meta.Lock) bool {
	fs.locks.mu.Lock()
	defer fs.locks.mu.Unlock()
	for k, s := range fs.locks.held {
		if k.ino != l.Ino || k.kind != l.Kind || k.owner == l.Owner {
			continue
		}
		for _, p := range s.within(l.Start, l.End) {
			if p.typ == meta.LockExclusive || p.typ != 0 && l.Type == meta.LockExclusive {
				return true
			}
		}
	}
	return false
}

// revalidate brings what is known of a file up to date: whoever has just locked it must see what
// others did before they unlocked it. What is known under a lease is; where the service does not
// answer it is asked again by the next read, and File.Doubtful says so.
func (fs *FS) revalidate(ctx context.Context, ino meta.Ino) {
	n := fs.peek(ino)
	if n == nil {
		return
	}
	a, err := fs.statNode(ctx, ino)
	if err != nil {
		n.doubt()
		return
	}
	n.learn(&a)
}

// put notes a request that may have to wait.
func (x *locks) put(id [16]byte, w *lockWait) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waits == nil {
		x.waits = map[[16]byte]*lockWait{}
	}
	x.waits[id] = w
}

func (x *locks) drop(id [16]byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.waits, id)
}

// end tells a request what has become of it.
func (x *locks) end(id [16]byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := x.waits[id]; w != nil {
		select {
		case w.done <- err:
		default: // told before
		}
	}
}

// note notes that a lock is held.
func (x *locks) note(l *meta.Lock) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.held == nil {
		x.held = map[lockKey]spans{}
	}
	k := keyOf(l)
	x.held[k] = x.held[k].set(span{l.Start, l.End, l.Type, l.PID})
}

// forget notes that a range is not held any more.
func (x *locks) forget(l *meta.Lock) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := keyOf(l)
	if rest := x.held[k].set(span{start: l.Start, end: l.End}); len(rest) > 0 {
		x.held[k] = rest
	} else {
		delete(x.held, k)
	}
}

func (x *locks) holds(k lockKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.held[k]) > 0
}

// pieces tells what the owner of a lock holds of its range; parts that it does not hold have no
// type.
func (x *locks) pieces(l *meta.Lock) spans {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.held[keyOf(l)].within(l.Start, l.End)
}

// claimed counts the claims that were put together or answered.
func (x *locks) claimed() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.round
}

// newRound is called when claims are about to be put together, and when they have been answered.
func (x *locks) newRound() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.round++
}

// has tells whether a lock is held as it stands.
func (x *locks) has(l *meta.Lock) bool {
	for _, p := range x.pieces(l) {
		if p.typ != l.Type {
			return false
		}
	}
	return true
}

// all lists what is held.
func (x *locks) all() (list []meta.Lock) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, s := range x.held {
		for _, p := range s {
			list = append(list, meta.Lock{Ino: k.ino, Kind: k.kind, Owner: k.owner, Type: p.typ,
				Start: p.start, End: p.end, PID: p.pid})
		}
	}
	return list
}

// waiting lists the requests that wait.
func (x *locks) waiting() map[[16]byte]meta.Lock {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[[16]byte]meta.Lock{}
	for id, w := range x.waits {
		all[id] = w.lock
	}
	return all
}
