package metatest

import (
	"encoding/binary"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const (
	shared    = meta.LockShared
	exclusive = meta.LockExclusive
	lockNow   = meta.LockTry
	lockWait  = meta.LockWait
	granted   = meta.LockGranted
	queued    = meta.LockQueued
)

// lockCases are those of meta.Locks.
func lockCases() []testCase {
	return []testCase{
		{"LockConflicts", testLockConflicts},
		{"LockRefusals", testLockRefusals},
		{"LockFairness", testLockFairness},
		{"LockDeadlock", testLockDeadlock},
		{"LockCancel", testLockCancel},
		{"LockReplay", testLockReplay},
		{"LockSessionEnd", testLockSessionEnd},
		{"LockOfTheDead", testLockOfTheDead},
		{"LockRestart", testLockRestart},
		{"LockUnclaimed", testLockUnclaimed},
		{"LockNewSession", testLockNewSession},
	}
}

// locker is a client that takes locks.
type locker struct {
	*env
	caller meta.Caller
	life   uint64
	after  uint64
	n      uint64
}

func (e *env) locker(client string) *locker {
	e.Helper()
	info, err := e.Service.NewSession(e.ctx, client)
	e.must(err)
	l := &locker{env: e, caller: meta.Caller{Session: info.ID}}
	l.fetch()
	return l
}

func byteRange(ino meta.Ino, owner uint64, typ meta.LockType, start, end int64) meta.Lock {
	return meta.Lock{Ino: ino, Owner: owner, Kind: meta.LockRange, Type: typ, Start: start, End: end}
}

// next is the caller of a new request.
func (l *locker) next() meta.Caller {
	l.n++
	c := l.caller
	binary.BigEndian.PutUint64(c.ReqID[:], c.Session)
	binary.BigEndian.PutUint64(c.ReqID[8:], l.n)
	return c
}

// want asks for a lock and demands an outcome: a state, or a kind of error. It returns the id.
func (l *locker) want(outcome any, k meta.Lock, mode meta.LockMode) [16]byte {
	l.Helper()
	c := l.next()
	l.wantAs(outcome, c, k, mode)
	return c.ReqID
}

func (l *locker) wantAs(outcome any, c meta.Caller, k meta.Lock, mode meta.LockMode) {
	l.Helper()
	state, err := l.Service.Lock(l.ctx, c, k, mode)
	got := any(state)
	if err != nil {
		got = errs.KindOf(err)
	}
	if got != outcome {
		l.Fatalf("%+v: %v (%v), want %v", k, got, err, outcome)
	}
}

func (l *locker) unlock(k meta.Lock) {
	l.Helper()
	l.must(l.Service.Unlock(l.ctx, l.next(), k))
}

// fetch returns what there is of events now.
func (l *locker) fetch() []meta.LockEvent {
	l.Helper()
	news, err := l.Service.AwaitLocks(l.ctx, l.caller, l.life, l.after, 0)
	l.must(err)
	l.life, l.after = news.Life, news.Next
	return news.Events
}

// told waits until a request has ended, before all others.
func (l *locker) told(id [16]byte, kind errs.Kind) {
	l.Helper()
	l.eventually("the request ends", func() bool {
		news, err := l.Service.AwaitLocks(l.ctx, l.caller, l.life, l.after, 100*time.Millisecond)
		l.must(err)
		l.life, l.after = news.Life, news.Next
		if len(news.Events) == 0 {
			return false
		}
		if v := news.Events[0]; len(news.Events) > 1 || v.ID != id || v.Kind != kind {
			l.Fatalf("%v, want %v of %x", news.Events, kind, id)
		}
		return true
	})
}

// silent fails if something has become of a request.
func (l *locker) silent() {
	l.Helper()
	if v := l.fetch(); len(v) > 0 {
		l.Fatalf("events %v, want none", v)
	}
}

func testLockConflicts(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	own := byteRange(ino, 1, exclusive, 10, 19)
	own.PID = 77
	a.want(granted, own, lockNow)
	b.want(errs.Busy, byteRange(ino, 1, shared, 0, 10), lockNow)
	b.want(granted, byteRange(ino, 1, shared, 0, 9), lockNow)
	a.want(errs.Busy, byteRange(ino, 2, shared, 15, 15), lockNow) // another owner of the same client
	b.want(granted, meta.Lock{Ino: ino, Owner: 1, Kind: meta.LockFlock, Type: exclusive,
		End: meta.LockEndMax}, lockNow)
	a.want(granted, byteRange(ino, 1, shared, 12, 14), lockNow)
	b.want(granted, byteRange(ino, 1, shared, 12, 14), lockNow)
	a.want(errs.Busy, byteRange(ino, 1, exclusive, 12, 12), lockNow)
	b.want(errs.Busy, byteRange(ino, 1, shared, 11, 11), lockNow)

	for _, c := range []struct {
		from *locker
		pid  uint32
	}{{a, 77}, {b, 0}} {
		ask := byteRange(ino, 9, shared, 15, meta.LockEndMax)
		got, found, err := e.Service.TestLock(e.ctx, c.from.caller, ask)
		if err != nil || !found || got.Start != 15 || got.End != 19 || got.Type != exclusive ||
			got.PID != c.pid {
			e.Fatalf("%+v, %v, %v", got, found, err)
		}
		ask = byteRange(ino, 9, exclusive, 0, meta.LockEndMax)
		got, found, err = e.Service.TestLock(e.ctx, c.from.caller, ask)
		if err != nil || !found || got.Start != 0 || got.End != 9 || got.Type != shared {
			e.Fatalf("the first of several: %+v, %v, %v", got, found, err)
		}
		_, found, err = e.Service.TestLock(e.ctx, c.from.caller, byteRange(ino, 9, shared, 20, 30))
		if err != nil || found {
			e.Fatalf("a lock where there is none: %v", err)
		}
	}
	a.unlock(byteRange(ino, 1, 0, 0, meta.LockEndMax))
	b.want(granted, byteRange(ino, 1, exclusive, 0, meta.LockEndMax), lockNow)
}

func testLockRefusals(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a := e.locker("a")
	for _, k := range []meta.Lock{
		byteRange(ino, 1, 0, 0, 9), byteRange(ino, 1, 3, 0, 9), byteRange(ino, 1, shared, -1, 9),
		byteRange(ino, 1, shared, 9, 8), {Ino: ino, Kind: 7, Type: shared},
		{Ino: ino, Kind: meta.LockFlock, Type: shared, End: 7},
	} {
		a.want(errs.Invalid, k, lockNow)
	}
	a.want(errs.Invalid, byteRange(ino, 1, shared, 0, 9), 9)
	a.want(errs.NotFound, byteRange(999_999, 1, shared, 0, 9), lockNow)
	e.must(e.Service.EndSession(e.ctx, a.caller.Session))
	a.want(errs.Stale, byteRange(ino, 1, shared, 0, 9), lockNow)
	_, err := e.Service.AwaitLocks(e.ctx, a.caller, 0, 0, time.Minute)
	e.want(errs.Stale, err, "events of a session that has ended")
	_, err = e.Service.ClaimLocks(e.ctx, a.caller, a.caller.Session, nil, false)
	e.want(errs.Stale, err, "claims of a session that has ended")
}

// testLockFairness: requests are granted in the order in which they came; readers that come later
// do not overtake a writer.
func testLockFairness(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b, c := e.locker("a"), e.locker("b"), e.locker("c")
	all := func(typ meta.LockType) meta.Lock { return byteRange(ino, 1, typ, 0, meta.LockEndMax) }
	a.want(granted, all(shared), lockWait)
	writer := b.want(queued, all(exclusive), lockWait)
	reader := c.want(queued, all(shared), lockWait)
	again := byteRange(ino, 2, exclusive, 5, 5)
	second := a.want(queued, again, lockWait)
	a.unlock(all(0))
	b.told(writer, errs.OK)
	c.silent()
	b.unlock(all(0))
	c.told(reader, errs.OK)
	a.silent()
	c.unlock(all(0))
	a.told(second, errs.OK)
}

// testLockDeadlock: a circle over two files is refused to whoever closes it.
func testLockDeadlock(e *env) {
	f, g := e.mkfile(meta.RootIno, "f"), e.mkfile(meta.RootIno, "g")
	a, b := e.locker("a"), e.locker("b")
	a.want(granted, byteRange(f, 1, exclusive, 0, 0), lockNow)
	b.want(granted, byteRange(g, 1, shared, 0, 9), lockNow)
	first := a.want(queued, byteRange(g, 1, exclusive, 5, 5), lockWait)
	b.want(errs.Deadlock, byteRange(f, 1, shared, 0, 9), lockWait)
	b.want(errs.Busy, byteRange(f, 1, shared, 0, 9), lockNow)
	b.unlock(byteRange(g, 1, 0, 0, 9))
	a.told(first, errs.OK)
}

// testLockCancel: what is taken back is not granted later, whether it had come or not; what came
// too late to be taken back is held.
func testLockCancel(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	k := byteRange(ino, 1, exclusive, 0, 9)
	a.want(granted, k, lockNow)
	c := b.next()
	b.wantAs(queued, c, k, lockWait)
	b.wantAs(meta.LockGone, c, k, meta.LockCancel)
	b.wantAs(meta.LockGone, c, k, meta.LockCancel)
	early := b.next()
	b.wantAs(meta.LockGone, early, k, meta.LockCancel)
	late := b.next()
	b.wantAs(queued, late, k, lockWait)
	a.unlock(k)
	b.told(late.ReqID, errs.OK)
	b.wantAs(meta.LockGranted, late, k, meta.LockCancel)
	if _, err := e.Service.Lock(e.ctx, early, k, lockWait); err == nil {
		e.Fatal("a request that was taken back was done")
	}
	b.unlock(k)
	a.want(granted, k, lockNow)
}

// testLockReplay repeats requests whose answers were lost.
func testLockReplay(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	k := byteRange(ino, 1, exclusive, 0, 9)
	first := a.next()
	a.wantAs(granted, first, k, lockNow)
	off := a.next()
	e.must(e.Service.Unlock(e.ctx, off, k))
	a.wantAs(granted, first, k, lockNow)
	b.want(granted, k, lockNow) // the repetition has locked nothing
	wait := a.next()
	a.wantAs(queued, wait, k, lockWait)
	a.wantAs(queued, wait, k, lockWait)
	b.unlock(k)
	a.told(wait.ReqID, errs.OK)
	a.wantAs(granted, wait, k, lockWait)
	e.must(e.Service.Unlock(e.ctx, off, k)) // an old request that comes again
	b.want(errs.Busy, k, lockNow)
	a.silent()
}

// testLockSessionEnd: a session that ends itself writes nothing more, so its locks are free.
func testLockSessionEnd(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	a.want(granted, byteRange(ino, 1, exclusive, 0, 9), lockNow)
	id := b.want(queued, byteRange(ino, 1, exclusive, 0, 9), lockWait)
	b.silent()
	e.must(e.Service.EndSession(e.ctx, a.caller.Session))
	b.told(id, errs.OK)
}

// testLockOfTheDead: a session that was not heard of may write until its capabilities have run out;
// so long its locks stay. What it waited for is nobody's at once.
func testLockOfTheDead(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	a.want(granted, byteRange(ino, 1, exclusive, 0, 9), lockNow)
	b.want(granted, byteRange(ino, 1, exclusive, 10, 19), lockNow)
	a.want(queued, byteRange(ino, 1, exclusive, 10, 19), lockWait)
	c := e.locker("c")
	id := c.want(queued, byteRange(ino, 1, exclusive, 0, 0), lockWait)
	keep := func() {
		e.must(e.Service.KeepAlive(e.ctx, b.caller.Session))
		e.must(e.Service.KeepAlive(e.ctx, c.caller.Session))
		e.must(e.keepOwn())
	}
	e.clock.advance(lease - time.Second)
	keep()
	e.clock.advance(2 * time.Second)
	e.eventually("the session is dead", func() bool { return e.ended(a.caller.Session) })
	time.Sleep(50 * tick) // it is known to be dead a moment before its requests are dropped
	b.unlock(byteRange(ino, 1, 0, 0, meta.LockEndMax))
	c.want(granted, byteRange(ino, 1, exclusive, 10, 19), lockNow)
	for range 3 {
		e.clock.advance(capTTL / 4)
		keep()
		time.Sleep(2 * tick)
		c.silent()
	}
	e.clock.advance(capTTL/4 + 2*time.Second)
	keep()
	c.told(id, errs.OK)
}

// testLockRestart: locks are claimed again. Until all have done so nothing else is granted; what
// waited asks again.
func testLockRestart(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	mine, others := byteRange(ino, 1, exclusive, 0, 9), byteRange(ino, 1, shared, 20, 29)
	a.want(granted, mine, lockNow)
	b.want(granted, others, lockNow)
	b.want(queued, mine, lockWait)
	e.Restart(e)
	was := a.life
	if a.silent(); a.life == was {
		e.Fatal("the same life after a restart")
	}
	b.silent()
	b.want(errs.Again, byteRange(ino, 1, shared, 40, 49), lockNow)
	id := b.want(queued, mine, lockWait)
	claim := func(l *locker, k ...meta.Lock) []meta.Lock {
		e.Helper()
		lost, err := e.Service.ClaimLocks(e.ctx, l.caller, l.caller.Session, k, false)
		e.must(err)
		return lost
	}
	if lost := claim(b, others, byteRange(ino, 2, shared, 0, 1<<40)); len(lost) != 0 {
		e.Fatalf("lost: %v", lost)
	}
	if lost := claim(a, mine); len(lost) != 1 {
		e.Fatal("claimed what somebody else had claimed")
	}
	b.unlock(byteRange(ino, 2, 0, 0, meta.LockEndMax))
	b.told(id, errs.OK)
	for range 2 {
		if lost := claim(b, others); len(lost) != 0 {
			e.Fatalf("lost: %v", lost)
		}
	}
	if lost := claim(b, byteRange(ino, 3, shared, 80, 80)); len(lost) != 1 {
		e.Fatal("claimed when the time of claims was over")
	}
	a.want(errs.Busy, byteRange(ino, 1, exclusive, 25, 25), lockNow)
}

// testLockUnclaimed: who is there and does not claim loses its locks; who is dead is waited for
// until it can write no more. Who never had any is not waited for.
func testLockUnclaimed(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	idle, dead, b := e.locker("idle"), e.locker("dead"), e.locker("b")
	idle.want(granted, byteRange(ino, 1, exclusive, 0, 9), lockNow)
	dead.want(granted, byteRange(ino, 1, exclusive, 10, 19), lockNow)
	e.Restart(e)
	b.silent()
	id := b.want(queued, byteRange(ino, 1, exclusive, 0, 0), lockWait)
	step := func(d time.Duration) {
		e.clock.advance(d)
		e.must(e.Service.KeepAlive(e.ctx, idle.caller.Session))
		e.must(e.Service.KeepAlive(e.ctx, b.caller.Session))
		e.must(e.keepOwn())
		time.Sleep(3 * tick)
	}
	step(lease - time.Second)
	b.silent()
	step(2 * time.Second)
	e.eventually("the session is dead", func() bool { return e.ended(dead.caller.Session) })
	step(lease - time.Second)
	b.silent() // the dead one may have locked and may write
	step(lease - time.Second)
	step(4 * time.Second)
	b.told(id, errs.OK)
	lost, err := e.Service.ClaimLocks(e.ctx, idle.caller, idle.caller.Session,
		[]meta.Lock{byteRange(ino, 1, exclusive, 0, 9)}, false)
	if err != nil || len(lost) != 1 {
		e.Fatalf("claimed too late: %v, %v", lost, err)
	}
}

// testLockNewSession: a client whose session was lost takes its locks over into the next one, as
// long as nobody else can have had them.
func testLockNewSession(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	a, b := e.locker("a"), e.locker("b")
	k := byteRange(ino, 1, exclusive, 0, 9)
	a.want(granted, k, lockNow)
	id := b.want(queued, k, lockWait)
	keep := func(d time.Duration, s ...uint64) {
		e.clock.advance(d)
		for _, id := range append(s, b.caller.Session) {
			e.must(e.Service.KeepAlive(e.ctx, id))
		}
		e.must(e.keepOwn())
	}
	keep(lease - time.Second)
	keep(2 * time.Second)
	e.eventually("the session is dead", func() bool { return e.ended(a.caller.Session) })
	thief, next := e.locker("thief"), e.locker("a")
	claim := func(l *locker, old uint64) []meta.Lock {
		e.Helper()
		lost, err := e.Service.ClaimLocks(e.ctx, l.caller, old, []meta.Lock{k}, false)
		e.must(err)
		return lost
	}
	if lost := claim(thief, a.caller.Session); len(lost) != 1 {
		e.Fatal("another client has taken the locks over")
	}
	if lost := claim(next, a.caller.Session); len(lost) != 0 {
		e.Fatalf("lost: %v", lost)
	}
	for range 6 {
		keep(capTTL/4, next.caller.Session)
		time.Sleep(2 * tick)
	}
	b.silent()
	if lost := claim(next, a.caller.Session); len(lost) != 0 { // repeated
		e.Fatalf("lost: %v", lost)
	}
	next.unlock(k)
	b.told(id, errs.OK)
}
