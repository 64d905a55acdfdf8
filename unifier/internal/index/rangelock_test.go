package index

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// newIndex makes an index with a MiB of memory.
func newIndex(t testing.TB) *Index {
	t.Helper()
	x, err := New(Config{UnitBytes: memory.BlockBytes, LoanMax: 1 << 19},
		memory.Config{Bytes: 1 << 20, ChunkBytes: 1 << 20, LoanBytes: 1 << 19})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.Lock()
		x.Stop()
		x.Clear()
		x.Unlock()
		if err := x.Memory.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// The order in which range locks are granted: fills share, a publication excludes, nobody
// overtakes.
func TestRangeLocks(t *testing.T) {
	x := newIndex(t)
	o := &Object{id: Key{File: 1}}
	mk := func(shared bool, first, last int64) *RangeLock {
		return &RangeLock{Shared: shared, Spans: []Span{{first, last}}}
	}
	ask := func(cl *RangeLock) chan error { return grab(t, x, o, cl) }
	granted := func(cl *RangeLock) bool {
		x.Lock()
		defer x.Unlock()
		return cl.granted
	}
	end := func(cl *RangeLock) {
		x.Lock()
		defer x.Unlock()
		x.UnlockRange(o, cl)
	}
	a, b, e, c, d := mk(true, 0, 5), mk(true, 3, 9), mk(false, 5, 5), mk(true, 5, 7), mk(false, 6, 9)
	all := []*RangeLock{a, b, e, c, d}
	var waits []chan error
	for _, cl := range all {
		waits = append(waits, ask(cl))
	}
	expect := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if granted(all[i]) != w {
				t.Fatalf("lock %d: granted %v, want %v", i, !w, w)
			}
		}
	}
	expect(true, true, false, false, false)
	end(a)
	expect(true, true, false, false, false)
	end(b)
	expect(true, true, true, false, false)
	end(e)
	expect(true, true, true, true, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.Lock()
	err := x.LockRange(ctx, o, mk(false, 0, 9))
	x.Unlock()
	if errs.KindOf(err) != errs.Canceled {
		t.Fatalf("got %v, want canceled", err)
	}
	end(c)
	expect(true, true, true, true, true)
	end(d)
	for _, w := range waits {
		if err := <-w; err != nil {
			t.Error(err)
		}
	}
	if len(o.locks) != 0 {
		t.Fatalf("%d locks are left", len(o.locks))
	}
}

// grab asks for a lock on another goroutine and returns when it stands in line.
func grab(t *testing.T, x *Index, o *Object, l *RangeLock) chan error {
	done := make(chan error, 1)
	go func() {
		x.Lock()
		err := x.LockRange(t.Context(), o, l)
		x.Unlock()
		done <- err
	}()
	for range 60000 {
		x.Lock()
		in := slices.Contains(o.locks, l)
		x.Unlock()
		if in {
			return done
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nobody asked for the lock")
	return nil
}
