package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const (
	shared    = meta.LockShared
	exclusive = meta.LockExclusive
)

// bench is a table with shorthands.
type bench struct {
	*testing.T
	*Table
	n uint64
}

func newBench(t *testing.T, opt Options) *bench {
	opt.Life = 9
	return &bench{T: t, Table: New(opt)}
}

func rangeOf(ino meta.Ino, owner uint64, typ meta.LockType, start, end int64) meta.Lock {
	return meta.Lock{Ino: ino, Owner: owner, Kind: meta.LockRange, Type: typ, Start: start, End: end}
}

func flockOf(owner uint64, typ meta.LockType) meta.Lock {
	return meta.Lock{Ino: 1, Owner: owner, Kind: meta.LockFlock, Type: typ, End: meta.LockEndMax}
}

// ask asks for a lock of a session and returns the request's id.
func (b *bench) ask(sess uint64, l meta.Lock, wait bool) (ID, meta.LockState, error) {
	b.n++
	state, err := b.Table.Lock(sess, idOf(b.n), &l, wait)
	return idOf(b.n), state, err
}

// want asks and demands an outcome: a state, or a kind of error.
func (b *bench) want(outcome any, sess uint64, l meta.Lock, wait bool) ID {
	b.Helper()
	id, state, err := b.ask(sess, l, wait)
	got := any(state)
	if err != nil {
		got = errs.KindOf(err)
	}
	if got != outcome {
		b.Fatalf("%+v: %v, want %v", l, got, outcome)
	}
	return id
}

func (b *bench) unlock(sess uint64, l meta.Lock) {
	b.n++
	b.Table.Unlock(sess, idOf(b.n), &l)
}

// told fails unless exactly these requests of a session were granted since after.
func (b *bench) told(sess, after uint64, ids ...ID) uint64 {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	news, err := b.Await(ctx, sess, 9, after)
	if err != nil || len(news.Events) != len(ids) {
		b.Fatalf("%v: %v, want %v", err, news, ids)
	}
	for i, v := range news.Events {
		if v.ID != ids[i] || v.Kind != errs.OK {
			b.Fatalf("event %v, want %v", v, ids[i])
		}
	}
	return news.Next
}

const (
	granted = meta.LockGranted
	queued  = meta.LockQueued
)

// TestFlockUpgrade: flock lets go of the shared lock while it waits for the exclusive one, so that
// two that do so at once do not block each other for ever.
func TestFlockUpgrade(t *testing.T) {
	b := newBench(t, Options{})
	b.want(granted, 1, flockOf(1, shared), true)
	b.want(granted, 2, flockOf(1, shared), true)
	first := b.want(queued, 1, flockOf(1, exclusive), true)
	b.want(granted, 2, flockOf(1, exclusive), true) // the only one that is left, and waited for
	b.want(granted, 2, flockOf(1, shared), false)   // downgrading passes the waiting writer
	b.want(errs.Busy, 3, flockOf(1, shared), false)
	b.unlock(2, flockOf(1, 0))
	b.told(1, 0, first)
	b.want(granted, 3, rangeOf(1, 1, exclusive, 0, 9), false) // of another kind
}

// TestRangesSplitAndMerge counts the pieces that an owner's locks are cut into.
func TestRangesSplitAndMerge(t *testing.T) {
	b := newBench(t, Options{})
	pieces := func(want int) {
		b.Helper()
		if held, _ := b.Counts(); held != want {
			b.Fatalf("%d locks, want %d", held, want)
		}
	}
	b.want(granted, 1, rangeOf(1, 1, exclusive, 10, 19), false)
	b.want(granted, 1, rangeOf(1, 1, exclusive, 20, 29), false)
	pieces(1)
	b.want(granted, 1, rangeOf(1, 1, shared, 15, 24), false)
	pieces(3)
	b.want(errs.Busy, 1, rangeOf(1, 2, shared, 14, 14), false)
	b.want(granted, 1, rangeOf(1, 2, shared, 15, 24), false)
	pieces(4)
	b.want(errs.Busy, 1, rangeOf(1, 1, exclusive, 15, 15), false)
	b.unlock(1, rangeOf(1, 2, 0, 0, meta.LockEndMax))
	b.want(granted, 1, rangeOf(1, 1, exclusive, 15, 24), false)
	pieces(1)
	b.unlock(1, rangeOf(1, 1, 0, 12, 12))
	pieces(2)
	b.want(granted, 1, rangeOf(1, 1, exclusive, 0, meta.LockEndMax), false)
	pieces(1)
	l := rangeOf(1, 7, shared, 100, 200)
	if got, found, err := b.Test(1, &l); err != nil || !found || got.Owner != 1 || got.Start != 0 {
		t.Fatalf("%+v %v %v", got, found, err)
	}
	b.End(1)
	pieces(0)
}

// TestWritersAreNotStarved: readers that come later wait behind a writer that waits.
func TestWritersAreNotStarved(t *testing.T) {
	b := newBench(t, Options{})
	b.want(granted, 1, rangeOf(1, 1, shared, 0, 9), true)
	writer := b.want(queued, 2, rangeOf(1, 1, exclusive, 0, 9), true)
	reader := b.want(queued, 3, rangeOf(1, 1, shared, 5, 5), true)
	b.want(errs.Busy, 3, rangeOf(1, 2, shared, 5, 5), false)
	b.want(granted, 3, rangeOf(1, 3, shared, 10, 19), true) // elsewhere
	b.want(granted, 1, rangeOf(1, 1, shared, 0, 20), true)  // the writer waits for this very owner
	b.unlock(1, rangeOf(1, 1, 0, 0, 20))
	b.told(2, 0, writer)
	b.told(3, 0)
	b.unlock(2, rangeOf(1, 1, 0, 0, 9))
	b.told(3, 0, reader)
}

// TestDeadlockAcrossFiles: a circle over three files and sessions is seen by who closes it.
func TestDeadlockAcrossFiles(t *testing.T) {
	b := newBench(t, Options{})
	for i := uint64(1); i <= 3; i++ {
		b.want(granted, i, rangeOf(meta.Ino(i), 1, exclusive, 0, 9), true)
	}
	b.want(queued, 1, rangeOf(2, 1, exclusive, 5, 5), true)
	last := b.want(queued, 2, rangeOf(3, 1, shared, 5, 5), true)
	b.want(errs.Deadlock, 3, rangeOf(1, 1, shared, 0, 0), true)
	b.want(errs.Busy, 3, rangeOf(1, 1, shared, 0, 0), false)
	b.unlock(3, rangeOf(3, 1, 0, 0, 9))
	b.told(2, 0, last)
}

// TestSessionsEnd: what an ending session waits for is gone at once, what it holds when it is over.
func TestSessionsEnd(t *testing.T) {
	b := newBench(t, Options{})
	b.want(granted, 1, rangeOf(1, 1, exclusive, 0, 9), true)
	b.want(granted, 2, rangeOf(2, 1, exclusive, 0, 9), true)
	b.want(queued, 1, rangeOf(2, 1, exclusive, 0, 9), true)
	behind := b.want(queued, 3, rangeOf(2, 1, exclusive, 0, 9), true)
	other := b.want(queued, 3, rangeOf(1, 1, exclusive, 0, 9), true)
	b.Stop(1)
	b.want(errs.Stale, 1, rangeOf(9, 1, shared, 0, 9), true)
	b.unlock(2, rangeOf(2, 1, 0, 0, 9))
	after := b.told(3, 0, behind)
	b.End(1)
	b.told(3, after, other)
}

// TestRepetition: a request that is repeated is answered as it was, also when it was taken back
// before it came.
func TestRepetition(t *testing.T) {
	b := newBench(t, Options{})
	l := rangeOf(1, 1, exclusive, 0, 9)
	id := b.want(granted, 1, l, false)
	b.unlock(1, l)
	off := idOf(b.n)
	if state, err := b.Table.Lock(1, id, &l, false); err != nil || state != granted {
		t.Fatal(state, err)
	}
	b.want(granted, 2, l, false) // the repetition has locked nothing
	b.unlock(2, l)
	b.want(granted, 1, l, false)
	b.Table.Unlock(1, off, &l)
	b.want(errs.Busy, 2, l, false)

	wait := b.want(queued, 2, l, true)
	if state, err := b.Table.Lock(2, wait, &l, true); err != nil || state != queued {
		t.Fatal(state, err)
	}
	for range 2 {
		if b.Cancel(2, wait) {
			t.Fatal("what was not granted")
		}
	}
	if !b.Cancel(1, id) {
		t.Fatal("what was granted")
	}
	b.unlock(1, l)
	early := idOf(1000)
	b.Cancel(2, early)
	if _, err := b.Table.Lock(2, early, &l, true); !errors.Is(err, errs.Canceled) {
		t.Fatal(err)
	}
}

// TestBounds: a client cannot take more than its share.
func TestBounds(t *testing.T) {
	b := newBench(t, Options{PerSession: 10, All: 15})
	n := 0
	for ; ; n++ {
		if _, _, err := b.ask(1, rangeOf(1, 1, exclusive, int64(2*n), int64(2*n)), false); err != nil {
			if errs.KindOf(err) != errs.NoLocks {
				t.Fatal(err)
			}
			break
		}
	}
	if n < 8 || n > 10 {
		t.Fatalf("%d locks, of at most 10", n)
	}
	b.want(granted, 2, rangeOf(1, 1, exclusive, 1000, 1000), false)
	b.End(1)
	b.want(granted, 2, rangeOf(1, 1, exclusive, 0, 0), false)
}

// TestClaims: after a restart nothing is granted until all that are expected have claimed; a new
// session takes over what the old one of its client held.
func TestClaims(t *testing.T) {
	b := newBench(t, Options{})
	b.Expect(1)
	b.Expect(2)
	free := rangeOf(1, 1, exclusive, 100, 109)
	b.want(errs.Again, 3, free, false)
	wait := b.want(queued, 3, free, true)
	held := []meta.Lock{rangeOf(1, 1, exclusive, 0, 9), rangeOf(2, 5, shared, 0, 0)}
	if lost := b.Claim(1, 1, held, true); lost != nil {
		t.Fatalf("lost: %v", lost)
	}
	b.told(3, 0)
	if lost := b.Claim(1, 1, nil, false); lost != nil {
		t.Fatalf("lost: %v", lost)
	}
	if lost := b.Claim(2, 2, held[:1], true); len(lost) != 1 {
		t.Fatalf("somebody else's lock was claimed: %v", lost)
	}
	b.End(2)
	b.told(3, 0, wait)
	if lost := b.Claim(1, 1, held, false); lost != nil { // repeated
		t.Fatalf("lost: %v", lost)
	}
	if lost := b.Claim(3, 3, []meta.Lock{rangeOf(3, 1, shared, 0, 0)}, false); len(lost) != 1 {
		t.Fatal("claimed too late, and not lost")
	}
	next := b.want(queued, 3, rangeOf(1, 1, shared, 0, 0), true)
	if lost := b.Claim(4, 1, held, false); lost != nil {
		t.Fatalf("lost with the session: %v", lost)
	}
	b.End(1)
	after := b.told(3, 1)
	b.unlock(4, held[0])
	b.told(3, after, next)
}

// TestConcurrency has many goroutines take turns at few bytes: a lock is held by one of them.
func TestConcurrency(t *testing.T) {
	b := New(Options{Life: 9})
	var wg sync.WaitGroup
	inside := make([]int, 4) // guarded by the locks themselves
	for g := range uint64(8) {
		wg.Go(func() {
			after := uint64(0)
			for i := range uint64(300) {
				l := rangeOf(1, 1, exclusive, int64(i%4), int64(i%4))
				id := idOf(g<<32 | i)
				state, err := b.Lock(g, id, &l, true)
				if err == nil && state == queued {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					var news meta.LockNews
					if news, err = b.Await(ctx, g, 9, after); len(news.Events) != 1 || news.Events[0].ID != id {
						err = fmt.Errorf("%v: %v", news, err)
					}
					after = news.Next
					cancel()
				}
				if err != nil {
					t.Error(err)
					return
				}
				inside[i%4]++
				b.Unlock(g, idOf(g<<32|1<<20|i), &l)
			}
		})
	}
	wg.Wait()
	for _, n := range inside {
		if n != 8*75 {
			t.Errorf("%d times inside, want %d", n, 8*75)
		}
	}
}

// TestCost: what a request costs does not grow with the locks of the file that it does not touch,
// nor a release with the requests that wait behind the next one.
func TestCost(t *testing.T) {
	visits := func(locks int) int {
		b := newBench(t, Options{})
		for i := range locks {
			b.want(granted, 1, rangeOf(1, uint64(i), exclusive, int64(10*i), int64(10*i)), false)
		}
		n := 0
		for _, tr := range b.files[fileKey{1, meta.LockRange}].held {
			n += depth(tr.root)
		}
		return n
	}
	if small, large := visits(100), visits(20000); large > 5*small {
		t.Errorf("a tree of 20000 locks is %d deep, one of 100 is %d", large, small)
	}
	b := newBench(t, Options{})
	for i := range 5000 {
		b.ask(1, rangeOf(1, uint64(i), exclusive, 0, 9), true)
	}
	for _, s := range b.sessions {
		for _, e := range s.waits {
			if len(e.hanging) > 1 {
				t.Fatalf("%d requests hang on one", len(e.hanging))
			}
		}
	}
}

func depth(e *entry) int {
	if e == nil {
		return 0
	}
	return 1 + max(depth(e.left), depth(e.right))
}
