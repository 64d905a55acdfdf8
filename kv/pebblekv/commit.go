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

// Commit implements kv.Store. ctx ends the waiting for the ordered section; once somebody has taken
// the transaction there it is not looked at.
func (s *Store) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	if err := t.Validate(); err != nil {
		return kv.Result{}, err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.usable(ctx); err != nil {
		return kv.Result{}, err
	}
	s.queue.wait(ctx)
	p := takePending(t)
	defer p.free()
	lead, err := s.turn.join(ctx, p)
	if err != nil {
		return kv.Result{}, errs.Wrap(opCommit, "", err)
	}
	if lead {
		s.lead(p)
	}
	if p.err == nil && t.Sync && !p.disk {
		p.err = s.flush()
	}
	if p.err != nil {
		return kv.Result{}, p.err
	}
	return p.r, nil
}

// usable tells whether a commit may be tried. The caller holds life.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return errs.New(errs.Closed, opCommit, s.opt.Dir, nil)
	case s.db == nil:
		return s.absent
	}
	if err := ctx.Err(); err != nil {
		return errs.Wrap(opCommit, "", err)
	}
	return s.guard.err()
}

// admit is the ordered section for one transaction: recognise, check, number, and list its effects
// in the group's batch. The caller leads.
func (s *Store) admit(g *group, t *kv.Txn) (r kv.Result, err error) {
	if r, ok := s.replay.Find(t.ReqID); ok {
		return r, nil
	}
	if err := s.room.admit(t.MakesRoom); err != nil {
		return r, err
	}
	if err := engine.Check(t, reader{s.db, g}, s.changes, s.recent); err != nil {
		return r, err
	}
	if err := s.sums(g, t); err != nil {
		return r, err
	}
	if s.given == s.ceiling {
		if err := g.write(); err != nil {
			return r, err
		}
		if err := s.raise(); err != nil {
			return r, err
		}
	}
	v := s.given + 1
	s.fill(g, t, v)
	r = kv.Result{Version: v, Answer: t.Answer}
	s.given, s.version = v, v
	s.replay.Record(t.ReqID, r)
	s.changes.Record(v, t)
	s.recent.Record(v, t)
	return r, nil
}

// sums computes what the counters that t adds to will be, before anything is listed: an add to what
// is no counter, or beyond its bound, refuses the whole transaction.
func (s *Store) sums(g *group, t *kv.Txn) error {
	g.sums = g.sums[:0]
	for i := range t.Adds {
		a := &t.Adds[i]
		sum, ok := s.counters.get(a.Key)
		if !ok {
			if err := g.writeFor(a.Key); err != nil {
				return err
			}
			old, was, err := get(s.db, a.Key)
			if err != nil {
				return err
			}
			if sum, err = engine.Counter(a.Key, old, was); err != nil {
				return err
			}
		}
		sum, err := engine.Sum(a, sum)
		if err != nil {
			return err
		}
		g.sums = append(g.sums, sum)
	}
	return nil
}

// fill lists the effects of t as version v. It cannot fail: a batch without an index only grows.
func (s *Store) fill(g *group, t *kv.Txn, v kv.Version) {
	b := g.open()
	for i := range t.Puts {
		setUser(b, t.Puts[i].Key, t.Puts[i].Value, v)
		s.counters.forget(t.Puts[i].Key)
	}
	for _, key := range t.Deletes {
		op := b.DeleteDeferred(1 + len(key))
		op.Key[0] = prefixUser
		copy(op.Key[1:], key)
		_ = op.Finish()
		s.counters.forget(key)
	}
	for i := range t.Adds {
		var value [kv.CounterBytes]byte
		binary.BigEndian.PutUint64(value[:], uint64(g.sums[i]))
		setUser(b, t.Adds[i].Key, value[:], v)
		s.counters.set(t.Adds[i].Key, g.sums[i])
	}
	if t.ReqID != (kv.ReqID{}) {
		setReplay(b, s.replay.Slot(), t, v)
	}
}

func setUser(b *pebble.Batch, key, value []byte, v kv.Version) {
	op := b.SetDeferred(1+len(key), versionBytes+len(value))
	op.Key[0] = prefixUser
	copy(op.Key[1:], key)
	binary.BigEndian.PutUint64(op.Value, uint64(v))
	copy(op.Value[versionBytes:], value)
	_ = op.Finish()
}

func setReplay(b *pebble.Batch, slot int, t *kv.Txn, v kv.Version) {
	op := b.SetDeferred(replayKey, replayBytes)
	op.Key[0] = prefixReplay
	binary.BigEndian.PutUint32(op.Key[1:], uint32(slot))
	binary.BigEndian.PutUint64(op.Value, uint64(v))
	binary.BigEndian.PutUint64(op.Value[versionBytes:], t.Answer)
	copy(op.Value[versionBytes+answerBytes:], t.ReqID[:])
	_ = op.Finish()
}

func setVersion(b *pebble.Batch, key string, v kv.Version) {
	op := b.SetDeferred(len(key), versionBytes)
	copy(op.Key, key)
	binary.BigEndian.PutUint64(op.Value, uint64(v))
	_ = op.Finish()
}

// write hands b to pebble: visible, and on its way to the log. finish must be called to wait for
// it, unless there is an error: then the store is read-only. It does not wait for a disk.
func (s *Store) write(b *pebble.Batch) error {
	if err := s.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		s.guard.freeze(err)
	}
	// Whatever failed, here or elsewhere at the same time: if b will be durable is unknown then.
	return s.guard.err()
}

// finish waits until b has left the process, and gives it back. Batches that wait here at the same
// time share one write of the log. A log that failed seems to succeed to pebble; the guard knows.
func (s *Store) finish(b *pebble.Batch) error {
	if err := b.SyncWait(); err != nil {
		s.guard.freeze(err)
	}
	if err := s.guard.err(); err != nil {
		return err
	}
	return errs.Wrap(opCommit, "", b.Close())
}

// flush waits until everything that has left the process is on disk.
func (s *Store) flush() error {
	s.guard.logs.sync()
	return s.guard.err()
}

// writeSynced writes b, alone, and waits for the disk.
func (s *Store) writeSynced(b *pebble.Batch) error {
	if err := s.write(b); err != nil {
		return err
	}
	if err := s.finish(b); err != nil {
		return err
	}
	return s.flush()
}

// raise sets the next numbers aside, durably, before the first of them is given out. The caller
// leads, and what it has listed is written.
func (s *Store) raise() error {
	next := s.given + reserve
	if err := s.setAside(next); err != nil {
		return err
	}
	s.ceiling = next
	return nil
}

// setAside writes the ceiling, and with it the last version, durably. The caller leads.
func (s *Store) setAside(ceiling kv.Version) error {
	b := s.db.NewBatch()
	setVersion(b, keyCeiling, ceiling)
	setVersion(b, keyLast, s.version)
	return s.writeSynced(b)
}

// Sync implements kv.Store.
func (s *Store) Sync(ctx context.Context) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.usable(ctx); err != nil {
		return errs.Wrap("pebblekv.Sync", "", err)
	}
	return s.flush()
}
