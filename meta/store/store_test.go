package store_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(c metatest.Config) store.Options {
	return store.Options{Objects: c.Objects, Key: c.Key, Clock: c.Clock, Lease: c.Lease,
		CapTTL: c.CapTTL, LeaseTime: c.LeaseTime, Tick: c.Tick,
		Host: func() string { return c.Host }}
}

// instance runs the service on engines that reopen returns: first an empty one, then the same
// again.
func instance(t testing.TB, c metatest.Config, engine kv.Store,
	reopen func() (kv.Store, error)) *metatest.Instance {

	in := &metatest.Instance{}
	var s *store.Store
	start := func() {
		var err error
		if s, err = store.New(context.Background(), engine, options(c)); err != nil {
			t.Fatal(err)
		}
		in.Service = s
	}
	start()
	in.Restart = func(t testing.TB) {
		s.Stop()
		var err error
		if engine, err = reopen(); err != nil {
			t.Fatal(err)
		}
		start()
	}
	in.Verify = func(t testing.TB) { verify(t, s) }
	in.As = func(p meta.Peer) meta.Service { return metatest.As(s, p) }
	t.Cleanup(func() {
		s.Stop()
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return in
}

func verify(t testing.TB, s *store.Store) {
	t.Helper()
	err := s.Verify(context.Background(), func(problem string) { t.Error(problem) })
	if err != nil {
		t.Error(err)
	}
}

func onMemkv(opt memkv.Options) metatest.Open {
	return func(t testing.TB, c metatest.Config) *metatest.Instance {
		engine := memkv.New(opt)
		return instance(t, c, engine, func() (_ kv.Store, err error) {
			engine, err = engine.Reopen()
			return engine, err
		})
	}
}

func TestOnMemkv(t *testing.T) { metatest.Run(t, onMemkv(memkv.Options{})) }

// faults is an engine that refuses many transactions at first and loses many answers. It does not
// refuse what it has committed: no engine would.
type faults struct {
	mu   sync.Mutex
	rng  *rand.Rand
	done map[kv.ReqID]bool
}

func (f *faults) before(t *kv.Txn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done[t.ReqID] && f.rng.IntN(10) == 0 {
		return errs.Conflict
	}
	return nil
}

func (f *faults) after(t *kv.Txn, _ kv.Version) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[t.ReqID] = t.ReqID != kv.ReqID{}
	if f.rng.IntN(10) == 0 {
		return errs.MaybeDone
	}
	return nil
}

// TestEachTwice runs the suite where the first try of every request conflicts, so that what makes
// a transaction runs at least twice: it must begin from what was asked, not from what it made of it
// the first time.
func TestEachTwice(t *testing.T) {
	metatest.Run(t, func(t testing.TB, c metatest.Config) *metatest.Instance {
		var mu sync.Mutex
		tried := map[kv.ReqID]bool{}
		before := func(x *kv.Txn) error {
			mu.Lock()
			defer mu.Unlock()
			if x.ReqID == (kv.ReqID{}) || tried[x.ReqID] {
				return nil
			}
			tried[x.ReqID] = true
			return errs.Conflict
		}
		return onMemkv(memkv.Options{Before: before})(t, c)
	})
}

// TestOnFaultyEngine runs the suite where transactions fail and answers get lost: callers must not
// notice.
func TestOnFaultyEngine(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	metatest.Run(t, func(t testing.TB, c metatest.Config) *metatest.Instance {
		f := &faults{rng: rand.New(rand.NewPCG(seed, 2)), done: map[kv.ReqID]bool{}}
		return onMemkv(memkv.Options{Before: f.before, After: f.after})(t, c)
	})
}
