package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func id(n int) (r kv.ReqID) {
	binary.BigEndian.PutUint64(r[:], uint64(n))
	return r
}

// result is what commit n gives.
func result(n int) kv.Result { return kv.Result{Version: kv.Version(n), Answer: uint64(1000 + n)} }

// TestReplayRemembersTheLatest compares the ring with a list, through restarts and crashes.
func TestReplayRemembersTheLatest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		r := NewReplay(size)
		slots := map[int]request{} // what an engine would have on disk
		n := 0
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
				r = reload(r, size, slots)
			}
			n++
			slots[r.Slot()] = request{id(n), result(n)}
			r.Record(id(n), result(n))
			for back := range n {
				was, ok := r.Find(id(n - back))
				if want := back < size; ok != want || (ok && was != result(n-back)) {
					t.Fatalf("after %d in a ring of %d: Find(%d) = %v, %v", n, size, n-back, was, ok)
				}
			}
		}
		r.Record(kv.ReqID{}, result(99))
		if _, ok := r.Find(kv.ReqID{}); ok {
			t.Fatal("the zero id is remembered")
		}
		until := r.Until(kv.Version(n - 1))
		if _, ok := until.Find(id(n)); ok && n > 0 {
			t.Fatal("Until keeps what came later")
		}
		if _, ok := until.Find(id(n - 1)); !ok && n > 1 && size > 1 {
			t.Fatal("Until forgets what came before")
		}
	})
}

func reload(old *Replay, size int, slots map[int]request) *Replay {
	r := NewReplay(size)
	last := kv.Version(0)
	for slot := range len(slots) {
		r.Load(slots[slot].id, slots[slot].was)
		last = max(last, slots[slot].was.Version)
	}
	if got := r.Loaded(); got != last || r.Slot() != old.Slot() {
		panic(fmt.Sprintf("loaded to %d, slot %d, want %d, %d", got, r.Slot(), last, old.Slot()))
	}
	return r
}

func TestChangesAreBounded(t *testing.T) {
	const budget = 100 << 10
	c := NewChanges(budget, 0, 0)
	for v := kv.Version(1); v <= 20000; v++ {
		c.Record(v, &kv.Txn{Deletes: [][]byte{fmt.Appendf(nil, "key%d", v)}})
	}
	if n := len(c.log) - c.head; n != kv.SinceWindow || cap(c.log) > 4*kv.SinceWindow {
		t.Errorf("%d changes are kept in %d slots, want %d", n, cap(c.log), kv.SinceWindow)
	}
	for _, q := range []struct {
		since kv.Version
		key   string
		want  bool
	}{
		{20000, "key20000", false},
		{19999, "key20000", true},
		{20000 - kv.SinceWindow, "other", false},
		{20000 - kv.SinceWindow, "key19000", true},
		{20000 - kv.SinceWindow - 1, "other", true}, // forgotten
		{20001, "other", true},                      // not reached
	} {
		key := []byte(q.key)
		if got := c.Touched(key, append(key, 0), q.since); got != q.want {
			t.Errorf("Touched(%q since %d) = %v", q.key, q.since, got)
		}
	}
}

func TestChangesKnowWhatACrashUndid(t *testing.T) {
	c := NewChanges(1<<20, 10, 20)
	c.Record(21, &kv.Txn{Puts: []kv.Put{{Key: []byte("a")}}})
	touched := map[kv.Version]bool{9: true, 10: false, 11: true, 20: true, 21: false}
	for since, want := range touched {
		if got := c.Touched([]byte("b"), nil, since); got != want {
			t.Errorf("since %d: touched %v, want %v", since, got, want)
		}
	}
}

func TestCounter(t *testing.T) {
	minus := binary.BigEndian.AppendUint64(nil, ^uint64(0))
	if n, err := Counter(nil, minus, 1); n != -1 || err != nil {
		t.Errorf("Counter(-1) = %d, %v", n, err)
	}
	if n, err := Counter(nil, nil, 0); n != 0 || err != nil {
		t.Errorf("Counter of an absent key = %d, %v", n, err)
	}
	if _, err := Counter(nil, minus[1:], 1); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Counter of 7 bytes: %v", err)
	}
}
