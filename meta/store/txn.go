package store

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/lease"
)

const (
	// attemptsMax bounds how often an operation is tried when others keep changing what it reads.
	// Each failed attempt means that somebody else's succeeded.
	attemptsMax = 100

	// maybeMax bounds how often a commit with an unknown outcome is repeated.
	maybeMax = 20
)

// txn is one attempt at an operation: a snapshot to read, and the transaction that grows from
// it. What is read through read is checked at the commit: the operation takes effect only if
// nothing of it has changed since. Keys that are put twice or added to twice are melted
// together, as an engine demands.
type txn struct {
	snap kv.Snapshot
	kv   kv.Txn
	now  meta.Time
	view bool // only reads: nothing is noted down

	since kv.Version // of the snapshot

	losses uint64 // how many there had been when the attempt began; see lost.go

	open   *sessions    // what is open; nil where only records are looked at
	leases *lease.Table // nil there, too
	drops  []dropped    // inodes whose last name it takes

	changes []meta.Ino    // what others may know and will be different; see leases.go
	gone    []meta.Ino    // what will not be there any more
	moved   bool          // a directory gets another parent, or loses it
	queued  meta.Ino      // the first of those that it puts into the deletion queue; 0: none
	quiet   bool          // nobody can tell the difference: nothing is recalled
	lend    *lent         // the caller wants this lease with it
	lends   []*lease.Loan // or these

	accounts []account // what its inodes take of quotas; see quota.go
	promised bool      // room was promised to a writer: limits hold whatever the transaction is for
}

// change notes that what clients may know of an inode will be different.
func (t *txn) change(ino meta.Ino) {
	for _, other := range t.changes {
		if other == ino {
			return
		}
	}
	t.changes = append(t.changes, ino)
}

// dropped is an inode whose last name goes away; open: it becomes an orphan. Or stays: nobody is to
// open it meanwhile.
type dropped struct {
	ino   meta.Ino
	open  bool
	stays bool
}

// read returns a value, nil if there is none, and makes the commit depend on it.
func (t *txn) read(key []byte) ([]byte, error) {
	value, version, err := t.snap.Get(key)
	if err != nil || t.view {
		return value, err
	}
	for i := range t.kv.Checks {
		if bytes.Equal(t.kv.Checks[i].Key, key) {
			return value, nil
		}
	}
	t.kv.Checks = append(t.kv.Checks, kv.Check{Key: key, Version: version})
	return value, nil
}

// peek returns a value that the operation does not depend on.
func (t *txn) peek(key []byte) ([]byte, error) {
	value, _, err := t.snap.Get(key)
	return value, err
}

// demandNone makes the commit depend on there being no key with the prefix.
func (t *txn) demandNone(prefix []byte) {
	t.kv.Ranges = append(t.kv.Ranges, kv.RangeCheck{Start: prefix, End: kv.PrefixEnd(prefix)})
}

func (t *txn) put(key, value []byte) {
	for i := range t.kv.Puts {
		if bytes.Equal(t.kv.Puts[i].Key, key) {
			t.kv.Puts[i].Value = value
			return
		}
	}
	t.kv.Puts = append(t.kv.Puts, kv.Put{Key: key, Value: value})
}

func (t *txn) remove(key []byte) { t.kv.Deletes = append(t.kv.Deletes, key) }

func (t *txn) add(key []byte, delta int64) {
	for i := range t.kv.Adds {
		if bytes.Equal(t.kv.Adds[i].Key, key) {
			t.kv.Adds[i].Delta += delta
			return
		}
	}
	t.kv.Adds = append(t.kv.Adds, kv.Add{Key: key, Delta: delta})
}

// scan calls fn for the keys with the prefix until it returns false. Nothing is noted down: use
// demandNone.
func (t *txn) scan(prefix []byte, fn func(key, value []byte) bool) error {
	return t.snap.Scan(prefix, kv.PrefixEnd(prefix), func(k, v []byte, _ kv.Version) bool {
		return fn(k, v)
	})
}

// first returns the first key with the prefix; nil if there is none.
func (t *txn) first(prefix []byte) ([]byte, error) {
	return t.firstIn(prefix, kv.PrefixEnd(prefix))
}

// firstIn returns the first key of a range; nil if there is none.
func (t *txn) firstIn(start, end []byte) (first []byte, err error) {
	err = t.snap.Scan(start, end, func(key, _ []byte, _ kv.Version) bool {
		first = append([]byte(nil), key...)
		return false
	})
	return first, err
}

// Sentinels that a build function returns; they do not leave the package.
var (
	errNothing = errors.New("nothing to do")                  // success without a commit
	errPending = errors.New("a truncation is pending")        // carry it out, then try again
	errSerial  = errors.New("directory moves are serialised") // take the lock, then try again
)

// look reads one snapshot.
func (s *Store) look(fn func(t *txn) error) error {
	t := txn{snap: s.kv.Snapshot(), view: true, now: s.now(), open: &s.sessions}
	defer t.snap.Close()
	return fn(&t)
}

// update is answer for operations that need not know what they chose the first time.
func (s *Store) update(ctx context.Context, c *meta.Caller, build func(t *txn) error) (
	replayed bool, err error) {

	_, replayed, err = s.answer(ctx, c, build)
	return replayed, err
}

// when is update that tells the time of what it has changed; zero: it took effect earlier.
func (s *Store) when(ctx context.Context, c *meta.Caller, build func(t *txn) error) (
	at meta.Time, err error) {

	replayed, err := s.update(ctx, c, func(t *txn) error {
		at = t.now
		return build(t)
	})
	if replayed || err != nil {
		return meta.Time{}, err
	}
	return at, nil
}

// answer does one operation: build reads and lists, the result is committed, and a conflict
// starts it again. replayed tells that the operation named by c.ReqID took effect earlier, so
// that build's view of the world is from after it: then the caller puts the answer together from
// what is there, and from answer, which is the kv.Txn.Answer that build chose the first time.
//
// That is noticed in two ways. A commit whose request id is known returns the first version,
// which is not newer than the snapshot. And a build that fails ("the name exists") may fail
// because of the very operation that it repeats, so its error counts only if the id is not
// known. A repetition that overtakes the original waits for it, because inFlight lets one of a
// kind in at a time.
func (s *Store) answer(ctx context.Context, c *meta.Caller, build func(t *txn) error) (
	answer uint64, replayed bool, err error) {

	if c.ReqID != (meta.Caller{}).ReqID {
		if err := s.inFlight.enter(ctx, kv.ReqID(c.ReqID)); err != nil {
			return 0, false, err
		}
		defer s.inFlight.leave(kv.ReqID(c.ReqID))
	}
	var ch lease.Change
	defer ch.End()
	return s.apply(ctx, c, &ch, build)
}

// apply is answer for an operation that is noted as being in flight already. What it changes is
// marked in ch, and leases of others are back before it is committed.
func (s *Store) apply(ctx context.Context, c *meta.Caller, ch *lease.Change,
	build func(t *txn) error) (answer uint64, replayed bool, err error) {

	id := kv.ReqID(c.ReqID)
	if id == (kv.ReqID{}) {
		id = randomID()
	}
	for attempt := range attemptsMax {
		t := txn{losses: s.losses.Load(), now: s.now(), snap: s.kv.Snapshot(), open: &s.sessions,
			leases: s.leases}
		t.kv.ReqID = id
		t.since = t.snap.Version()
		t.kv.Seen = t.since // all that read notes down holds there
		if err = build(&t); err == nil {
			err = t.settleQuotas()
		}
		t.snap.Close()
		switch {
		case err == errNothing:
			return 0, false, nil
		case err != nil && c.ReqID == meta.Caller{}.ReqID:
			s.endDrops(ctx, &t, false)
			return 0, false, err
		case err != nil:
			s.endDrops(ctx, &t, false)
			answer, done, probeErr := s.known(ctx, id)
			if probeErr != nil {
				return 0, false, probeErr
			}
			return answer, done, unless(done, err)
		}
		wait, err := s.markChanges(ctx, c, ch, &t)
		var r kv.Result
		if err == nil && wait == nil {
			r, err = s.take(ctx, c, ch, &t)
		}
		s.endDrops(ctx, &t, err == nil && wait == nil && r.Version > t.since)
		switch {
		case err == nil && wait == nil:
			return r.Answer, r.Version <= t.since, nil
		case err == nil:
			// Who gives a lease back may have to open or to tell something first: nothing is held
			// meanwhile but the marks, and then everything is read anew.
			if err := s.await(ctx, wait); err != nil {
				return 0, false, err
			}
			continue
		}
		if errs.KindOf(err) != errs.Conflict {
			return 0, false, err
		}
		if err := pause(ctx, attempt); err != nil {
			return 0, false, err
		}
	}
	return 0, false, errs.Newf(errs.Again, "meta.update", "",
		"others changed the same records %d times in a row", attemptsMax)
}

// markChanges marks what a transaction changes, and recalls the leases of others.
func (s *Store) markChanges(ctx context.Context, c *meta.Caller, ch *lease.Change, t *txn) (
	*lease.Wait, error) {

	if len(t.changes) == 0 || t.quiet {
		return nil, nil
	}
	if err := s.awaitCalm(ctx); err != nil {
		return nil, err
	}
	return ch.Begin(s.leases, c.Session, t.changes, false, s.steady()), nil
}

// take commits a transaction, and lends what it asks for.
func (s *Store) take(ctx context.Context, c *meta.Caller, ch *lease.Change, t *txn) (
	kv.Result, error) {

	r, err := s.commit(ctx, &t.kv)
	if t.moved { // whatever came of it
		s.below.moves.Add(1)
	}
	if t.queued != 0 {
		s.queue.note(t.queued)
		wake(s.removed)
	}
	if err == nil {
		for _, ino := range t.gone {
			s.leases.Gone(ino)
		}
	}
	if l := t.lend; l != nil && err == nil && c.Leases && r.Version > t.since {
		l.mode, l.serial = ch.Lend(c.Session, l.ino, l.mode, s.steady())
	}
	if len(t.lends) > 0 && err == nil && r.Version > t.since {
		ch.LendAll(c.Session, t.lends, s.steady())
	}
	return r, err
}

// endDrops ends what drop began.
func (s *Store) endDrops(ctx context.Context, t *txn, done bool) {
	for _, d := range t.drops {
		switch {
		case d.stays:
			s.sessions.dropped(d.ino, false)
		case !d.open:
			s.sessions.dropped(d.ino, done)
		case s.sessions.orphaned(d.ino, done):
			s.endOrphan(context.WithoutCancel(ctx), d.ino)
		}
	}
}

func unless(done bool, err error) error {
	if done {
		return nil
	}
	return err
}

// commit repeats what has an unknown outcome; the request id makes that safe.
func (s *Store) commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	for attempt := 0; ; attempt++ {
		r, err := s.kv.Commit(ctx, t)
		if errs.KindOf(err) != errs.MaybeDone || attempt == maybeMax {
			return r, err
		}
		if err := pause(ctx, attempt); err != nil {
			return kv.Result{}, err
		}
	}
}

// known asks the engine whether a request id was committed, and with which answer, by a transaction
// that cannot commit.
func (s *Store) known(ctx context.Context, id kv.ReqID) (answer uint64, done bool, err error) {
	r, err := s.commit(ctx, &kv.Txn{ReqID: id, MakesRoom: true,
		Checks: []kv.Check{{Key: []byte(keyNever), Exists: true}}})
	if errs.KindOf(err) == errs.Conflict {
		return 0, false, nil
	}
	return r.Answer, err == nil, err
}

// pause waits a little longer with every failed attempt, at most about 10 ms; the first ones not
// at all, because most conflicts are over when they are noticed.
func pause(ctx context.Context, attempt int) error {
	if attempt < 3 {
		return ctx.Err()
	}
	limit := min(int64(50*time.Microsecond)<<min(attempt, 10), int64(10*time.Millisecond))
	timer := time.NewTimer(time.Duration(rand.Int64N(limit)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func randomID() (id kv.ReqID) {
	for id == (kv.ReqID{}) {
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
	}
	return id
}
