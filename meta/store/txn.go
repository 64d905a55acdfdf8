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
	now  int64 // Unix nanoseconds
	view bool  // only reads: nothing is noted down

	losses uint64 // how many there had been when the attempt began; see lost.go

	accounts []account // what its inodes take of quotas; see quota.go
	promised bool      // room was promised to a writer: limits hold whatever the transaction is for
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

// demand makes the commit depend on the existence of a key, whatever its value. The snapshot must
// have it: see kv.Txn.Seen.
func (t *txn) demand(key []byte) {
	t.kv.Checks = append(t.kv.Checks, kv.Check{Key: key, Exists: true})
}

// demandNone makes the commit depend on there being no key with the prefix.
func (t *txn) demandNone(prefix []byte) {
	t.kv.Ranges = append(t.kv.Ranges, kv.RangeCheck{Start: prefix, End: kv.PrefixEnd(prefix)})
}

// another finds a key with the prefix beside the given one and makes the commit depend on what it
// found: on that key, or on there being none. The search begins behind the given key, so that many
// who leave one range at the same time depend on different neighbours and seldom conflict.
func (t *txn) another(prefix, key []byte) (found bool, err error) {
	behind := append(append([]byte(nil), key...), 0)
	end := kv.PrefixEnd(prefix)
	for _, r := range [][2][]byte{{behind, end}, {prefix, key}} {
		first, err := t.firstIn(r[0], r[1])
		if err != nil {
			return false, err
		}
		if first != nil {
			t.demand(first)
			return true, nil
		}
	}
	t.kv.Ranges = append(t.kv.Ranges, kv.RangeCheck{Start: behind, End: end},
		kv.RangeCheck{Start: prefix, End: key})
	return false, nil
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
// demandNone or another.
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
	errNothing  = errors.New("nothing to do")                  // success without a commit
	errReplayed = errors.New("done before")                    // its traces show that it was done
	errPending  = errors.New("a truncation is pending")        // carry it out, then try again
	errSerial   = errors.New("directory moves are serialised") // take the lock, then try again
)

// look reads one snapshot.
func (s *Store) look(fn func(t *txn) error) error {
	t := txn{snap: s.kv.Snapshot(), view: true, now: s.now()}
	defer t.snap.Close()
	return fn(&t)
}

// update is answer for operations that need not know what they chose the first time.
func (s *Store) update(ctx context.Context, c *meta.Caller, build func(t *txn) error) (
	replayed bool, err error) {

	_, replayed, err = s.answer(ctx, c, build)
	return replayed, err
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

	id := kv.ReqID(c.ReqID)
	if id == (kv.ReqID{}) {
		id = randomID()
	} else {
		if err := s.inFlight.enter(ctx, id); err != nil {
			return 0, false, err
		}
		defer s.inFlight.leave(id)
	}
	for attempt := range attemptsMax {
		t := txn{losses: s.losses.Load(), now: s.now(), snap: s.kv.Snapshot()}
		t.kv.ReqID = id
		since := t.snap.Version()
		t.kv.Seen = since // all that read and demand note down holds there
		if err = build(&t); err == nil {
			err = t.settleQuotas()
		}
		t.snap.Close()
		switch {
		case err == errNothing:
			return 0, false, nil
		case err == errReplayed:
			return 0, true, nil
		case err != nil && c.ReqID == meta.Caller{}.ReqID:
			return 0, false, err
		case err != nil:
			answer, done, probeErr := s.known(ctx, id)
			if probeErr != nil {
				return 0, false, probeErr
			}
			return answer, done, unless(done, err)
		}
		r, err := s.commit(ctx, &t.kv)
		if err == nil {
			return r.Answer, r.Version <= since, nil
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
