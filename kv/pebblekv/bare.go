package pebblekv

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// Bare writes the batches of transactions to pebble and does nothing else: no checks, no order, no
// counters, no marks of how far the log reaches. It is the ceiling that benches hold a Store
// against. What is not synced has not even left the process when Commit returns.
type Bare struct {
	db   *pebble.DB
	last atomic.Uint64
}

// OpenBare opens pebble in opt.Dir with the sizes that a Store would have.
func OpenBare(opt Options) (*Bare, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	p := opt.pebbleOptions(newGuard(opt.FS), newQueue(opt.MemtableBytes))
	p.FS, p.EventListener = opt.FS, nil
	db, err := pebble.Open(opt.Dir, p)
	if err != nil {
		return nil, openError(opt.Dir, err)
	}
	return &Bare{db: db}, nil
}

// Commit writes the effects of t. A counter becomes what is added to it. Safe for concurrent use.
func (b *Bare) Commit(t *kv.Txn) error {
	v := kv.Version(b.last.Add(1))
	batch := b.db.NewBatch()
	defer batch.Close()
	for i := range t.Puts {
		setUser(batch, t.Puts[i].Key, t.Puts[i].Value, v)
	}
	for _, key := range t.Deletes {
		if err := batch.Delete(userKey(key), nil); err != nil {
			return err
		}
	}
	var sum [kv.CounterBytes]byte
	for i := range t.Adds {
		setUser(batch, t.Adds[i].Key, sum[:], v)
	}
	if t.ReqID != (kv.ReqID{}) {
		setReplay(batch, int(uint64(v)%kv.ReplayWindow), t, v)
	}
	setVersion(batch, keyLast, v)
	return errs.Wrap("pebblekv.Bare", "", batch.Commit(&pebble.WriteOptions{Sync: t.Sync}))
}

// Settle waits until pebble has nothing to do in the background, at most for limit.
func (b *Bare) Settle(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		m := b.db.Metrics()
		if m.Compact.NumInProgress == 0 && m.Flush.NumInProgress == 0 {
			return
		}
	}
}

// Close ends it.
func (b *Bare) Close() error { return errs.Wrap("pebblekv.Bare", "", b.db.Close()) }
