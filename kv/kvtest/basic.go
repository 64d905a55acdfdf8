package kvtest

import (
	"context"
	"errors"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

func basicCases() []Case {
	return []Case{
		on("basic/empty", emptyStore),
		on("basic/put-get-delete", putGetDelete),
		on("basic/versions-count-commits", versionsCount),
		on("basic/values", oddValues),
		on("basic/add", addCounts),
		on("basic/add-to-no-counter", addToNoCounter),
		on("basic/add-within-bound", addWithinBound),
		on("basic/whole-or-nothing", wholeOrNothing),
		on("basic/caller-keeps-its-slices", callerKeepsSlices),
		on("basic/context", contextEnds),
		on("basic/closed", closedStore),
		on("basic/reopen", reopenKeepsAll),
	}
}

func emptyStore(e *env) {
	if v := e.version(); v != 0 {
		e.Errorf("an empty store is at version %d", v)
	}
	e.want("a", "", 0)
	if all := e.dump(); len(all) != 0 {
		e.Errorf("an empty store holds %v", all)
	}
	e.reopen()
	if v := e.version(); v != 0 {
		e.Errorf("an empty store that was opened again is at version %d", v)
	}
}

func putGetDelete(e *env) {
	v1 := e.commit(kv.Txn{Puts: puts("a", "1", "b", "2")})
	e.want("a", "1", v1)
	e.want("b", "2", v1)
	v2 := e.commit(kv.Txn{Puts: puts("b", "3"), Deletes: deletes("a")})
	e.want("a", "", 0)
	e.want("b", "3", v2)
	e.commit(kv.Txn{Deletes: deletes("never there")})
	v4 := e.commit(kv.Txn{Puts: puts("a", "again")})
	e.want("a", "again", v4)
}

func versionsCount(e *env) {
	for want := kv.Version(1); want <= 5; want++ {
		t := kv.Txn{Puts: puts("k", "v")}
		if want == 3 {
			t = kv.Txn{} // no effects, yet a commit
		}
		if got := e.commit(t); got != want {
			e.Fatalf("commit %d got version %d", want, got)
		}
		if got := e.version(); got != want {
			e.Fatalf("after commit %d a snapshot is at %d", want, got)
		}
	}
	e.conflict(kv.Txn{Checks: at("k", 1)})
	if got := e.commit(kv.Txn{}); got != 6 {
		e.Errorf("a refused commit took a number: the next one got %d", got)
	}
}

func oddValues(e *env) {
	big := make([]byte, 100<<10)
	for i := range big {
		big[i] = byte(i * 7)
	}
	zeros := string([]byte{0, 0, 0})
	high := string([]byte{0xff, 0xff})
	v := e.commit(kv.Txn{Puts: []kv.Put{
		{Key: []byte("nil")}, put("empty", ""), {Key: []byte("big"), Value: big},
		put(zeros, zeros), put(high, high), put("a", ""), put("a\x00", "x"),
	}})
	e.want("nil", "", v)
	e.want("empty", "", v)
	e.want("big", string(big), v)
	e.want(zeros, zeros, v)
	e.want(high, high, v)
	e.want("a", "", v)
	e.want("a\x00", "x", v)
	if n := len(e.dump()); n != 7 {
		e.Errorf("7 keys were put, %d are there", n)
	}
}

func addCounts(e *env) {
	v := e.commit(kv.Txn{Adds: adds("n", 5)})
	e.want("n", counter(5), v)
	v = e.commit(kv.Txn{Adds: adds("n", -7)})
	e.want("n", counter(-2), v)
	v = e.commit(kv.Txn{Adds: adds("n", 0)})
	e.want("n", counter(-2), v)
	e.commit(kv.Txn{Deletes: deletes("n")})
	e.commit(kv.Txn{Adds: adds("n", 1)})
	e.wantCount("n", 1)
	e.commit(kv.Txn{Puts: puts("n", counter(math.MaxInt64))})
	e.commit(kv.Txn{Adds: adds("n", 1)})
	e.wantCount("n", math.MinInt64)
}

func addToNoCounter(e *env) {
	e.commit(kv.Txn{Puts: puts("text", "not a counter", "empty", "")})
	e.refuse(errs.Invalid, kv.Txn{Puts: puts("other", "x"), Adds: adds("text", 1)})
	e.refuse(errs.Invalid, kv.Txn{Puts: puts("other", "x"), Adds: adds("empty", 1)})
}

func addWithinBound(e *env) {
	bounded := func(delta, limit int64) kv.Txn {
		return kv.Txn{Puts: puts("other", "x"), Adds: []kv.Add{
			{Key: []byte("n"), Delta: delta, Max: limit}}}
	}
	e.refuse(errs.Conflict, bounded(4, 3))
	e.want("other", "", 0)
	e.commit(bounded(3, 3))
	e.refuse(errs.Conflict, bounded(1, 3))
	e.refuse(errs.Conflict, bounded(0, 2)) // above the bound already
	e.commit(bounded(-1, 3))
	e.commit(bounded(1, 3))
	e.commit(kv.Txn{Adds: adds("n", 10)})
	e.wantCount("n", 13)
}

func wholeOrNothing(e *env) {
	e.commit(kv.Txn{Puts: puts("a", "1", "d", "1"), Adds: adds("n", 1)})
	t := kv.Txn{Puts: puts("a", "2", "b", "2"), Deletes: deletes("d"), Adds: adds("n", 1)}
	t.Checks = at("absent", 0)
	t.Checks = append(t.Checks, at("a", 99)...)
	e.conflict(t)
	t.Checks = at("absent", 0)
	v := e.commit(t)
	want := map[string]cell{"a": {"2", v}, "b": {"2", v}, "n": {counter(2), v}}
	got := e.dump()
	for key, c := range want {
		if got[key] != c {
			e.Errorf("key %q is %v, want %v", key, got[key], c)
		}
	}
	if len(got) != len(want) {
		e.Errorf("store holds %v, want %v", got, want)
	}
}

func callerKeepsSlices(e *env) {
	key, value, gone := []byte("key"), []byte("value"), []byte("gone")
	e.commit(kv.Txn{Puts: puts("gone", "x")})
	v := e.commit(kv.Txn{
		Puts: []kv.Put{{Key: key, Value: value}}, Deletes: [][]byte{gone},
	})
	if string(key) != "key" || string(value) != "value" || string(gone) != "gone" {
		e.Fatalf("Commit changed its argument: %q %q %q", key, value, gone)
	}
	clear(key)
	clear(value)
	clear(gone)
	e.want("key", "value", v)
	e.conflict(kv.Txn{Ranges: within("gone", v-1)})
}

func contextEnds(e *env) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := e.s.Commit(ctx, &kv.Txn{Puts: puts("a", "1")})
	if !errors.Is(err, errs.Canceled) {
		e.Errorf("Commit with an ended context: %v", err)
	}
	if err := e.s.Sync(ctx); !errors.Is(err, errs.Canceled) {
		e.Errorf("Sync with an ended context: %v", err)
	}
	e.want("a", "", 0)
}

func closedStore(e *env) {
	s := e.cfg.Open(e.TB)
	if err := s.Close(); err != nil {
		e.Fatalf("Close: %v", err)
	}
	ctx := context.Background()
	if _, err := s.Commit(ctx, &kv.Txn{Puts: puts("a", "1")}); !errors.Is(err, errs.Closed) {
		e.Errorf("Commit after Close: %v", err)
	}
	if err := s.Sync(ctx); !errors.Is(err, errs.Closed) {
		e.Errorf("Sync after Close: %v", err)
	}
	snap := s.Snapshot()
	if _, _, err := snap.Get([]byte("a")); !errors.Is(err, errs.Closed) {
		e.Errorf("Get in a snapshot taken after Close: %v", err)
	}
	if err := snap.Scan(nil, nil, nil); !errors.Is(err, errs.Closed) {
		e.Errorf("Scan in a snapshot taken after Close: %v", err)
	}
	_ = snap.Close()
	if err := s.Close(); !errors.Is(err, errs.Closed) {
		e.Errorf("second Close: %v", err)
	}
}

func reopenKeepsAll(e *env) {
	v1 := e.commit(kv.Txn{Puts: puts("a", "1", "b", "2"), Adds: adds("n", 3)})
	v2 := e.commit(kv.Txn{Deletes: deletes("a"), Sync: true})
	v3 := e.commit(kv.Txn{Puts: puts("c", "3")})
	e.reopen()
	e.want("a", "", 0)
	e.want("b", "2", v1)
	e.want("c", "3", v3)
	if got := e.version(); got < v3 {
		e.Errorf("after opening again at version %d, before it was %d", got, v3)
	}
	v4 := e.commit(kv.Txn{Checks: at("b", v1), Adds: adds("n", 1)})
	if v4 <= v3 || v2 >= v3 {
		e.Errorf("versions %d, %d, %d before and %d after opening again", v1, v2, v3, v4)
	}
	e.wantCount("n", 4)
}
