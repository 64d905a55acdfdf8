package kvtest_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/kvtest"
	"github.com/sluice-storage/sluice/kv/memkv"
)

// A suite that never fails proves nothing. Here stores are broken on purpose, and the cases that
// are meant to notice must fail on them.

// recorder is a testing.TB that remembers failures instead of reporting them.
type recorder struct {
	testing.TB
	mu    sync.Mutex
	texts []string
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

func (r *recorder) Errorf(f string, a ...any) { r.note(fmt.Sprintf(f, a...)) }
func (r *recorder) Error(a ...any)            { r.note(fmt.Sprint(a...)) }
func (r *recorder) Fail()                     { r.note("failed") }
func (r *recorder) FailNow()                  { r.note("failed"); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) Fatal(a ...any)            { r.Error(a...); runtime.Goexit() }
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Log(...any)                {}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.texts) > 0
}

// failures runs one case on its own goroutine, since a fatal failure ends it.
func failures(t *testing.T, c kvtest.Case, cfg kvtest.Config) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(r, cfg)
	}()
	<-done
	return r.texts
}

// broken is a store with a defect. Fields that are nil behave well.
type broken struct {
	*memkv.Store
	commit   func(s *memkv.Store, t kv.Txn) (kv.Result, error)
	snapshot func(s *memkv.Store) kv.Snapshot
	sync     func() error
}

func (b *broken) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	if b.commit == nil || ctx.Err() != nil {
		return b.Store.Commit(ctx, t)
	}
	return b.commit(b.Store, *t)
}

func (b *broken) Snapshot() kv.Snapshot {
	if b.snapshot == nil {
		return b.Store.Snapshot()
	}
	return b.snapshot(b.Store)
}

func (b *broken) Sync(ctx context.Context) error {
	if b.sync == nil {
		return b.Store.Sync(ctx)
	}
	return b.sync()
}

// config opens stores that defect breaks; it is called again for each opening.
func config(defect func(b *broken)) kvtest.Config {
	wrap := func(s *memkv.Store) kv.Store {
		b := &broken{Store: s}
		defect(b)
		return b
	}
	return kvtest.Config{
		Open: func(testing.TB) kv.Store { return wrap(memkv.New(memkv.Options{})) },
		Reopen: func(tb testing.TB, s kv.Store) kv.Store {
			again, err := s.(*broken).Store.Reopen()
			if err != nil {
				tb.Fatalf("Reopen: %v", err)
			}
			return wrap(again)
		},
		Crash: func(_ testing.TB, s kv.Store) kv.Store { return wrap(s.(*broken).Store.Crash()) },
	}
}

// eagerRapid makes rapid try long enough to find every planted defect, and then neither look for
// a shorter run nor write a file.
func eagerRapid(t *testing.T) {
	for name, value := range map[string]string{
		"rapid.checks": "2000", "rapid.shrinktime": "0s", "rapid.nofailfile": "true",
	} {
		old := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, old) })
	}
}

func TestTheSuiteNoticesPlantedDefects(t *testing.T) {
	eagerRapid(t)
	cases := map[string]kvtest.Case{}
	for _, c := range kvtest.Cases() {
		cases[c.Name] = c
	}
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			for _, name := range d.noticedBy {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("there is no case %q", name)
				}
				texts := failures(t, c, config(d.plant))
				if len(texts) == 0 {
					t.Errorf("case %q did not notice", name)
					continue
				}
				t.Logf("%s: %.120s", name, texts[0])
			}
		})
	}
}

func TestTheSuitePassesASoundStore(t *testing.T) {
	for _, c := range kvtest.Cases() {
		if texts := failures(t, c, config(func(*broken) {})); len(texts) > 0 {
			t.Errorf("case %q failed on a sound store: %s", c.Name, texts[0])
		}
	}
}

type defect struct {
	name      string
	plant     func(b *broken)
	noticedBy []string
}

// edit plants a defect that changes transactions on their way in.
func edit(f func(s *memkv.Store, t *kv.Txn)) func(b *broken) {
	return func(b *broken) {
		b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
			f(s, &t)
			return s.Commit(context.Background(), &t)
		}
	}
}

func defects() []defect {
	all := append(checkDefects(), effectDefects()...)
	return append(all, durabilityDefects()...)
}

func checkDefects() []defect {
	return []defect{
		{"ranges are not checked", edit(func(_ *memkv.Store, t *kv.Txn) { t.Ranges = nil }),
			[]string{"range/empty", "range/since-puts", "race/phantom-create-rmdir",
				"race/phantom-remove-all", "model/random"}},
		{"deletes do not count as changes", edit(sinceByLiveKeys),
			[]string{"range/since-deletes", "model/random"}},
		{"existence is not checked", edit(dropChecks(func(c kv.Check) bool { return c.Exists })),
			[]string{"check/exists", "race/phantom-create-rmdir", "model/random"}},
		{"absence is not checked",
			edit(dropChecks(func(c kv.Check) bool { return !c.Exists && c.Version == 0 })),
			[]string{"check/absent", "race/exclusive-create", "model/random"}},
		{"versions are not checked",
			edit(dropChecks(func(c kv.Check) bool { return !c.Exists && c.Version != 0 })),
			[]string{"check/exact", "race/lost-update", "race/write-skew", "model/random"}},
		{"only the first check counts", edit(func(_ *memkv.Store, t *kv.Txn) {
			t.Checks = t.Checks[:min(1, len(t.Checks))]
		}), []string{"check/every-one-counts", "model/random"}},
		{"checks and effects are not one step", checkThenAct,
			[]string{"race/exclusive-create", "race/lost-update", "race/phantom-create-rmdir"}},
		{"adds conflict now and then", func(b *broken) {
			sometimes := memkv.Every(50, errs.Conflict)
			b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
				if err := sometimes(&t); err != nil && len(t.Adds) > 0 {
					return kv.Result{}, err
				}
				return s.Commit(context.Background(), &t)
			}
		}, []string{"race/adds-never-conflict", "race/creates-in-one-directory"}},
	}
}

func effectDefects() []defect {
	return []defect{
		{"half of the effects are made", edit(func(_ *memkv.Store, t *kv.Txn) {
			t.Puts = t.Puts[:(len(t.Puts)+1)/2]
		}), []string{"basic/whole-or-nothing", "crash/prefix", "model/random"}},
		{"deletes are lost beside puts", edit(func(_ *memkv.Store, t *kv.Txn) {
			if len(t.Puts) > 0 {
				t.Deletes = nil
			}
		}), []string{"basic/put-get-delete", "basic/whole-or-nothing", "model/random"}},
		{"adds read and put", edit(addByPut), []string{"race/adds-never-conflict"}},
		{"a refused commit takes a number", func(b *broken) {
			b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
				v, err := s.Commit(context.Background(), &t)
				if err != nil {
					_, _ = s.Commit(context.Background(), &kv.Txn{})
				}
				return v, err
			}
		}, []string{"basic/versions-count-commits", "model/random"}},
		{"snapshots follow the store", func(b *broken) {
			b.snapshot = func(s *memkv.Store) kv.Snapshot { return &live{s.Snapshot(), s} }
		}, []string{"snapshot/never-changes", "snapshot/many", "model/random"}},
		{"snapshots lag behind", lag,
			[]string{"snapshot/sees-returned-commits", "race/linearizable"}},
		{"scans ignore their end", func(b *broken) {
			b.snapshot = func(s *memkv.Store) kv.Snapshot { return endless{s.Snapshot()} }
		}, []string{"snapshot/scan-bounds"}},
	}
}

func durabilityDefects() []defect {
	var salt atomic.Uint32
	return []defect{
		{"repeats are not recognised",
			edit(func(_ *memkv.Store, t *kv.Txn) { t.ReqID = kv.ReqID{} }),
			[]string{"replay/applied-once", "replay/before-checks", "replay/concurrent",
				"model/random"}},
		{"repeats are forgotten by a restart", func(b *broken) {
			now := byte(salt.Add(1))
			b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
				if t.ReqID != (kv.ReqID{}) {
					t.ReqID[4] = now
				}
				return s.Commit(context.Background(), &t)
			}
		}, []string{"replay/reopen", "crash/replay", "model/random"}},
		{"the answer is the repeat's own", func(b *broken) {
			b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
				r, err := s.Commit(context.Background(), &t)
				r.Answer = t.Answer
				return r, err
			}
		}, []string{"replay/answer", "crash/replay", "model/random"}},
		{"answers are forgotten by a restart", answersInMemory,
			[]string{"replay/answer", "replay/window", "crash/replay", "model/random"}},
		{"refusals are remembered as done", refusalsDone,
			[]string{"replay/refusals-are-not-recorded"}},
		{"a synced repeat is not synced", repeatsUnsynced, []string{"crash/replay-synced-later"}},
		{"synced commits are not durable",
			edit(func(_ *memkv.Store, t *kv.Txn) { t.Sync = false }),
			[]string{"crash/synced-survives", "crash/prefix", "crash/while-committing",
				"model/random"}},
		{"Sync does nothing", func(b *broken) { b.sync = func() error { return nil } },
			[]string{"crash/sync-survives", "model/random"}},
	}
}

func dropChecks(drop func(kv.Check) bool) func(*memkv.Store, *kv.Txn) {
	return func(_ *memkv.Store, t *kv.Txn) {
		var kept []kv.Check
		for _, c := range t.Checks {
			if !drop(c) {
				kept = append(kept, c)
			}
		}
		t.Checks = kept
	}
}

// sinceByLiveKeys answers "unchanged since" by the versions of the keys that are there. It turns
// a range that passes into none and one that fails into a check that fails.
func sinceByLiveKeys(s *memkv.Store, t *kv.Txn) {
	snap := s.Snapshot()
	defer snap.Close()
	var kept []kv.RangeCheck
	for _, r := range t.Ranges {
		if r.Since == 0 {
			kept = append(kept, r)
			continue
		}
		_ = snap.Scan(r.Start, r.End, func(key, _ []byte, v kv.Version) bool {
			if v > r.Since {
				t.Checks = append(t.Checks, kv.Check{Key: append([]byte{}, key...)})
			}
			return true
		})
	}
	t.Ranges = kept
}

// checkThenAct verifies a transaction first and applies it a little later.
func checkThenAct(b *broken) {
	b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
		probe := kv.Txn{Checks: t.Checks, Ranges: t.Ranges}
		if _, err := s.Commit(context.Background(), &probe); err != nil {
			return kv.Result{}, err
		}
		time.Sleep(50 * time.Microsecond)
		t.Checks, t.Ranges = nil, nil
		return s.Commit(context.Background(), &t)
	}
}

// addByPut reads counters and writes them a little later.
func addByPut(s *memkv.Store, t *kv.Txn) {
	snap := s.Snapshot()
	defer snap.Close()
	for _, a := range t.Adds {
		old, v, _ := snap.Get(a.Key)
		var sum [kv.CounterBytes]byte
		if v != 0 {
			copy(sum[:], old)
		}
		sum[kv.CounterBytes-1] += byte(a.Delta)
		t.Puts = append(t.Puts, kv.Put{Key: a.Key, Value: sum[:]})
	}
	t.Adds = nil
	time.Sleep(20 * time.Microsecond)
}

// live reads the latest state but calls itself what it was.
type live struct {
	kv.Snapshot
	s *memkv.Store
}

func (l *live) Get(key []byte) ([]byte, kv.Version, error) { return l.s.Snapshot().Get(key) }

func (l *live) Scan(start, end []byte, fn func(key, value []byte, v kv.Version) bool) error {
	return l.s.Snapshot().Scan(start, end, fn)
}

type endless struct{ kv.Snapshot }

func (e endless) Scan(start, _ []byte, fn func(key, value []byte, v kv.Version) bool) error {
	return e.Snapshot.Scan(start, nil, fn)
}

// lag hands out the state before the latest commit.
func lag(b *broken) {
	var mu sync.Mutex
	before := b.Store.Snapshot()
	b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		before = s.Snapshot()
		return s.Commit(context.Background(), &t)
	}
	b.snapshot = func(*memkv.Store) kv.Snapshot {
		mu.Lock()
		defer mu.Unlock()
		return keepOpen{before}
	}
}

// keepOpen is a snapshot that several share.
type keepOpen struct{ kv.Snapshot }

func (keepOpen) Close() error { return nil }

// refusalsDone records the id of a transaction that was refused.
func refusalsDone(b *broken) {
	b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
		v, err := s.Commit(context.Background(), &t)
		if err != nil {
			_, _ = s.Commit(context.Background(), &kv.Txn{ReqID: t.ReqID})
		}
		return v, err
	}
}

// answersInMemory keeps answers where a restart takes them away.
func answersInMemory(b *broken) {
	var mu sync.Mutex
	answers := map[kv.Version]uint64{}
	b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		before := s.Snapshot().Version()
		r, err := s.Commit(context.Background(), &t)
		if err == nil && r.Version > before {
			answers[r.Version] = t.Answer
		}
		r.Answer = answers[r.Version]
		return r, err
	}
}

// repeatsUnsynced takes a repeat for done without looking whether the first one is durable.
func repeatsUnsynced(b *broken) {
	seen := map[kv.ReqID]bool{}
	b.commit = func(s *memkv.Store, t kv.Txn) (kv.Result, error) {
		t.Sync = t.Sync && !seen[t.ReqID]
		seen[t.ReqID] = true
		return s.Commit(context.Background(), &t)
	}
}
