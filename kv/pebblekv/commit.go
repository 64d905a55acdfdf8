package pebblekv

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/engine"
)

const opCommit = "pebblekv.Commit"

// Commit implements kv.Store. ctx ends the waiting for the ordered section; once the transaction
// has taken effect it is not looked at.
func (s *Store) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	if err := t.Validate(); err != nil {
		return kv.Result{}, err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.enter(ctx); err != nil {
		return kv.Result{}, err
	}
	b, r, err := s.apply(t)
	s.leave()
	if err != nil {
		return kv.Result{}, err
	}
	switch {
	case b == nil && t.Sync: // a repeat: the first one may not have been synced
		return r, s.flush()
	case b == nil:
		return r, nil
	}
	return r, s.finish(b, t.Sync)
}

// enter waits for the turn. On success the caller must leave.
func (s *Store) enter(ctx context.Context) error {
	if s.closed {
		return errs.New(errs.Closed, opCommit, s.opt.Dir, nil)
	}
	if s.db == nil {
		return s.absent
	}
	if err := ctx.Err(); err != nil {
		return errs.Wrap(opCommit, "", err)
	}
	s.queue.wait(ctx)
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap(opCommit, "", ctx.Err())
	case <-s.guard.done:
		return s.guard.err()
	}
	if err := s.guard.err(); err != nil {
		s.leave()
		return err
	}
	return nil
}

func (s *Store) leave() { <-s.turn }

// apply is the ordered section: recognise, check, number, and make visible. It returns the batch
// whose durability is still to be waited for, nil for a repeat. The caller has the turn.
func (s *Store) apply(t *kv.Txn) (b *pebble.Batch, r kv.Result, err error) {
	if r, ok := s.replay.Find(t.ReqID); ok {
		return nil, r, nil
	}
	if err := s.room.admit(t.MakesRoom); err != nil {
		return nil, r, err
	}
	if err := engine.Check(t, reader{s.db}, s.changes); err != nil {
		return nil, r, err
	}
	if s.given == s.ceiling {
		if err := s.raise(); err != nil {
			return nil, r, err
		}
	}
	v := s.given + 1
	b = s.db.NewBatch()
	if err := s.fill(b, t, v); err != nil {
		_ = b.Close()
		return nil, r, err
	}
	if err := s.write(b, t.Sync); err != nil {
		return nil, r, err
	}
	r = kv.Result{Version: v, Answer: t.Answer}
	s.given, s.version = v, v
	s.replay.Record(t.ReqID, r)
	s.changes.Record(v, t)
	return b, r, nil
}

// fill lists the effects of t as version v in b.
func (s *Store) fill(b *pebble.Batch, t *kv.Txn, v kv.Version) error {
	for i := range t.Puts {
		setUser(b, t.Puts[i].Key, t.Puts[i].Value, v)
	}
	for _, key := range t.Deletes {
		op := b.DeleteDeferred(1 + len(key))
		op.Key[0] = prefixUser
		copy(op.Key[1:], key)
		if err := op.Finish(); err != nil {
			return errs.Wrap(opCommit, "", err)
		}
	}
	for i := range t.Adds {
		a := &t.Adds[i]
		old, was, err := get(s.db, a.Key)
		if err != nil {
			return err
		}
		sum, err := engine.Counter(a.Key, old, was)
		if err != nil {
			return err
		}
		var value [kv.CounterBytes]byte
		binary.BigEndian.PutUint64(value[:], uint64(sum+a.Delta))
		setUser(b, a.Key, value[:], v)
	}
	if t.ReqID != (kv.ReqID{}) {
		op := b.SetDeferred(replayKey, replayBytes)
		op.Key[0] = prefixReplay
		binary.BigEndian.PutUint32(op.Key[1:], uint32(s.replay.Slot()))
		binary.BigEndian.PutUint64(op.Value, uint64(v))
		binary.BigEndian.PutUint64(op.Value[versionBytes:], t.Answer)
		copy(op.Value[versionBytes+answerBytes:], t.ReqID[:])
		_ = op.Finish()
	}
	setVersion(b, keyLast, v)
	return nil
}

// setUser and setVersion cannot fail: a batch without an index only grows.

func setUser(b *pebble.Batch, key, value []byte, v kv.Version) {
	op := b.SetDeferred(1+len(key), versionBytes+len(value))
	op.Key[0] = prefixUser
	copy(op.Key[1:], key)
	binary.BigEndian.PutUint64(op.Value, uint64(v))
	copy(op.Value[versionBytes:], value)
	_ = op.Finish()
}

func setVersion(b *pebble.Batch, key string, v kv.Version) {
	op := b.SetDeferred(len(key), versionBytes)
	copy(op.Key, key)
	binary.BigEndian.PutUint64(op.Value, uint64(v))
	_ = op.Finish()
}

// write hands b to pebble: visible, and on its way to the log. finish must be called to wait for
// it, unless there is an error: then the store is read-only. The caller has the turn.
func (s *Store) write(b *pebble.Batch, sync bool) error {
	if sync {
		s.guard.strict.Add(1) // before the record is in the log, see guardedFile.sync
	}
	if err := s.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		s.guard.freeze(err)
	}
	// Whatever failed, here or elsewhere at the same time: if b will be durable is unknown then.
	err := s.guard.err()
	if err != nil && sync {
		s.guard.strict.Add(-1)
	}
	return err
}

// finish waits until b has left the process and, if sync, is on disk, and gives it back. Commits
// that wait here at the same time share one write of the log, and one flush. A log that failed
// seems to succeed to pebble; the guard knows.
func (s *Store) finish(b *pebble.Batch, sync bool) error {
	err := b.SyncWait()
	if sync {
		s.guard.strict.Add(-1)
	}
	if err != nil {
		s.guard.freeze(err)
	}
	if err := s.guard.err(); err != nil {
		return err
	}
	return errs.Wrap(opCommit, "", b.Close())
}

// raise sets the next numbers aside, durably, before the first of them is given out. The caller
// has the turn.
func (s *Store) raise() error {
	next := s.given + reserve
	if err := s.setAside(next); err != nil {
		return err
	}
	s.ceiling = next
	return nil
}

// setAside writes the ceiling, and with it the last version, durably. The caller has the turn.
func (s *Store) setAside(ceiling kv.Version) error {
	b := s.db.NewBatch()
	setVersion(b, keyCeiling, ceiling)
	setVersion(b, keyLast, s.version)
	if err := s.write(b, true); err != nil {
		return err
	}
	return s.finish(b, true)
}

// Sync implements kv.Store.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap("pebblekv.Sync", "", err)
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return errs.New(errs.Closed, "pebblekv.Sync", s.opt.Dir, nil)
	}
	return s.flush()
}

// flush makes all commits that returned durable, by an empty record that is synced. It takes the
// turn only to hand it over, since write needs it.
func (s *Store) flush() error {
	if err := s.enter(context.Background()); err != nil {
		return err
	}
	b := s.db.NewBatch()
	err := b.LogData(nil, nil)
	if err == nil {
		err = s.write(b, true)
	}
	s.leave()
	if err != nil {
		return err
	}
	return s.finish(b, true)
}
